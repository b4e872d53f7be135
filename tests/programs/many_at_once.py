#!/usr/bin/env -S python3 -B
"""Eight threads on two machines work on the same few names: each error is one that POSIX has for
a lost race.

Reports: docker/sbx-releases #502 (ESTALE under parallel writes), kata-containers #13329,
seaweedfs #1514, juicedata/juicefs #1956 (rename fails under load). In the end both mounts show
the same tree.
"""

import os
import random
import shutil
import time

import kernel
from trial import HERE, SECONDS, SIDES, check, error_of, fresh, main, read, together, write

# "None" is rmtree's own: what it has opened is another directory than it had looked at.
LOST_RACES = {"EEXIST", "ENOENT", "ENOTEMPTY", "EISDIR", "ENOTDIR", "EINVAL", "None"}
DIRECTORIES = [fresh(240) for _ in range(4)]
FILES = [fresh(240) for _ in range(6)]


def calls(side, chance):
    """One of each kind, on names that are drawn."""
    directory = os.path.join(side, chance.choice(DIRECTORIES))
    path = os.path.join(directory, chance.choice(FILES))
    other = os.path.join(side, chance.choice(DIRECTORIES), chance.choice(FILES))
    moved = directory + "-moved"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    return {
        "mkdir -p": lambda: os.makedirs(directory + "/x/y", exist_ok=True),
        "create": lambda: os.close(os.open(path, flags)),
        "write": lambda: write(path, b"x" * chance.randrange(9000)),
        "append": lambda: write(path, b"y", "ab"),
        "read": lambda: read(path),
        "stat": lambda: os.stat(path),
        "chmod": lambda: os.chmod(path, 0o600 + chance.randrange(64)),
        "truncate": lambda: os.truncate(path, chance.randrange(9000)),
        "utimes": lambda: os.utime(path, (1, 2)),
        "setxattr": lambda: os.setxattr(path, "user.a", b"v"),
        "rename": lambda: os.rename(path, other),
        "exchange": lambda: kernel.exchange(path, other),
        "link": lambda: os.link(path, other),
        "unlink": lambda: os.unlink(path),
        "rmdir": lambda: os.rmdir(directory + "/x/y"),
        "rm -r": lambda: shutil.rmtree(directory) if chance.random() < 0.2 else None,
        "list": lambda: os.listdir(directory),
        "move the directory": lambda: os.rename(directory, moved) or os.rename(moved, directory),
    }


def tree(top):
    for parent, directories, files in os.walk(top):
        stats = [os.stat(os.path.join(parent, name)) for name in sorted(files)]
        attributes = [
            (s.st_size, s.st_nlink, s.st_ino, oct(s.st_mode), s.st_mtime_ns) for s in stats
        ]
        yield os.path.relpath(parent, top), sorted(directories), list(
            zip(sorted(files), attributes)
        )


def eight_threads():
    bad, counts, until = {}, [], time.monotonic() + 2 * SECONDS

    def go(side, seed):
        chance, count = random.Random(seed), 0
        while time.monotonic() < until:
            what, call = chance.choice(list(calls(side, chance).items()))
            e = error_of(call)
            count += 1
            if e and e not in LOST_RACES:
                bad[what, e] = bad.get((what, e), 0) + 1
        counts.append(count)

    sides = (SIDES * 8)[:8]
    together(*(lambda s=s, n=n: go(s, n) for n, s in enumerate(sides)))
    check(not bad, "%d calls: %s" % (sum(counts), bad or "no error but lost races"))
    trees = [sorted(tree(side), key=lambda entry: entry[0]) for side in SIDES]
    check(trees[0] == trees[-1], "both see the same tree in the end")


if __name__ == "__main__":
    main(eight_threads)
