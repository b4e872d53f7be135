#!/usr/bin/env -S python3 -B
"""Extended attributes, ACLs and capabilities of files: sizes, limits, kinds of files, and what
users may see.

Reports: trapexit/mergerfs #1572, #1132 and #255, juicedata/juicefs, samba (streams, DOS
attributes in user.*, security.NTACL). Too much for one file is refused where it is set, and never
where it is read.
"""

import ctypes
import os
import shutil

import kernel
from trial import (
    HERE,
    as_user,
    both,
    check,
    command,
    elsewhere,
    error_of,
    fresh,
    main,
    needs,
    needs_root,
)
from trial import note, outcome, read, write

USER = 12345


def file():
    path = os.path.join(HERE, fresh())
    write(path)
    return path


def all_sizes():
    needs_root()
    path = file()
    for name, value in (
        ("user.a", b""),
        ("user.b", b"x"),
        ("user." + "n" * 250, b"long name"),
        ("user.B", b"capital"),
        ("user.\u00e9", b"composed"),
        ("user.e\u0301", b"decomposed"),
        ("user.bytes", bytes(range(256))),
        ("user.large", b"k" * 2000),
        ("trusted.t", b"t"),
        ("security.NTACL", b"s" * 500),
    ):
        e = error_of(os.setxattr, path, name, value)
        got = outcome(os.getxattr, elsewhere(path), name)
        check(e is None and got == value, "%a of %d bytes: %s" % (name[:20], len(value), e))


def errors():
    path = file()
    os.setxattr(path, "user.b", b"x")
    for what, call, arguments, wanted in (
        ("an empty name", os.setxattr, (path, "user.", b"x"), "EINVAL"),
        ("a name of no kind", os.setxattr, (path, "nonsense.x", b"x"), "EOPNOTSUPP"),
        ("a name of 256 bytes", os.setxattr, (path, "user." + "n" * 251, b"x"), "ERANGE"),
        ("reading one that is not there", os.getxattr, (path, "user.none"), "ENODATA"),
        ("removing one that is not there", os.removexattr, (path, "user.none"), "ENODATA"),
        (
            "making one that is there",
            os.setxattr,
            (path, "user.b", b"y", os.XATTR_CREATE),
            "EEXIST",
        ),
        (
            "replacing one that is not",
            os.setxattr,
            (path, "user.c", b"y", os.XATTR_REPLACE),
            "ENODATA",
        ),
        ("a value of more than 64 KiB", os.setxattr, (path, "user.64k", b"k" * 65537), "E2BIG"),
    ):
        e = error_of(call, *arguments)
        check(e == wanted, "%s: %s" % (what, e))


def sizes_that_are_told():
    path = file()
    os.setxattr(path, "user.bytes", bytes(256))
    size = kernel.attribute_list_size(path)
    buffer = ctypes.create_string_buffer(size + 1000)
    got = kernel.attribute_list_size(path, buffer, size)
    check(got == size, "the list has the size that is told: %d" % got)
    e = error_of(kernel.attribute_list_size, path, buffer, size - 1)
    check(e == "ERANGE", "one byte less: %s" % e)
    got = kernel.attribute_size(path, "user.bytes")
    check(got == 256, "a value has the size that is told: %d" % got)
    e = error_of(kernel.attribute_size, path, "user.bytes", buffer, 10)
    check(e == "ERANGE", "a smaller buffer: %s" % e)


def many_small_ones():
    path, taken = file(), 0
    while taken < 100 and error_of(os.setxattr, path, "user.many%d" % taken, b"%d" % taken) is None:
        taken += 1
    listed = [name for name in os.listxattr(elsewhere(path)) if "many" in name]
    check(len(listed) == taken > 10, "%d are taken, %d listed" % (taken, len(listed)))


def more_than_a_file_may_have():
    """All that was taken is read on both sides, and the file and its directory work on."""
    path, taken, e = file(), 0, None
    value = b"v" * 65536
    while e is None and taken < 400:
        e = error_of(os.setxattr, path, "user.big%d" % taken, value)
        taken += e is None
    check(e in ("ENOSPC", "E2BIG", "EDQUOT"), "%d of 64 KiB are taken, then %s" % (taken, e))
    for side in both(path):
        names = [name for name in os.listxattr(side) if name.startswith("user.big")]
        wrong = [name for name in names if os.getxattr(side, name) != value]
        check(len(names) == taken and not wrong, "all %d are read" % taken)
        os.utime(side, (1, 1))
        check(
            os.path.basename(path) in os.listdir(os.path.dirname(side)), "its directory is listed"
        )
    for number in range(taken):
        os.removexattr(elsewhere(path), "user.big%d" % number)
    e = error_of(os.setxattr, path, "user.after", b"x")
    check(e is None, "after they were removed there is room: %s" % e)


def of_other_kinds_of_files():
    needs_root()
    link, fifo = os.path.join(HERE, fresh()), os.path.join(HERE, fresh())
    os.symlink("f", link)
    os.mkfifo(fifo)
    for path in (link, fifo):
        e = error_of(os.setxattr, path, "user.a", b"", follow_symlinks=False)
        check(e == "EPERM", "user.* of a link or fifo: %s" % e)
        e = error_of(os.setxattr, path, "trusted.a", b"1", follow_symlinks=False)
        check(e is None, "trusted.* of it: %s" % e)


def times_of_change():
    path = file()
    os.setxattr(path, "user.b", b"y")
    before = os.stat(path)
    os.setxattr(path, "user.b", b"z")
    for side in both(path):
        after = os.stat(side)
        moved, kept = (
            after.st_ctime_ns > before.st_ctime_ns,
            after.st_mtime_ns == before.st_mtime_ns,
        )
        check(moved and kept, "ctime moves, mtime does not")


def seen_by_users():
    needs_root()
    path = file()
    os.setxattr(path, "trusted.t", b"t")
    os.setxattr(path, "user.b", b"b")
    for side in both(path):
        got = as_user(USER, USER, [], os.listxattr, side)
        check(got == ["user.b"], "trusted.* is not listed for users: %s" % got)
        size = as_user(USER, USER, [], kernel.attribute_list_size, side)
        check(size == len("user.b") + 1, "nor counted: %s" % size)
        got = as_user(USER, USER, [], os.getxattr, side, "trusted.t")
        check(got == "ENODATA", "nor read: %s" % got)
        got = as_user(USER, USER, [], os.setxattr, side, "trusted.u", b"u")
        check(got == "EPERM", "nor set: %s" % got)
        check("trusted.t" in os.listxattr(side), "and root sees it")
    os.chmod(path, 0o600)
    got = as_user(USER, USER, [], os.getxattr, elsewhere(path), "user.b")
    check(got == "EACCES", "user.* of a file that may not be read: %s" % got)


def access_control_lists():
    needs("setfacl")
    path = file()
    os.chmod(path, 0o640)
    ended = command("setfacl", "-m", "u:%d:r" % USER, path)
    got = as_user(USER, USER, [], read, elsewhere(path))
    check(ended.returncode == 0 and got == b"", "an ACL: %s, %s" % (ended.said, got))
    command("setfacl", "-b", elsewhere(path))
    got = as_user(USER, USER, [], read, path)
    check(got == "EACCES", "taken away through the other: %s" % got)


def capabilities_of_programs():
    needs("setcap", "getcap")
    needs_root()
    path = os.path.join(HERE, fresh())
    shutil.copy("/bin/true", path)
    ended = command("setcap", "cap_net_raw+ep", path)
    said = command("getcap", elsewhere(path)).said
    check(ended.returncode == 0 and "cap_net_raw" in said, "setcap: %s %s" % (ended.said, said))
    write(elsewhere(path), b"x", "ab")
    said = command("getcap", path).said
    check("cap_net_raw" not in said, "a write takes it: %s" % (said or "none"))
    note("a program of %d bytes" % os.stat(path).st_size)


def go_with_the_file():
    path, new, link = file(), os.path.join(HERE, fresh()), os.path.join(HERE, fresh())
    os.setxattr(path, "user.b", b"z")
    os.rename(path, new)
    os.link(elsewhere(new), elsewhere(link))
    got = outcome(os.getxattr, elsewhere(link), "user.b")
    check(got == b"z", "through a rename and a link: %s" % got)


if __name__ == "__main__":
    main(
        all_sizes,
        errors,
        sizes_that_are_told,
        many_small_ones,
        more_than_a_file_may_have,
        of_other_kinds_of_files,
        times_of_change,
        seen_by_users,
        access_control_lists,
        capabilities_of_programs,
        go_with_the_file,
    )
