#!/usr/bin/env -S python3 -B
"""Calls that a file system need not offer are refused with the errors for which programs have a
way round.

Reports: pnpm/pnpm #14771 (EPERM of a reflink breaks an install), NixOS/nix #14831, kopia #2402
(O_TMPFILE), mergerfs (chattr). The time of birth is told, as systemd and backups ask for it.
"""

import fcntl
import os
import shutil
import tempfile

import kernel
from trial import HERE, both, check, command, elsewhere, error_of, fresh, main, note, write

FICLONE = 0x40049409
NOT_HERE = ("EOPNOTSUPP", "ENOTTY", "EINVAL", "ENOSYS")


def file(content=b"x" * 10000):
    path = os.path.join(HERE, fresh())
    write(path, content)
    return path


def reflinks():
    source = os.open(file(), os.O_RDONLY)
    target = os.open(file(b""), os.O_RDWR)
    e = error_of(fcntl.ioctl, target, FICLONE, source)
    check(e is None or e in NOT_HERE + ("EXDEV",), "FICLONE: %s" % e)
    copy = os.path.join(HERE, fresh())
    ended = command("cp", "--reflink=auto", "--preserve=all", "--", file(), copy)
    good = ended.returncode == 0 and not ended.stderr and os.stat(copy).st_size == 10000
    check(good, "cp --reflink=auto --preserve=all: %s" % ended.said)


def files_without_a_name():
    e = error_of(os.open, HERE, os.O_TMPFILE | os.O_RDWR, 0o600)
    check(e in (None, "EOPNOTSUPP", "EISDIR"), "O_TMPFILE: %s" % e)
    if e is None:
        fd, path = os.open(HERE, os.O_TMPFILE | os.O_RDWR, 0o600), os.path.join(HERE, fresh())
        os.write(fd, b"named later")
        kernel.link_descriptor(fd, path)
        for side in both(path):
            check(os.stat(side).st_size == 11, "O_TMPFILE, then linkat: it is there")
    with tempfile.TemporaryFile(dir=HERE) as temporary:
        temporary.write(b"x")
        check(True, "Python's TemporaryFile")


def ranges():
    for what, mode, allowed in (
        ("collapse", kernel.COLLAPSE_RANGE, ("EOPNOTSUPP", "EINVAL", None)),
        ("insert", kernel.INSERT_RANGE, ("EOPNOTSUPP", "EINVAL", None)),
        ("unshare", kernel.UNSHARE_RANGE, ("EOPNOTSUPP", None)),
        ("zero", kernel.ZERO_RANGE, ("EOPNOTSUPP", None)),
        ("nonsense", 0x4000, ("EOPNOTSUPP",)),
    ):
        fd = os.open(file(), os.O_RDWR)
        e = error_of(kernel.fallocate, fd, mode, 0, 4096)
        check(e in allowed, "fallocate, %s range: %s" % (what, e))
        if e is not None:
            check(os.fstat(fd).st_size == 10000, "refused: the size is as it was")
        os.close(fd)


def flags_of_files():
    for arguments in (["lsattr", "-d", HERE], ["chattr", "+C", HERE]):
        if shutil.which(arguments[0]):
            note("%s: %s" % (" ".join(arguments[:2]), command(*arguments).said or "no complaint"))
    path = file()
    e = error_of(fcntl.ioctl, os.open(path, os.O_RDONLY), 0x80086601, bytes(8))
    check(e is None or e in NOT_HERE, "FS_IOC_GETFLAGS: %s" % e)


def rename_to_a_new_name_only():
    new = os.path.join(HERE, fresh())
    e = error_of(kernel.renameat2, file(), new, kernel.NOREPLACE)
    check(e is None, "renameat2 with NOREPLACE: %s" % e)
    e = error_of(kernel.renameat2, file(), new, kernel.NOREPLACE)
    check(e == "EEXIST", "onto one that is there: %s" % e)
    e = error_of(kernel.renameat2, file(), new, 0x80)
    check(e == "EINVAL", "with a flag that is none: %s" % e)


def birth(path):
    # `stat` has no other way to say it: statx has no Python call.
    return command("stat", "--printf=%W %w", "--", path).stdout.split(" ", 1)[0]


def time_of_birth():
    path = file()
    made = birth(path)
    check(made not in ("", "0", "-"), "the time of birth is told by statx: %s" % made)
    os.utime(path, (5, 5))
    write(path, b"more", "ab")
    later = birth(elsewhere(path))
    check(later == made, "it is the same through the other and after changes: %s" % later)


def leases_of_files():
    fd = os.open(file(), os.O_RDONLY)
    note("F_SETLEASE: %s" % error_of(fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK))


if __name__ == "__main__":
    main(
        reflinks,
        files_without_a_name,
        ranges,
        flags_of_files,
        rename_to_a_new_name_only,
        time_of_birth,
        leases_of_files,
    )
