#!/usr/bin/env -S python3 -B
"""Names of any bytes are kept, listed and found as they are, up to 255 of them; paths and targets
up to their limits.

Reports: s3fs #960, Azure/azure-storage-fuse #52, tursodatabase/agentfs #283, winfsp #455, fusepy
#2, Scille/parsec #1816, virtio-win #1431: names in UTF-8 and not, with newlines, quotes, trailing
dots and spaces, names that differ only in case or in form (NFC, NFD), 256 bytes, long paths, long
targets.
"""

import os

from trial import (
    HERE,
    NAMES,
    SIDES,
    check,
    command,
    elsewhere,
    error_of,
    main,
    make_directory,
    outcome,
    read,
)
from trial import write

MORE = [
    "あ".encode() * 85,
    b"\xf0\x90\x28\xbc",
    b"'\"\\`$(x)",
    b" lead",
    b".. ",
    b"?",
    b":",
    b"a:b|c<d>",
    b"CASE",
    b"case",
    b"Case",
    "\ufb01".encode(),
    b"fi",
    "\u00df".encode(),
    b"ss",
    b"SS",
    b"Ss",
    "\u00e9".encode(),
    "e\u0301".encode(),
    "\u0130".encode(),
    "i\u0307".encode(),
    b"i",
    b"I",
    "\u0131".encode(),
    "\u212a".encode(),
    b"~",
    b"#x#",
    b".#lock",
    b".nfs0001",
    b".fuse_hidden1",
    b".DS_Store",
    b".Trash",
    b"lost+found",
]
ALL = list(dict.fromkeys(NAMES + MORE))


def path_of(directory, name):
    return os.path.join(os.fsencode(directory), name)


def of_any_bytes():
    directory = make_directory()
    for number, name in enumerate(ALL):
        e = error_of(write, path_of(directory, name), b"%d" % number)
        if e:
            check(False, "%a cannot be made: %s" % (name[:20], e))
    for side in dict.fromkeys((directory, elsewhere(directory))):
        listed = os.listdir(os.fsencode(side))
        check(sorted(listed) == sorted(ALL), "all %d are listed" % len(ALL))
        wrong = [n for i, n in enumerate(ALL) if read(path_of(side, n)) != b"%d" % i]
        check(not wrong, "each is what it was: %a" % wrong[:3])
    for name in ALL:
        os.unlink(path_of(elsewhere(directory), name))
    check(os.listdir(directory) == [], "removed through the other, all are gone")


def of_directories_and_links():
    directory, other = make_directory(), make_directory()
    for name in ALL:
        os.mkdir(path_of(directory, name))
        os.symlink(name, path_of(other, name))
    for name in ALL:
        os.mkdir(path_of(elsewhere(directory), name) + b"/in")
        if os.readlink(path_of(elsewhere(other), name)) != name:
            check(False, "the target of %a is another" % name)
    inside = [name for name in ALL if os.listdir(path_of(directory, name)) != [b"in"]]
    check(not inside, "a directory of each name: %a" % inside[:3])
    for where in (directory, other):
        ended = command("rm", "-rf", elsewhere(where))
        check(ended.returncode == 0 and not os.path.exists(where), "rm -rf: %s" % ended.said)


def too_long():
    directory = make_directory()
    source = path_of(directory, b"k")
    write(source)
    for name in (b"a" * 256, "あ".encode() * 85 + b"x", b"a" * 1000):
        path = path_of(directory, name)
        for what, call, arguments in (
            ("open", os.open, (path, os.O_CREAT | os.O_WRONLY)),
            ("stat", os.stat, (path,)),
            ("mkdir", os.mkdir, (path,)),
            ("unlink", os.unlink, (path,)),
            ("rename", os.rename, (source, path)),
            ("symlink", os.symlink, ("x", path)),
            ("link", os.link, (source, path)),
            ("mkfifo", os.mkfifo, (path,)),
        ):
            e = error_of(call, *arguments)
            check(e == "ENAMETOOLONG", "%s of %d bytes: %s" % (what, len(name), e))


def each_byte():
    directory = make_directory()
    each = [b"x" + bytes([byte]) for byte in range(1, 256) if byte != ord("/")]
    for name in each:
        os.mkdir(path_of(directory, name))
    listed = os.listdir(os.fsencode(elsewhere(directory)))
    check(sorted(listed) == sorted(each), "each byte: %d are listed" % len(listed))
    for name in listed:
        os.rmdir(path_of(elsewhere(directory), name))
    check(not os.listdir(directory), "and all are removed")


def targets_of_links():
    directory = make_directory()
    for size in (1, 1000, 4094, 4095):
        target, path = b"t" * size, path_of(directory, b"s%d" % size)
        e = error_of(os.symlink, target, path)
        good = e is None and os.readlink(path_of(elsewhere(directory), b"s%d" % size)) == target
        check(good, "a target of %d bytes: %s" % (size, e))
        check(os.lstat(path).st_size == size, "and its size")
    e = error_of(os.symlink, b"t" * 4096, path_of(directory, b"s4096"))
    check(e == "ENAMETOOLONG", "a target of 4096 bytes: %s" % e)


def deeper_than_a_path_may_be():
    top = make_directory()
    os.chdir(top)
    for _ in range(60):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    write("leaf", b"leaf")
    check(read("leaf") == b"leaf", "60 deep, a path of %d bytes" % (60 * 201))
    os.chdir("/")
    found = command("find", elsewhere(top), "-name", "leaf")
    check(found.stdout.endswith("/leaf\n"), "find finds it: %s" % found.stderr[-100:])
    ended = command("du", "-s", elsewhere(top))
    check(ended.returncode == 0, "du: %s" % ended.stderr[-100:])
    ended = command("rm", "-rf", elsewhere(top))
    check(ended.returncode == 0 and not os.path.exists(top), "rm -rf: %s" % ended.stderr[-100:])


def a_name_that_folds_is_another():
    """An entry that is not there is not found by a name that folds together with one that is."""
    for name in ALL:
        others = [
            n
            for n in ALL
            if n != name
            and n.decode(errors="replace").casefold() == name.decode(errors="replace").casefold()
            and b"\xff" not in n
        ]
        if not others:
            continue
        directory = make_directory()
        write(path_of(directory, name), name)
        for side in SIDES:
            at = side + directory[len(HERE) :]
            found = [n for n in others if os.path.lexists(path_of(at, n))]
            if found:
                check(False, "%a is found by %a" % (name, found))
        write(path_of(elsewhere(directory), others[0]), b"other")
        got = [outcome(read, path_of(directory, n)) for n in (name, others[0])]
        if got != [name, b"other"]:
            check(False, "%a and %a are %a" % (name, others[0], got))
    check(True, "names that fold together, one by one")


if __name__ == "__main__":
    main(
        of_any_bytes,
        of_directories_and_links,
        too_long,
        each_byte,
        targets_of_links,
        deeper_than_a_path_may_be,
        a_name_that_folds_is_another,
    )
