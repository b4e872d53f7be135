"""Names as the interface allows them, few enough that they meet often. For the programs of this directory."""

# Labels that fold together stand beside each other: leases are on the fold, entries on the label.
NAMES = [
    b"a", b"A", b"readme.md", b"README.md", b"Readme.MD", b"HEAD", b"Makefile", b"makefile",
    "Ö".encode(), "ö".encode(), "O\u0308".encode(), "straße".encode(), "STRASSE".encode(),
    "\u017f".encode(), b"s", b"S", "\u212a".encode(), b"k", b"K", "ǅ".encode(), "ǆ".encode(), "Σ".encode(), "ς".encode(),
    b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"a\xffB", b"A\xffb",
    b" ", b"new\nline", b"\t", b"trailing.", b"trailing ", b"-rf", b"*", b"back\\slash", b"'\"",
    b"...", b".hidden", b".Hidden", b"con", b"a:b", b"\x01", b"\x7f",
    b"x" * 255, b"X" * 255, b"x" * 254 + b"\xff", ("é" * 127).encode() + b"E",
]
