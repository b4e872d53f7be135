#!/usr/bin/env -S python3 -B
"""Files with holes, up to the largest: SEEK_DATA and SEEK_HOLE, copies that stay sparse, zeros
that are punched.

Reports: macfuse #1121, google/fuse-archive #40 and #41, mar-file-system/marfs #122, s3fs #375,
goofys #471.
"""

import os
import resource
import shlex
import signal
import time

import kernel
from trial import (
    HERE,
    Child,
    Floor,
    check,
    command,
    elsewhere,
    error_of,
    fresh,
    main,
    note,
    scratch,
)

MIB, APART, ISLANDS, PIECE = 1 << 20, 10 << 20, 50, 5000


def file():
    path = os.path.join(HERE, fresh())
    return path, os.open(path, os.O_RDWR | os.O_CREAT)


def data_of(fd):
    """Where SEEK_DATA and SEEK_HOLE say that there is content."""
    found, at = [], 0
    while True:
        e = error_of(os.lseek, fd, at, os.SEEK_DATA)
        if e:
            check(e == "ENXIO", "no more data: %s" % e)
            return found
        start = os.lseek(fd, at, os.SEEK_DATA)
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append((start, at))


def up_to_16_tebibytes():
    path, fd = file()
    for size in (1 << 40, (1 << 44) - 4096):
        os.ftruncate(fd, size)
        os.pwrite(fd, b"end", size - 3)
        got = os.fstat(fd).st_size, os.pread(fd, 10, size - 3), os.pread(fd, 4, size // 2)
        check(got == (size, b"end", bytes(4)), "size %d: %s" % (size, got))
        with Floor() as floor:
            began = time.monotonic()
            found = data_of(fd)
            took = time.monotonic() - began
        good = len(found) == 1 and size - MIB <= found[0][0] <= size - 3 and found[0][1] == size
        check(good and took < floor.bound(2), "its data: %s, after %.2f s" % (found, took))
        check(os.stat(elsewhere(path)).st_size == size, "and its size through the other")
        os.ftruncate(fd, 0)


def the_largest():
    _, fd = file()
    sizes = ((1 << 44) + 1, 1 << 50, 1 << 60, (1 << 63) - 1)
    note(
        "larger sizes that are taken: %s" % [s for s in sizes if not error_of(os.ftruncate, fd, s)]
    )
    os.ftruncate(fd, 0)
    e = error_of(os.ftruncate, fd, (1 << 63) - 1)
    check(e in (None, "EFBIG", "EINVAL"), "2^63 - 1 bytes: %s" % e)
    os.ftruncate(fd, 0)
    e = error_of(os.pwrite, fd, b"x", (1 << 63) - 1)
    check(e in ("EFBIG", "EINVAL"), "a write at the very end: %s" % e)
    e = error_of(kernel.fallocate, fd, 0, (1 << 63) - 4096, 8192)
    check(e in ("EFBIG", "EINVAL"), "an allocation beyond it: %s" % e)


def with_islands():
    path, fd = file()
    for number in range(ISLANDS):
        os.pwrite(fd, bytes([65 + number % 26]) * PIECE, number * APART)
    os.ftruncate(fd, 600 * MIB)
    return path, fd


def pieces(path):
    fd = os.open(path, os.O_RDONLY)
    got = [os.pread(fd, PIECE, number * APART) for number in range(ISLANDS)]
    hole = os.pread(fd, 4096, APART // 2)
    os.close(fd)
    return got, hole


def islands():
    path, fd = with_islands()
    for at in (path, elsewhere(path)):
        reader = os.open(at, os.O_RDONLY)
        found = data_of(reader)
        right = [
            start <= number * APART and end >= number * APART + PIECE and end - start <= MIB
            for number, (start, end) in enumerate(found)
        ]
        check(len(found) == ISLANDS and all(right), "%d islands of %d" % (sum(right), ISLANDS))
        hole = os.lseek(reader, APART // 2, os.SEEK_HOLE)
        check(hole == APART // 2, "SEEK_HOLE in the middle of a hole: %d" % hole)
        os.close(reader)
    os.close(fd)


def copies_stay_sparse():
    path, fd = with_islands()
    os.close(fd)
    wanted = pieces(path)
    directory, name = os.path.split(path)
    copy, out, archive = (
        os.path.join(HERE, "copy"),
        os.path.join(HERE, "out"),
        scratch("sparse.tar"),
    )
    os.mkdir(out)
    quote = shlex.quote
    for how, line in (
        ("cp", "cp -- %s %s" % (quote(path), quote(copy))),
        ("cp --sparse=always", "cp --sparse=always -- %s %s" % (quote(path), quote(copy))),
        (
            "tar -S",
            "tar -C %s -Scf %s -- ./%s && tar -C %s -xf %s && mv -- %s %s"
            % (quote(directory), archive, quote(name), out, archive, quote(out + "/" + name), copy),
        ),
        (
            "dd conv=sparse",
            "dd if=%s of=%s bs=64k conv=sparse status=none" % (quote(path), quote(copy)),
        ),
    ):
        ended = command("sh", "-c", line)
        size, blocks = os.stat(copy).st_size, os.stat(copy).st_blocks
        same = size == 600 * MIB and pieces(elsewhere(copy)) == wanted
        check(ended.returncode == 0 and same, "%s: %s" % (how, ended.said or "the same"))
        check(blocks * 512 < 60 * MIB, "%s stays sparse: %d KiB" % (how, blocks // 2))
        os.unlink(copy)


def punched():
    path, fd = with_islands()
    kernel.fallocate(fd, kernel.PUNCH_HOLE | kernel.KEEP_SIZE, APART + 100, 1000)
    got = os.pread(fd, PIECE, APART)
    piece = b"B" * PIECE
    check(
        got == piece[:100] + bytes(1000) + piece[1100:],
        "punched within a page: zeros, and the rest",
    )
    kernel.fallocate(fd, kernel.PUNCH_HOLE | kernel.KEEP_SIZE, 0, 600 * MIB)
    blocks = os.fstat(fd).st_blocks
    good = blocks == 0 and os.pread(fd, PIECE, 0) == bytes(PIECE)
    check(good, "all punched: %d blocks" % blocks)
    check(os.stat(elsewhere(path)).st_size == 600 * MIB, "and the size is as it was")
    check(data_of(fd) == [], "and no data is left")


def limited():
    """ulimit -f: what goes within the limit is written, and no more."""
    path = os.path.join(HERE, fresh())

    def within():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        fd = os.open(path, os.O_CREAT | os.O_WRONLY)
        return os.write(fd, b"x" * 5000), error_of(os.write, fd, b"y"), os.fstat(fd).st_size

    got = Child(within).result()
    check(got == (1000, "EFBIG", 1000), "ulimit -f: %s" % (got,))


if __name__ == "__main__":
    main(up_to_16_tebibytes, the_largest, islands, copies_stay_sparse, punched, limited)
