#!/usr/bin/env -S python3 -B
"""The descriptor of one who made a file read-only goes on writing to it, whatever the mode says.

Report: libuv/libuv #3919 (ceph-fuse): a user who is not root copies a file of mode 0444, as
node's copyFile does: open(O_CREAT, 0444), ftruncate, write, fallocate, mmap and chmod through
that descriptor.
"""

import mmap
import os
import shutil

from trial import HERE, as_user, check, command, elsewhere, fresh, main, read, skip, write

USER = 12345


def user(call, *arguments):
    return as_user(USER, USER, [], call, *arguments)


def through_its_own_descriptor():
    path = os.path.join(HERE, fresh())

    def copy():
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)
        os.ftruncate(fd, 0)
        os.write(fd, b"x" * 5000)
        os.ftruncate(fd, 100)
        os.posix_fallocate(fd, 0, 8192)
        os.fsync(fd)
        with mmap.mmap(fd, 8192) as mapping:
            mapping[0:2] = b"ok"
            mapping.flush()
        os.utime(fd, (5, 6))
        os.fchmod(fd, 0o400)
        os.copy_file_range(fd, fd, 10, 0, 4000)
        os.close(fd)
        fd = os.open(path, os.O_RDONLY)
        stat = os.fstat(fd)
        return os.read(fd, 3), stat.st_size, oct(stat.st_mode), os.pread(fd, 2, 4000)

    got = user(copy)
    check(got == (b"okx", 8192, "0o100400", b"ok"), "all calls through the descriptor: %s" % (got,))
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
        got = user(os.open, path, flags)
        check(got == "EACCES", "opening it again to write, flags %o: %s" % (flags, got))
    got = user(os.truncate, path, 1)
    check(got == "EACCES", "truncate by its path: %s" % got)
    got = user(read, elsewhere(path))
    check(got[:3] == b"okx", "read through the other mount: %r" % got[:3])


def while_the_other_reads():
    path = os.path.join(HERE, fresh())

    def copy():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        os.write(fd, b"a")
        first = read(elsewhere(path))
        os.ftruncate(fd, 10)
        os.write(fd, b"b")
        second = read(elsewhere(path))
        os.posix_fallocate(fd, 10, 10)
        return first, second, os.stat(elsewhere(path)).st_size

    got = user(copy)
    check(got == (b"a", b"ab" + bytes(8), 20), "written while the other reads: %s" % (got,))


def made_without_any_right():
    path = os.path.join(HERE, fresh())

    def make():
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0)
        os.write(fd, b"closed")
        os.fsync(fd)
        return os.pread(fd, 10, 0)

    got = user(make)
    check(got == b"closed", "mode 0: written and read through its descriptor: %s" % got)
    check(user(read, elsewhere(path)) == "EACCES", "and by nobody else")


def node_copies():
    shutil.which("node") or skip("node is not installed")
    source, target = (os.path.join(HERE, fresh()) for _ in range(2))
    write(source, b"src")
    os.chmod(source, 0o444)
    # By numbers: node reads its arguments as UTF-8, and names are any bytes.
    script = (
        "const p = s => Buffer.from(s, 'hex'), fs = require('fs');"
        "fs.copyFileSync(p(process.argv[1]), p(process.argv[2]))"
    )
    names = [os.fsencode(path).hex() for path in (source, target)]
    got = user(lambda: command("node", "-e", script, *names).said)
    check(got == "" and read(target) == b"src", "node's copyFileSync: %s" % got)


if __name__ == "__main__":
    main(through_its_own_descriptor, while_the_other_reads, made_without_any_right, node_copies)
