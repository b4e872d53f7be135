#!/usr/bin/env -S python3 -B
"""The time of the last access moves as relatime says, for the machine that reads and for the one
that looks.

mutt, tmpwatch and backups go by it: a file that was written after it was last read is read now,
and that is to be seen, also where another machine has written it; one that opens it with
O_NOATIME leaves no trace.
"""

import os
import time

from trial import HERE, TOP, TWO, check, elsewhere, fresh, main, read, skip, write


def needs_access_times():
    options = ""
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        if (TOP + "/").startswith(fields[4].rstrip("/") + "/"):
            options = fields[5]
    if "noatime" in options.split(","):
        skip("mounted without access times")


def written(how=lambda path: path):
    path = os.path.join(HERE, fresh())
    write(path, b"old")
    os.utime(path, (1000, 1000))
    time.sleep(0.02)
    write(how(path), b"new", "wb")
    os.utime(how(path), (1000, 2000))
    return path


def moves_when_read():
    needs_access_times()
    for where, how in (("here", lambda path: path), ("through the other", elsewhere)):
        path = written(how)
        check(os.stat(path).st_atime == 1000, "written %s: it is as it was set" % where)
        read(path)
        got = os.stat(path).st_atime
        check(got > 1e9, "written %s, read here: %s" % (where, got))
        if how(path) != path:
            # Who holds the attributes is not told of an access, and goes by what it knows.
            continue
        # So may the other: it may have been given the attributes, ahead of a walk.
        os.chmod(path, 0o640)
        other = os.stat(elsewhere(path)).st_atime
        check(other == got, "and it is seen through the other: %s" % other)


def moves_when_the_other_reads():
    needs_access_times()
    path = written()
    os.stat(elsewhere(path))
    read(elsewhere(path))
    got = os.stat(elsewhere(path)).st_atime
    check(got > 1e9, "written here, read through the other: %s" % got)
    check(os.stat(elsewhere(path)).st_mtime == 2000, "and mtime is as it was")


def not_by_o_noatime():
    path = written()
    fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
    os.read(fd, 10)
    os.close(fd)
    got = os.stat(path).st_atime
    check(got == 1000, "read with O_NOATIME: %s" % got)
    if TWO:
        fd = os.open(elsewhere(path), os.O_RDONLY | os.O_NOATIME)
        os.read(fd, 10)
        os.close(fd)
        got = os.stat(elsewhere(path)).st_atime
        check(got == 1000, "read with O_NOATIME through the other: %s" % got)


def of_directories():
    needs_access_times()
    path = os.path.join(HERE, fresh())
    os.mkdir(path)
    write(os.path.join(path, fresh()))
    os.utime(path, (1000, 2000))
    os.listdir(path)
    got = os.stat(path).st_atime
    check(got > 1e9, "a directory that was listed: %s" % got)


if __name__ == "__main__":
    main(moves_when_read, moves_when_the_other_reads, not_by_o_noatime, of_directories)
