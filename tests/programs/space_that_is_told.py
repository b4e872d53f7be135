#!/usr/bin/env -S python3 -B
"""df and du tell what is used: of an empty file system, a file, a hole, a reservation, and what
was deleted.

Reports: xtreemfs/xtreemfs #35, ceph/ceph #19033 (used is wrong since the disk's reserve counts as
used), juicedata/ juicefs #5484 (space of a file that was unlinked while open is not given back),
musefs #368. DISK is a directory of the disk below, if that is for this trial alone.
"""

import os
import time

import kernel
from trial import HERE, TOP, TWO, check, elsewhere, fresh, main, note, scratch, skip, write

MIB = 1 << 20
BLOCKS = MIB // 512
DISK = os.environ.get("DISK")
# Other things come and go on the disk below: logs, rows, or the work of others. What another machine
# has been allowed to use counts as used, a quarter of what there is at most. On a disk of this trial's
# own there always is another machine, and it is allowed that as soon as it has a session.
SLACK = ((400 if TWO else 200) if DISK else 1000) * MIB
ALLOWED = 25 if TWO or DISK else 3


class Space:
    def __init__(self, path=TOP):
        s = os.statvfs(path)
        self.total, self.free = s.f_blocks * s.f_frsize, s.f_bfree * s.f_frsize
        self.available = s.f_bavail * s.f_frsize

    def percent(self):
        """The share in use, as df computes it."""
        used = self.total - self.free
        return 100 * used / max(1, used + self.available)


def blocks(path):
    return os.stat(path).st_blocks


def between(low, path, high, what):
    got = blocks(path)
    check(low * BLOCKS <= got <= high * BLOCKS, "%s: %d KiB" % (what, got // 2))


def no_more_than_of_the_disk():
    space, disk = Space(), Space(DISK or scratch(""))
    until = time.monotonic() + 60
    while space.percent() >= disk.percent() + ALLOWED and time.monotonic() < until:
        time.sleep(0.5)  # What programs before this one were allowed is given back when they rest.
        space, disk = Space(), Space(DISK or scratch(""))
    note("in use: %.1f %%, of the disk below: %.1f %%" % (space.percent(), disk.percent()))
    check(space.percent() < disk.percent() + ALLOWED, "no more in use than of the disk that it is on")
    good = space.available <= space.free <= space.total
    check(good, "available, free and total are in order")
    other = Space(elsewhere(HERE))
    check(abs(other.available - space.available) < SLACK, "and about the same through the other")


def of_one_file():
    path = os.path.join(HERE, fresh())
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    os.write(fd, os.urandom(MIB) * 64)
    os.fsync(fd)
    for side in (path, elsewhere(path)):
        between(63, side, 70, "64 MiB occupy")
    os.ftruncate(fd, 1 << 40)
    between(63, path, 70, "made 1 TiB long by a hole, it occupies")
    kernel.fallocate(fd, kernel.PUNCH_HOLE | kernel.KEEP_SIZE, 0, 32 * MIB)
    between(31, path, 38, "32 MiB punched, it occupies")
    os.ftruncate(fd, 0)
    os.fsync(fd)
    check(blocks(path) == 0, "cut: %d blocks" % blocks(path))
    os.unlink(path)
    os.close(fd)


def of_a_reservation():
    path = os.path.join(HERE, fresh())
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(fd, 0, 16 * MIB)
    # What is set aside and not written the machine alone knows that has it.
    between(16, path, 17, "posix_fallocate of 16 MiB occupies")
    os.write(fd, os.urandom(MIB))
    os.fsync(fd)
    between(16, path, 17, "1 MiB of it written, it occupies")
    os.ftruncate(fd, 4 * MIB)
    between(4, path, 5, "cut to 4 MiB, it occupies")
    kernel.fallocate(fd, kernel.KEEP_SIZE, 0, 8 * MIB)
    between(8, path, 9, "8 MiB kept beyond its end, it occupies")
    check(os.stat(elsewhere(path)).st_size == 4 * MIB, "and the size is as it was")
    os.unlink(path)
    os.close(fd)


def of_a_byte():
    path = os.path.join(HERE, fresh())
    write(path, b"x")
    check(blocks(path) >= 1, "a byte occupies a block at least: %d" % blocks(path))
    check(blocks(elsewhere(path)) >= 1, "and through the other")


def given_back():
    DISK or skip("others may use the disk below: DISK says that it is for this trial")
    before = Space().available
    path = os.path.join(HERE, fresh())
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    for _ in range(8):
        os.write(fd, os.urandom(64 * MIB))
    os.fsync(fd)
    os.unlink(elsewhere(path))
    os.close(fd)
    until = time.monotonic() + 60
    while before - Space().available > SLACK and time.monotonic() < until:
        time.sleep(0.5)
    now = Space().available
    check(
        before - now <= SLACK,
        "512 MiB given back: %d MiB, now %d MiB" % (before // MIB, now // MIB),
    )


if __name__ == "__main__":
    main(no_more_than_of_the_disk, of_one_file, of_a_reservation, of_a_byte, given_back)
