#!/usr/bin/env -S python3 -B
"""Times are kept as they are set: before 1970, after 2038, 2106 and 2262, of links and
directories, beside writers.

Reports: CurvineIO/curvine #1487, hanwen/go-fuse #58 (xfstests generic/258), nodejs/node #64597:
parts of a second before 1970, and a time that is set while a writer has the file open.
"""

import os

import kernel
from trial import HERE, both, check, command, elsewhere, error_of, fresh, main, needs, write

# The first and last second that ext4 can say, 1901 and 2446: a file system may clamp to them, and
# never wrap.
FIRST, LAST = -(1 << 31), (1 << 33) + (1 << 32) + (1 << 31) - 1
TIMES = [
    (0, 0),
    (-1, 0),
    (-1, 999999999),
    (-1, 1),
    (-2128988800, 5),
    (FIRST, 0),
    (2147483647, 999999999),
    (2147483648, 0),
    (4294967295, 1),
    (4294967296, 2),
    (9223372036, 854775807),
    (9223372037, 0),
    (LAST, 0),
]
BILLION = 10**9


def three_kinds():
    file, directory, link = (os.path.join(HERE, fresh()) for _ in range(3))
    write(file)
    os.mkdir(directory)
    os.symlink("f", link)
    return {"file": file, "directory": directory, "link": link}


def as_they_are_set():
    for kind, path in three_kinds().items():
        for seconds, nanoseconds in TIMES:
            e = error_of(kernel.set_times, path, seconds, nanoseconds, kind != "link")
            wanted = seconds * BILLION + nanoseconds
            stats = [os.lstat(side) for side in both(path)]
            good = all(stat.st_mtime_ns == wanted for stat in stats)
            good = good and stats[0].st_atime_ns == wanted
            what = "%s: %d.%09d: %s" % (kind, seconds, nanoseconds, e or stats[-1].st_mtime_ns)
            check(e is None and good, what)


def beyond_all():
    path = three_kinds()["file"]
    for seconds in (-62135596800, 253402300799, 1 << 40, 1 << 62, -(1 << 62)):
        e = error_of(kernel.set_times, path, seconds, 0)
        got = os.stat(path).st_mtime_ns // BILLION
        good = (
            got == seconds
            or got in (FIRST, LAST)
            or (abs(got) > 1 << 33 and (got > 0) == (seconds > 0))
        )
        check(e is None and good, "%d: %s, %d" % (seconds, e, got))


def beside_a_writer():
    path = three_kinds()["file"]
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"x")
    kernel.set_times(path, 5, 6)
    os.close(fd)
    got = os.stat(elsewhere(path)).st_mtime_ns
    check(got == 5 * BILLION + 6, "set by the path before the writer closes: %d" % got)
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"x" * 300000)
    kernel.set_times(elsewhere(path), 5, 7)
    os.fsync(fd)
    os.close(fd)
    got = os.stat(path).st_mtime_ns
    check(got == 5 * BILLION + 7, "set through the other before fsync and close: %d" % got)
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"y" * 5000)
    os.utime(fd, ns=(8, 9))
    os.close(fd)
    got = [os.stat(side).st_mtime_ns for side in both(path)]
    check(all(time == 9 for time in got), "set by the descriptor that writes: %s" % got)


def now_and_omit():
    path = three_kinds()["file"]
    utime_now, utime_omit = (1 << 30) - 1, (1 << 30) - 2
    kernel.set_times(path, 5, 6)
    kernel.set_times(path, 0, utime_omit)
    got = os.stat(elsewhere(path)).st_mtime_ns
    check(got == 5 * BILLION + 6, "UTIME_OMIT leaves them: %d" % got)
    kernel.set_times(elsewhere(path), 0, utime_now)
    check(os.stat(path).st_mtime > 1e9, "UTIME_NOW is now")
    e = error_of(kernel.set_times, path, 5, BILLION)
    check(e == "EINVAL", "a billion nanoseconds: %s" % e)


def through_tar():
    needs("tar")
    path = three_kinds()["file"]
    directory, name = os.path.split(path)
    os.utime(path, (-5, -5))
    archive, out = os.path.join(HERE, "t.tar"), os.path.join(HERE, "out")
    os.mkdir(out)
    command("tar", "-C", directory, "--format=posix", "-cf", archive, "--", "./" + name)
    ended = command("tar", "-C", out, "-xf", elsewhere(archive))
    got = os.stat(elsewhere(os.path.join(out, name))).st_mtime
    check(ended.returncode == 0 and got == -5, "tar of 1969: %s, %s" % (got, ended.said))


if __name__ == "__main__":
    main(as_they_are_set, beyond_all, beside_a_writer, now_and_omit, through_tar)
