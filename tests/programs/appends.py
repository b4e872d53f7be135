#!/usr/bin/env -S python3 -B
"""Appends are whole and in order: in turns and at once, opened each time and kept open, in one
piece and in many.

Reports: juicedata/juicefs #6545 and #6594 (alternating >> on two mounts loses lines), seaweedfs
#4648, gluster #4605, reframe #3521 (NFS: zeros between lines).
"""

import mmap
import os

from trial import HERE, both, check, elsewhere, fresh, main, read, together, write

TURNS = int(os.environ.get("TURNS", 300))
MIB = 1 << 20


def log():
    path = os.path.join(HERE, fresh())
    write(path)
    return path


def appending(path):
    return os.open(path, os.O_WRONLY | os.O_APPEND)


def in_turns_opened_each_time():
    path = log()
    for number in range(TURNS):
        for side, letter in ((path, b"A"), (elsewhere(path), b"B")):
            write(side, b"%s%d\n" % (letter, number), "ab")
    wanted = b"".join(b"A%d\nB%d\n" % (n, n) for n in range(TURNS))
    for side in both(path):
        got = read(side)
        check(got == wanted, "in turns, opened each time: %d bytes of %d" % (len(got), len(wanted)))


def in_turns_kept_open():
    path = log()
    fds = [appending(side) for side in (path, elsewhere(path), path)]
    for number in range(TURNS):
        for fd in fds:
            os.write(fd, b"%d\n" % number)
    wanted = b"".join(b"%d\n" % n * 3 for n in range(TURNS))
    for side in both(path):
        check(read(side) == wanted, "in turns, kept open")
    for fd in fds:
        os.close(fd)


def at_once(what, records, each, letters=b"AB"):
    """Writers at once, each the same record again and again: all are whole in the end."""
    path = log()

    def go(side, letter):
        fd = appending(side)
        for _ in range(each):
            records(fd, letter)
        os.close(fd)

    sides = [path, elsewhere(path)] * 2
    letters = [bytes([letter]) for letter in letters]
    together(*(lambda s=s, l=l: go(s, l) for s, l in zip(sides, letters)))
    return path, letters


def whole(what, path, letters, length, each):
    wanted = [letter * length for letter in letters]
    for side in both(path):
        lines = read(side).split(b"\n")
        good = [line for line in lines[:-1] if line in wanted]
        count = each * len(letters)
        complete = len(good) == len(lines) - 1 == count and lines[-1] == b""
        check(complete, "%s: %d of %d records whole" % (what, len(good), count))
        fair = all(good.count(record) == each for record in wanted)
        check(fair, "%s: as many of each" % what)


def lines_of_all_lengths():
    path, each = log(), TURNS // 2

    def go(side, letter):
        fd = appending(side)
        for number in range(each):
            os.write(fd, b"%s %d %s\n" % (letter, number, b"." * (number % 300)))
        os.close(fd)

    sides = (path, path, elsewhere(path), elsewhere(path))
    together(*(lambda s=s, l=l: go(s, l) for s, l in zip(sides, (b"A", b"B", b"C", b"D"))))
    wanted = [
        b"%s %d %s" % (l, n, b"." * (n % 300))
        for l in (b"A", b"B", b"C", b"D")
        for n in range(each)
    ]
    for side in both(path):
        lines = read(side).split(b"\n")[:-1]
        check(
            sorted(lines) == sorted(wanted),
            "four at once: %d lines of %d" % (len(lines), len(wanted)),
        )
        for letter in (b"A", b"B", b"C", b"D"):
            own = [line for line in lines if line[:1] == letter]
            check(
                own == [w for w in wanted if w[:1] == letter],
                "those of %s are in order" % letter.decode(),
            )


def of_many_pieces():
    """writev as log libraries use it: more pieces than one request of FUSE has pages are one
    record, too."""
    for pieces, size, each in ((600, 20, 40), (257, 4096, 6), (1024, 1, 40), (3, 100000, 10)):

        def record(fd, letter):
            os.writev(fd, [letter * size] * (pieces - 1) + [b"\n"])

        what = "writev of %d pieces of %d bytes" % (pieces, size)
        path, letters = at_once(what, record, each)
        whole(what, path, letters, size * (pieces - 1), each)


def of_a_mebibyte_from_anywhere():
    """Just under 1 MiB from a buffer that does not begin at a page: 257 pages."""
    for length, offset in ((MIB - 100, 100), (MIB, 1), (MIB, 0)):

        def record(fd, letter):
            buffer = mmap.mmap(-1, 2 * MIB)
            buffer[offset : offset + length] = letter * (length - 1) + b"\n"
            with memoryview(buffer) as view, view[offset : offset + length] as piece:
                os.write(fd, piece)

        what = "%d bytes from offset %d of a page" % (length, offset)
        path, letters = at_once(what, record, 6)
        whole(what, path, letters, length - 1, 6)


def by_copies():
    """sendfile and copy_file_range to the end of a file that others append to."""
    source = os.path.join(HERE, fresh())
    write(source, b"c" * 999 + b"\n")
    fd = os.open(source, os.O_RDONLY)

    def record(out, letter):
        if letter == b"A":
            os.write(out, b"A" * 999 + b"\n")
        else:
            os.sendfile(out, fd, 0, 1000)

    try:
        path, _ = at_once("sendfile", record, 30)
    except OSError:
        # Linux refuses it for descriptors that append.
        check(True, "sendfile to O_APPEND is refused")
        return
    whole("sendfile", path, [b"A", b"c"], 999, 30)


def beside_one_that_truncates():
    """copytruncate of log rotation: each record is whole or gone, and no hole is left."""
    path = log()

    def go(side, letter):
        fd = appending(side)
        for _ in range(TURNS):
            os.write(fd, letter * 99 + b"\n")
        os.close(fd)

    def cut():
        for _ in range(20):
            os.truncate(elsewhere(path), 0)

    together(lambda: go(path, b"A"), lambda: go(elsewhere(path), b"B"), cut)
    for side in both(path):
        lines = read(side).split(b"\n")[:-1]
        good = all(line in (b"A" * 99, b"B" * 99) for line in lines)
        check(good, "beside truncations: %d records, all whole" % len(lines))


if __name__ == "__main__":
    main(
        in_turns_opened_each_time,
        in_turns_kept_open,
        lines_of_all_lengths,
        of_many_pieces,
        of_a_mebibyte_from_anywhere,
        by_copies,
        beside_one_that_truncates,
    )
