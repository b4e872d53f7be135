#!/usr/bin/env -S python3 -B
"""All that stat shows of files that nobody touches stays, while they are flushed, read, and
looked at by others.

Reports: gluster/glusterfs #987, Azure/azure-storage-fuse #854, openzfs/zfs #764, alibuild #532:
"tar: file changed as we read it".
"""

import mmap
import os
import time

from trial import (
    HERE,
    SECONDS,
    TOP2,
    TWO,
    both,
    check,
    command,
    elsewhere,
    fresh,
    main,
    needs,
    read,
    write,
)

SIZES = [0, 1, 4096, 5000, 100000, 3000000]


def look(path):
    stat = os.lstat(path)
    return (
        stat.st_mode,
        stat.st_ino,
        stat.st_nlink,
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
    )


def write_mapped(path, size):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as mapping:
        mapping[:] = b"b" * size
    os.close(fd)


def make_files():
    files = []
    for size in SIZES:
        files.append(os.path.join(HERE, fresh()))
        write(files[-1], b"a" * size)
        if size:
            files.append(os.path.join(HERE, fresh()))
            write_mapped(files[-1], size)
    directory = os.path.join(HERE, fresh())
    os.mkdir(directory)
    os.symlink("x", os.path.join(directory, fresh()))
    return files, directory


def stat_stays():
    files, directory = make_files()
    for path in files:
        stat = os.lstat(path)
        if stat.st_size and not stat.st_blocks:
            check(False, "%d bytes in 0 blocks: a hole, for tar -S" % stat.st_size)
    before = {path: look(path) for path in files + [directory]}
    changes, until = {}, time.monotonic() + SECONDS * 1.6
    while time.monotonic() < until:
        for path in files:
            read(path)[:100]
        for path, was in before.items():
            for side in both(path):
                now = look(side)
                if now != was:
                    changes[side] = "%a was %s, is %s" % (os.path.basename(side), was, now)
        time.sleep(0.25)
    for change in changes.values():
        check(False, change)
    check(True, "%d files looked at for %.0f s" % (len(before), SECONDS * 1.6))


def tar_sees_no_change():
    needs("tar")
    growing = os.path.join(HERE, fresh())
    name = os.path.basename(HERE)
    for number in range(5):
        write(growing, b"more" * 1000, "ab")
        write(os.path.join(HERE, fresh()), b"x")
        # Into /dev/null tar reads nothing, through a pipe all.
        for shell in ("tar -C %s -cf /dev/null %s", "tar -C %s -cf - %s >/dev/null"):
            ended = command("sh", "-c", shell.replace("%s", "'%s'") % (TOP2, name))
            quiet = ended.returncode == 0 and not ended.stderr
            check(quiet, "tar right after changes, %d: %s" % (number, ended.said))


def reading_changes_no_times():
    """Whoever reads a file on one mount changes neither mtime nor ctime for the other."""
    path = os.path.join(HERE, fresh())
    write(path, b"r" * 70000)
    was = look(path)
    for side in both(path) * 3:
        read(side)
        check(look(elsewhere(side)) == was, "read through %s" % ("the other" if TWO else "one"))


if __name__ == "__main__":
    main(stat_stays, tar_sees_no_change, reading_changes_no_times)
