"""Names of every kind that the interface allows, for the programs of `shared` and `workload`."""
import os
import sys

# Names need not be text: what is printed of them is.
sys.stdout.reconfigure(errors="backslashreplace")
sys.stderr.reconfigure(errors="backslashreplace")

# What a name may hold beside letters: both forms of one letter, letters that fold to one of other bytes, no text at all, what a shell or a list takes for something else.
WILD = ["", "", "É", "e\u0301", "ſK", "\u212a", "\udcff\udcfe", "\n", " ", "'\"$*", "\x01\x7f", "~", ".."]


def wild(rng, name, longest=255):
    """`name`, or another that has it for its beginning but for letters' case, of any kind that the interface allows; at times as long as can be."""
    name = rng.choice([name, name, name.upper(), name.capitalize(), name.swapcase()]) + rng.choice(WILD)
    if rng.randrange(12) == 0:
        name += rng.choice("nN") * (longest - len(os.fsencode(name)))
    return name
