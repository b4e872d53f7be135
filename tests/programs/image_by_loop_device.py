#!/usr/bin/env -S python3 -B
"""A disk image with a file system of its own is mounted by a loop device, filled, trimmed,
checked and mounted again.

Reports: mar-file-system/marfs #122, teslausb #160, images of virtual machines and containers on
network mounts.
"""

import os
import tempfile

from trial import (
    HERE,
    check,
    command,
    elsewhere,
    main,
    needs,
    needs_root,
    note,
    outcome,
    read,
    skip,
)
from trial import write

MIB = 1 << 20


class Mounted:
    """The image, mounted at `at`."""

    def __init__(self, device, *options):
        self.at = tempfile.mkdtemp(prefix="loop-", dir="/run")
        self.ended = command("mount", *options, device, self.at)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        command("umount", self.at)
        os.rmdir(self.at)


def content(number):
    return (b"%08d" % number) * (MIB // 8)


def is_clean(path, what):
    ended = command("e2fsck", "-fn", path)
    check(ended.returncode == 0, "e2fsck %s: %s" % (what, ended.said[-80:]))


def has_the_odd_ones(at):
    return all(
        outcome(read, "%s/f%d" % (at, number)) == content(number) for number in range(1, 60, 2)
    )


def image():
    needs("mkfs.ext4", "e2fsck", "losetup", "fstrim")
    needs_root()
    path = os.path.join(HERE, "disk.img")
    write(path)
    os.truncate(path, 300 * MIB)
    ended = command("mkfs.ext4", "-q", "-F", path)
    check(ended.returncode == 0, "mkfs: %s" % ended.said)
    with Mounted(path, "-o", "loop") as mounted:
        if mounted.ended.returncode and "loop" in mounted.ended.said:
            skip("no loop devices: %s" % mounted.ended.said)
        if not check(mounted.ended.returncode == 0, "mount -o loop: %s" % mounted.ended.said):
            return
        fill_and_trim(path, mounted.at)
    is_clean(elsewhere(path), "of it through the other")
    with Mounted(elsewhere(path), "-o", "loop,ro") as mounted:
        good = mounted.ended.returncode == 0 and has_the_odd_ones(mounted.at)
        check(good, "mounted again through the other: %s" % mounted.ended.said)
    by_direct_io(elsewhere(path))
    is_clean(path, "after direct IO")


def fill_and_trim(path, at):
    for number in range(60):
        write("%s/f%d" % (at, number), content(number))
    os.sync()
    used = os.stat(path).st_blocks // 2048
    for number in range(0, 60, 2):
        os.unlink("%s/f%d" % (at, number))
    os.sync()
    trimmed = command("fstrim", "-v", at)
    os.sync()
    after = os.stat(path).st_blocks // 2048
    good = trimmed.returncode == 0 and after < used - 20
    check(good, "fstrim gives back: %d MiB, then %d; %s" % (used, after, trimmed.said))
    check(has_the_odd_ones(at), "the rest is as it was")


def by_direct_io(path):
    device = command("losetup", "--direct-io=on", "-f", "--show", path)
    note("losetup --direct-io=on: %s" % device.said)
    if device.returncode:
        return
    with Mounted(device.stdout.strip()) as mounted:
        check(mounted.ended.returncode == 0, "mounted by direct IO: %s" % mounted.ended.said)
        write(mounted.at + "/direct", content(7))
        os.sync()
        check(read(mounted.at + "/direct") == content(7), "written and read by direct IO")
    command("losetup", "-d", device.stdout.strip())


if __name__ == "__main__":
    main(image)
