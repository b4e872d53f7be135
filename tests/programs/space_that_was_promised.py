#!/usr/bin/env -S python3 -B
"""Room that posix_fallocate has promised can be written to when the disk is full, and what has no
room is refused, not lost.

Databases and journals use it so: RocksDB, PostgreSQL's WAL, etcd, systemd-journald, torrent
clients (seaweedfs #11013, mergerfs #1180). Fills the file system: for a small one of its own,
below 2 GiB.
"""

import mmap
import os
import time

from trial import (
    HERE,
    TOP,
    Child,
    both,
    check,
    error_of,
    fresh,
    main,
    note,
    outcome,
    read,
    skip,
    write,
)

MIB = 1 << 20


def needs_a_small_one():
    space = os.statvfs(TOP)
    if space.f_bavail * space.f_frsize > 2 << 30:
        skip("fills the file system: wants a small one, below 2 GiB")


def settled():
    """What df says once nothing of what went before is still being freed or counted."""
    before, until = None, time.monotonic() + 60
    while time.monotonic() < until:
        space = os.statvfs(TOP)
        if before == space.f_bavail:
            break
        before = space.f_bavail
        time.sleep(3)
    return space


class Full:
    """A file system that is filled up to its last byte, after `before` was done."""

    def __init__(self):
        self.path = os.path.join(HERE, fresh())
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT)
        e, count = None, 0
        while e is None:
            e = error_of(os.write, self.fd, os.urandom(MIB))
            count += 1
        check(e == "ENOSPC", "filled with %d MiB: %s" % (count, e))
        e = error_of(os.fsync, self.fd)
        check(e is None, "and what was taken is synced: %s" % e)
        note("another 4 KiB: %s" % error_of(os.write, self.fd, os.urandom(4096)))

    def delete(self):
        e = error_of(os.unlink, self.path)
        os.close(self.fd)
        check(e is None, "deleting works on a full disk: %s" % e)


def room_again(what):
    """There is room within seconds of a deletion."""
    path, e, began = os.path.join(HERE, fresh()), "ENOSPC", time.monotonic()
    while e and time.monotonic() - began < 60:
        e = error_of(write, path, os.urandom(8 * MIB))
        time.sleep(0.2 if e else 0)
    took = time.monotonic() - began
    check(e is None, "%s: there is room after %.1f s: %s" % (what, took, e))
    os.unlink(path)


def allocated_file(length):
    path = os.path.join(HERE, fresh())
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    e = error_of(os.posix_fallocate, fd, 0, length)
    check(e is None, "posix_fallocate of %d MiB: %s" % (length // MIB, e))
    os.fsync(fd)
    return path, fd


def promised_is_written():
    needs_a_small_one()
    path, log = allocated_file(64 * MIB)
    half = os.path.join(HERE, fresh())
    mapped = os.open(half, os.O_RDWR | os.O_CREAT)
    os.ftruncate(mapped, 32 * MIB)
    full = Full()
    pieces, wrong = [os.urandom(MIB) for _ in range(64)], None
    for number, piece in enumerate(pieces):
        wrong = error_of(os.pwrite, log, piece, number * MIB)
        if wrong:
            break
    synced = error_of(os.fsync, log)
    what = "what was promised is written: %d of 64 MiB, %s, fsync %s" % (number + 1, wrong, synced)
    check(wrong is None and synced is None, what)
    same = [read(side) == b"".join(pieces) for side in both(path)] if not wrong else []
    check(all(same), "and it is what was written")
    # Again, over itself.
    wrong = error_of(os.pwrite, log, os.urandom(8 * MIB), 0) or error_of(os.fsync, log)
    check(wrong is None, "and again over the same: %s" % wrong)
    written_by_a_mapping(half, mapped)
    full.delete()
    room_again("after the ballast is deleted")
    os.unlink(path)
    os.unlink(half)


def written_by_a_mapping(path, fd):
    """32 MiB into a hole where there is no room: the program is told or ended, or all is there."""

    def fill():
        with mmap.mmap(fd, 32 * MIB) as mapping:
            mapping[:] = b"m" * (32 * MIB)
            mapping.flush()
        os.fsync(fd)

    ended = Child(fill).result()
    whole = read(path) == b"m" * (32 * MIB)
    check(
        whole or ended is not None,
        "32 MiB by a mapping, on a full disk: %s" % (ended or "all is there"),
    )


def allocation_beyond_the_room():
    needs_a_small_one()
    space = os.statvfs(TOP)
    path = os.path.join(HERE, fresh())
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    length = space.f_blocks * space.f_frsize * 2
    e = error_of(os.posix_fallocate, fd, 0, length)
    check(e == "ENOSPC", "posix_fallocate of twice the disk: %s" % e)
    os.unlink(path)
    os.close(fd)
    room_again("after an allocation that was refused")


def promise_that_is_given_up():
    """A promise that was deleted, cut or punched is room again for others."""
    needs_a_small_one()
    space = settled()
    length = space.f_bavail * space.f_frsize * 6 // 10 // MIB * MIB
    for how, give_up in (
        ("deleted", lambda path, fd: os.unlink(path)),
        ("cut", lambda path, fd: os.ftruncate(fd, 0)),
    ):
        path, fd = allocated_file(length)
        second = os.open(os.path.join(HERE, fresh()), os.O_RDWR | os.O_CREAT)
        e = error_of(os.posix_fallocate, second, 0, length)
        check(e == "ENOSPC", "the same again, beside it: %s" % e)
        give_up(path, fd)
        os.close(fd)
        e, until = "ENOSPC", time.monotonic() + 60
        while e and time.monotonic() < until:
            e = error_of(os.posix_fallocate, second, 0, length)
            time.sleep(0.2 if e else 0)
        check(e is None, "after the first was %s: %s" % (how, e))
        os.ftruncate(second, 0)
        os.close(second)
        outcome(os.unlink, path)


def same_file_again_and_again():
    """Content that is overwritten and synced is room again: nothing counts twice for long."""
    needs_a_small_one()
    space = settled()
    length = space.f_bavail * space.f_frsize * 3 // 10 // MIB * MIB
    path, wrong = os.path.join(HERE, fresh()), None
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for number in range(8):
        for at in range(0, length, 8 * MIB):
            wrong = wrong or error_of(os.pwrite, fd, os.urandom(8 * MIB), at)
        wrong = wrong or error_of(os.fsync, fd)
        if wrong:
            break
    check(wrong is None, "3/10 of the room, overwritten 8 times: %s in round %d" % (wrong, number))
    os.close(fd)
    os.unlink(path)
    room_again("after it")


if __name__ == "__main__":
    main(
        promised_is_written,
        allocation_beyond_the_room,
        promise_that_is_given_up,
        same_file_again_and_again,
    )
