#!/usr/bin/env -S python3 -B
"""A descriptor of a file or directory whose last name is gone takes every call, removed here or
by another machine.

Reports: seaweedfs/seaweedfs #10982, #11065 and #11013, juicedata/juicefs #5663 and #5484,
Barre/ZeroFS #448, nfs-ganesha/nfs-ganesha #980.
"""

import fcntl
import mmap
import os

import kernel
from trial import HERE, TWO, check, elsewhere, error_of, fresh, main, outcome

NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


def bits(fd):
    return os.fstat(fd).st_mode & 0o7777


def mapped(fd):
    with mmap.mmap(fd, 8192) as mapping:
        mapping[100:104] = b"mmap"
        mapping.flush()
    return os.pread(fd, 4, 100)


def reopened(fd):
    again = os.open("/proc/self/fd/%d" % fd, os.O_RDWR)
    try:
        return os.pread(again, 5, 9000)
    finally:
        os.close(again)


def attribute(fd):
    os.setxattr(fd, "user.a", b"b")
    listed = [name for name in os.listxattr(fd) if name.startswith("user.")]
    value = os.getxattr(fd, "user.a")
    os.removexattr(fd, "user.a")
    return listed, value


def file_calls(fd, path):
    yield "fstat's links", lambda: os.fstat(fd).st_nlink, 0
    yield "ftruncate", lambda: os.ftruncate(fd, 16384) or os.fstat(fd).st_size, 16384
    yield "write", lambda: os.pwrite(fd, b"hello", 9000), 5
    yield "read", lambda: os.pread(fd, 5, 9000), b"hello"
    yield "posix_fallocate", lambda: os.posix_fallocate(fd, 0, 30000) or os.fstat(fd).st_size, 30000
    yield "punch", lambda: kernel.fallocate(fd, 3, 0, 4096), 0
    yield "fchmod", lambda: os.fchmod(fd, 0o600) or bits(fd), 0o600
    yield "fchown", lambda: os.fchown(fd, 3, 4) or os.fstat(fd).st_uid, 3
    yield "futimens", lambda: os.utime(fd, (7, 8)) or os.fstat(fd).st_mtime, 8
    yield "attributes", lambda: attribute(fd), (["user.a"], b"b")
    yield "flock", lambda: fcntl.flock(fd, NOW), None
    yield "fcntl", lambda: fcntl.lockf(fd, NOW), None
    yield "mmap", lambda: mapped(fd), b"mmap"
    yield "fsync", lambda: os.fsync(fd), None
    yield "fdatasync", lambda: os.fdatasync(fd), None
    yield "SEEK_DATA", lambda: os.lseek(fd, 9000, os.SEEK_DATA), 9000
    yield "copy_file_range", lambda: os.copy_file_range(fd, fd, 5, 9000, 20000), 5
    yield "what was copied", lambda: os.pread(fd, 5, 20000), b"hello"
    yield "open by /proc/self/fd", lambda: reopened(fd), b"hello"
    yield "linkat is refused", lambda: kernel.link_descriptor(fd, path), "ENOENT"
    yield "no name has come of it", lambda: os.stat(path), "ENOENT"


def directory_calls(fd, _):
    yield "is a directory", lambda: os.fstat(fd).st_mode & 0o170000, 0o040000
    yield "fstat's links", lambda: os.fstat(fd).st_nlink, 0
    yield "fchmod", lambda: os.fchmod(fd, 0o700) or bits(fd), 0o700
    yield "fchown", lambda: os.fchown(fd, 3, 4) or os.fstat(fd).st_uid, 3
    yield "futimens", lambda: os.utime(fd, (7, 8)) or os.fstat(fd).st_mtime, 8
    yield "attributes", lambda: attribute(fd), (["user.a"], b"b")
    yield "fsync", lambda: os.fsync(fd), None
    yield "list", lambda: os.listdir(fd), []
    yield "create in it", lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=fd), "ENOENT"
    yield "mkdir in it", lambda: os.mkdir("x", dir_fd=fd), "ENOENT"
    yield "symlink in it", lambda: os.symlink("x", "x", dir_fd=fd), "ENOENT"
    yield "lookup in it", lambda: os.stat("x", dir_fd=fd), "ENOENT"
    yield "unlink in it", lambda: os.unlink("x", dir_fd=fd), "ENOENT"
    yield "flock", lambda: fcntl.flock(fd, NOW), None
    yield "statvfs", lambda: os.fstatvfs(fd).f_bsize > 0, True
    yield ".. is there or not", lambda: error_of(os.stat, "..", dir_fd=fd) in (None, "ENOENT"), True


def try_all(calls, where):
    for what, call, wanted in calls:
        got = outcome(call)
        check(
            got == wanted,
            "%s: %s%s" % (where, what, "" if got == wanted else ": %r, not %r" % (got, wanted)),
        )


def removals():
    """How a name may go, and from where."""
    yield "here", lambda path: path
    if TWO:
        yield "by the other machine", elsewhere


def file():
    for where, at in removals():
        path = os.path.join(HERE, fresh())
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"test data")
        os.unlink(at(path))
        try_all(file_calls(fd, path), "file unlinked " + where)
        os.close(fd)


def file_that_was_replaced():
    for where, at in removals():
        path, new = (os.path.join(HERE, fresh()) for _ in range(2))
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT))
        os.rename(at(new), at(path))
        calls = [
            call for call in file_calls(fd, path) if "link" not in call[0] or "fstat" in call[0]
        ]
        try_all(
            [call for call in calls if call[0] != "no name has come of it"],
            "file replaced " + where,
        )
        os.close(fd)


def directory():
    for where, at in removals():
        path = os.path.join(HERE, fresh())
        os.mkdir(path)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.rmdir(at(path))
        try_all(directory_calls(fd, path), "directory removed " + where)
        os.close(fd)


def directory_that_was_replaced():
    for where, at in removals():
        path, new = (os.path.join(HERE, fresh()) for _ in range(2))
        os.mkdir(path)
        os.mkdir(new)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.rename(at(new), at(path))
        try_all(directory_calls(fd, path), "directory replaced " + where)
        os.close(fd)


def current_directory():
    """A process that stands in a directory that is removed: its calls by relative names are
    ENOENT."""
    for where, at in removals():
        path = os.path.join(HERE, fresh())
        os.mkdir(path)
        os.chdir(path)
        os.rmdir(at(path))
        # Linux drops the entry of a directory that another has removed when it finds it gone.
        error_of(os.stat, path)
        for what, call in (
            ("creat", lambda: os.open("x", os.O_CREAT | os.O_WRONLY)),
            ("mkdir", lambda: os.mkdir("x")),
            ("getcwd", os.getcwd),
        ):
            got = error_of(call)
            check(got == "ENOENT", "in a directory removed %s, %s: %s" % (where, what, got))
        check(os.listdir(".") == [], "and its list is empty")
        os.chmod(".", 0o711)
        check(os.stat(".").st_mode & 0o777 == 0o711, "and chmod of . works")
        os.chdir("/")


def made_again_by_the_same_name():
    for where, at in removals():
        path = os.path.join(HERE, fresh())
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.write(fd, b"old")
        os.unlink(at(path))
        new = os.open(at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.write(new, b"new!")
        check(os.pread(fd, 9, 0) == b"old", "the old one, its name %s given to another" % where)
        os.pwrite(fd, b"OLD", 0)
        check(os.pread(new, 9, 0) == b"new!", "and the other one is not touched through it")
        os.fchmod(fd, 0o600)
        check(os.fstat(new).st_mode & 0o777 != 0o600, "nor its mode")
        os.close(fd)
        os.close(new)


def fallocate_of_one_opened_to_write():
    fd = os.open(os.path.join(HERE, fresh()), os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"x" * 1000)
    e = error_of(os.posix_fallocate, fd, 10, 20)
    good = e is None and os.fstat(fd).st_size == 1000
    check(good, "posix_fallocate within, O_WRONLY: %s" % e)
    os.close(fd)


if __name__ == "__main__":
    main(
        file,
        file_that_was_replaced,
        directory,
        directory_that_was_replaced,
        current_directory,
        made_again_by_the_same_name,
        fallocate_of_one_opened_to_write,
    )
