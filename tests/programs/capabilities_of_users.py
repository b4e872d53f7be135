#!/usr/bin/env -S python3 -B
"""A user who is not root and has a capability may do what the capability is for, and no more.

Reports: trapexit/mergerfs #1055, backrest #605: backup programs with CAP_DAC_READ_SEARCH,
services with CAP_CHOWN or CAP_FOWNER get "permission denied".
"""

import os

import kernel
from trial import HERE, Child, as_user, check, fresh, main, mode, needs_root, read, write

USER = 12345


def having(capabilities, call, *arguments):
    """The result of the call for a user who has these capabilities, or the name of its error."""

    def become_and_call():
        kernel.become_with(USER, USER, [], *capabilities)
        return call(*arguments)

    return Child(become_and_call).result()


def closed_file():
    path = os.path.join(HERE, fresh())
    write(path, b"foo")
    os.chmod(path, 0)
    return path


def closed_directory():
    path = os.path.join(HERE, fresh())
    os.mkdir(path)
    name = fresh()
    write(os.path.join(path, name), b"bar")
    os.chmod(path, 0)
    return path, name


def roots_directory():
    path = os.path.join(HERE, fresh())
    os.mkdir(path, 0o755)
    return path


def no_capability():
    needs_root()
    path, (directory, name) = closed_file(), closed_directory()
    inside = os.path.join(directory, name)
    for what, got in (
        ("reads a file of mode 0", having([], read, path)),
        ("lists a directory of mode 0", having([], os.listdir, directory)),
        ("reads below it", having([], read, inside)),
        ("makes a directory in root's", having([], os.mkdir, os.path.join(roots_directory(), "x"))),
    ):
        check(got == "EACCES", "%s without a capability: %s" % (what, got))
    for what, call, arguments in (
        ("gives a file away", os.chown, (path, 4711, 4711)),
        ("changes a mode", os.chmod, (path, 0o640)),
        ("sets times", os.utime, (path, (1, 1))),
    ):
        got = having([], call, *arguments)
        check(got == "EPERM", "%s without a capability: %s" % (what, got))


def dac_read_search():
    path, (directory, name) = closed_file(), closed_directory()
    can = [kernel.CAP_DAC_READ_SEARCH]
    got = having(can, read, path)
    check(got == b"foo", "CAP_DAC_READ_SEARCH reads a file of mode 0: %s" % got)
    got = having(can, os.listdir, directory)
    check(got == [name], "CAP_DAC_READ_SEARCH lists a directory of mode 0: %a" % got)
    got = having(can, read, os.path.join(directory, name))
    check(got == b"bar", "CAP_DAC_READ_SEARCH reads below it: %s" % got)
    got = having(can, write, path, b"x", "ab")
    check(got == "EACCES", "CAP_DAC_READ_SEARCH writes nothing: %s" % got)
    got = having(can, lambda: os.access(path, os.R_OK, effective_ids=True))
    check(got is True, "faccessat(2) says that it may read: %s" % got)


def dac_override():
    path, (directory, name), roots = closed_file(), closed_directory(), roots_directory()
    can = [kernel.CAP_DAC_OVERRIDE]
    got = having(can, write, path, b"x", "ab")
    check(got == 1, "CAP_DAC_OVERRIDE writes to a file of mode 0: %s" % got)
    made, linked, moved = (os.path.join(roots, fresh()) for _ in range(3))
    for what, call, arguments in (
        ("makes a directory in root's", os.mkdir, (made,)),
        ("removes it", os.rmdir, (made,)),
        ("makes a symbolic link", os.symlink, ("x", linked)),
        ("renames it", os.rename, (linked, moved)),
        ("removes a link", os.unlink, (moved,)),
        ("truncates", os.truncate, (path, 1)),
        ("removes below a directory of mode 0", os.unlink, (os.path.join(directory, name),)),
    ):
        got = having(can, call, *arguments)
        check(got is None, "CAP_DAC_OVERRIDE %s: %s" % (what, got))
    got = having(can, os.chmod, path, 0o777)
    check(got == "EPERM", "CAP_DAC_OVERRIDE changes no mode: %s" % got)


def chown():
    path = closed_file()
    got = having([kernel.CAP_CHOWN], os.chown, path, 4711, 4711)
    check(got is None, "CAP_CHOWN gives a file away: %s" % got)
    check(os.stat(path).st_uid == 4711, "and it is the other's")


def fowner():
    path, can = closed_file(), [kernel.CAP_FOWNER]
    for what, call, arguments in (
        ("changes a mode", os.chmod, (path, 0o640)),
        ("sets times", os.utime, (path, (1, 1))),
        (
            "sets the times of a symbolic link",
            lambda: os.utime(link, (1, 1), follow_symlinks=False),
            (),
        ),
    ):
        link = os.path.join(HERE, fresh())
        os.symlink("x", link)
        got = having(can, call, *arguments)
        check(got is None, "CAP_FOWNER %s: %s" % (what, got))
    sticky = os.path.join(HERE, fresh())
    os.mkdir(sticky)
    os.chmod(sticky, 0o1777)
    inside = os.path.join(sticky, fresh())
    write(inside)
    check(as_user(USER, USER, [], os.unlink, inside) == "EPERM", "sticky: EPERM without it")
    got = having(can, os.unlink, inside)
    check(got is None, "CAP_FOWNER removes from a sticky directory: %s" % got)


def fsetid():
    path = os.path.join(HERE, fresh())
    write(path)
    os.chown(path, USER, 4711)
    having([], os.chmod, path, 0o2755)
    check(mode(path) == "0o755", "the bit of a foreign group without CAP_FSETID: %s" % mode(path))
    having([kernel.CAP_FSETID], os.chmod, path, 0o2755)
    check(mode(path) == "0o2755", "CAP_FSETID sets the bit of a foreign group: %s" % mode(path))


if __name__ == "__main__":
    main(no_capability, dac_read_search, dac_override, chown, fowner, fsetid)
