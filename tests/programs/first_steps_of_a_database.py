#!/usr/bin/env -S python3 -B
"""A fresh directory is empty, syncs as databases ask for it, and keeps owners, modes and the
sticky bit.

Reports: bitnami/charts #34532 (JuiceFS: PostgreSQL's image finds its data directory not empty),
jingkaihe/matchlock #102, docker-machine-parallels #71 (fsync of directories and of files opened
to read), docker-library/postgres #213.
"""

import os

import kernel
from trial import (
    HERE,
    TOP,
    as_user,
    check,
    command,
    elsewhere,
    error_of,
    fresh,
    main,
    make_directory,
)
from trial import write


def nothing_hidden_in_the_root():
    hidden = [
        name for name in os.listdir(TOP) if name in (".Trash", ".accesslog", ".config", ".stats")
    ]
    hidden += [name for name in os.listdir(TOP) if name.startswith((".leasehold", ".fuse_hidden"))]
    check(not hidden, "the root of the mount has nothing of the file system's own: %s" % hidden)


def fsync_of_all():
    directory = make_directory()
    fd = os.open(directory, os.O_RDONLY)
    path = os.path.join(directory, fresh())
    write(path, b"1")
    reading = os.open(path, os.O_RDONLY)
    for what, call, arguments in (
        ("fsync of a directory", os.fsync, (fd,)),
        ("fdatasync of a directory", os.fdatasync, (fd,)),
        ("fsync of a file that is open to read", os.fsync, (reading,)),
        ("fdatasync of it", os.fdatasync, (reading,)),
        ("syncfs", kernel.syncfs, (fd,)),
        ("sync_file_range", kernel.sync_file_range, (reading, 0, 0, 7)),
    ):
        e = error_of(call, *arguments)
        check(e is None, "%s: %s" % (what, e or "done"))
    ended = command("sync", "-f", "--", directory)
    check(ended.returncode == 0, "sync -f: %s" % ended.said)


def link_instead_of_rename():
    directory = make_directory()
    one, two, three = (os.path.join(directory, fresh()) for _ in range(3))
    write(one, b"1")
    fd = os.open(directory, os.O_RDONLY)
    os.rename(one, two)
    os.fsync(fd)
    os.link(two, three)
    os.unlink(two)
    os.fsync(fd)
    listed = os.listdir(elsewhere(directory))
    check(listed == [os.path.basename(three)], "link and unlink, as initdb did: %a" % listed)


def mode_and_owner():
    directory = make_directory()
    os.chmod(directory, 0o500)
    stat = os.stat(elsewhere(directory))
    good = stat.st_mode & 0o777 == 0o500 and stat.st_uid == os.getuid()
    check(good, "%o of %d" % (stat.st_mode & 0o777, stat.st_uid))


def sticky_directory():
    directory = make_directory()
    os.chmod(directory, 0o1777)
    one, two, three = (os.path.join(directory, fresh()) for _ in range(3))
    as_user(1001, 1001, [], write, one)
    for what, user, call, arguments, wanted in (
        ("another's unlink", 1002, os.unlink, (one,), "EPERM"),
        ("another's rename", 1002, os.rename, (one, two), "EPERM"),
        ("its owner's link", 1001, os.link, (one, three), None),
        ("its owner's rename", 1001, os.rename, (one, two), None),
        ("its owner's unlink", 1001, os.unlink, (two,), None),
    ):
        got = as_user(user, user, [], call, *map(elsewhere, arguments))
        check(got == wanted, "sticky directory, %s: %s" % (what, got))


def one_device():
    directory = make_directory()
    path = os.path.join(directory, fresh())
    write(path)
    devices = {os.lstat(at).st_dev for at in (TOP, HERE, directory, path)}
    check(len(devices) == 1, "all is on one device: %s" % devices)
    ended = command("find", HERE, "-xdev", "-newer", path, "-print0")
    check(ended.returncode == 0, "find -xdev: %s" % ended.said)


if __name__ == "__main__":
    main(
        nothing_hidden_in_the_root,
        fsync_of_all,
        link_instead_of_rename,
        mode_and_owner,
        sticky_directory,
        one_device,
    )
