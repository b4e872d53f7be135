#!/usr/bin/env -S python3 -B
"""A file that is appended to through O_APPEND is read, mapped and written by others, all in their
place.

Reports: sabnzbd/mergerfs #1180, systemd-journald and log viewers on FUSE.
"""

import mmap
import os

from trial import HERE, check, command, elsewhere, fresh, main, read


class Log:
    def __init__(self, content=b"A" * 100):
        self.path = os.path.join(HERE, fresh())
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(self.fd, content)
        self.reader = os.open(self.path, os.O_RDONLY)

    def mapped(self, length):
        return mmap.mmap(self.reader, length, mmap.MAP_SHARED, mmap.PROT_READ)

    def there(self):
        return read(elsewhere(self.path))


def mapped_before_it_grows():
    log = Log()
    first = log.mapped(100)
    check(first[99] == ord("A"), "mapped")
    os.write(log.fd, b"B" * 100)
    second = log.mapped(200)
    check(second[150] == ord("B"), "what was appended is in the page that was mapped before")
    os.write(log.fd, b"C" * 5000)
    third = log.mapped(5200)
    check(third[:] == b"A" * 100 + b"B" * 100 + b"C" * 5000, "and over a page's end")
    check(first[:] == b"A" * 100, "and the first mapping is as it was")


def read_by_the_descriptor_that_appends():
    log = Log()
    os.write(log.fd, b"B" * 100)
    got = os.pread(log.fd, 10, 95), os.lseek(log.fd, 0, os.SEEK_CUR)
    check(got == (b"AAAAABBBBB", 200), "read, and its place is the end: %s" % (got,))


def written_by_a_mapping_meanwhile():
    log = Log(b"A" * 5200)
    writer = os.open(log.path, os.O_RDWR)
    mapping = mmap.mmap(writer, 5200)
    mapping[0:3] = b"map"
    os.write(log.fd, b"D" * 10)
    got = os.pread(log.fd, 3, 0), read(log.path)[:3]
    check(got == (b"map", b"map"), "not flushed, then appended: both are there: %s" % (got,))
    mapping.flush()
    there = log.there()
    good = len(there) == 5210 and there[-10:] == b"D" * 10 and there[:3] == b"map"
    check(good, "and after msync, through the other: %d bytes" % len(there))


def cut_and_appended():
    log = Log(b"A" * 5200)
    os.ftruncate(log.fd, 50)
    os.write(log.fd, b"E" * 10)
    check(log.there() == b"A" * 50 + b"E" * 10, "copytruncate: appended at the new end")
    os.truncate(elsewhere(log.path), 7)
    os.write(log.fd, b"F" * 3)
    check(log.there() == b"A" * 7 + b"F" * 3, "cut by the other: appended at the new end")


def appended_by_a_shell():
    path = os.path.join(HERE, "lines")
    line = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; done >>'%s'; echo to both >>'%s'"
    command("sh", "-c", line % (path, elsewhere(path)))
    got = read(path)
    wanted = b"".join(b"%d\n" % number for number in range(1, 11)) + b"to both\n"
    check(got == wanted, "a shell appends: %r" % got[-20:])


def pwrite_appends():
    log = Log()
    fd = os.open(log.path, os.O_WRONLY | os.O_APPEND)
    os.pwrite(fd, b"at the end", 0)
    check(log.there().endswith(b"at the end"), "pwrite with O_APPEND goes to the end, as on Linux")


def mapping_of_one_that_appends():
    log = Log()
    with mmap.mmap(log.fd, 50) as mapping:
        mapping[0:4] = b"rwap"
        mapping.flush()
    there = log.there()
    check(there == b"rwap" + b"A" * 96, "its mapping is written in its place: %r" % there[:8])


if __name__ == "__main__":
    main(
        mapped_before_it_grows,
        read_by_the_descriptor_that_appends,
        written_by_a_mapping_meanwhile,
        cut_and_appended,
        appended_by_a_shell,
        pwrite_appends,
        mapping_of_one_that_appends,
    )
