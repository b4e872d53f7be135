#!/usr/bin/env -S python3 -B
"""Content that a running program has written through a mapping is there for whoever copies the
file or asks about it.

Reports: docker/sbx-releases #526 (virtiofs: cp writes zeros), openzfs/zfs #255: cp, tar -S, rsync
-S and qemu-img copy by SEEK_DATA, and what is dirty in the kernel must be data for them. Size,
blocks and times that are decided on content have the same question. A trap: any close of the
file, in a child that execs as well, flushes the mapping on FUSE, so commands are run by a shell
that was started before the file was opened, as in life.
"""

import mmap
import os
import shlex
import subprocess

from trial import HERE, TWO, both, check, elsewhere, fresh, main, needs, outcome, read, write

MIB, AT, TEXT = 1 << 20, 512 << 10, b"important"
shell = None


def run(*arguments):
    """Runs a command in the shell that has nothing of ours open; its status."""
    shell.stdin.write(shlex.join(arguments) + " </dev/null >/dev/null 2>&1; echo $?\n")
    shell.stdin.flush()
    return shell.stdout.readline().strip()


class Mapped:
    """A sparse file of 1 MiB, mapped and written in the middle, neither synced nor closed."""

    def __init__(self, size=MIB):
        self.path = os.path.join(HERE, fresh())
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        self.map[AT : AT + len(TEXT)] = TEXT

    def end(self):
        self.map.flush()
        check(read(self.path)[AT:][: len(TEXT)] == TEXT, "it is there in the end")
        self.map.close()
        os.close(self.fd)


def has_text(path, how):
    content = read(path)
    good = len(content) == MIB and content[AT:][: len(TEXT)] == TEXT
    check(good, "%s copies it: %d bytes, %r" % (how, len(content), content[AT:][: len(TEXT)]))


def start_shell():
    global shell
    shell = subprocess.Popen(
        ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="surrogateescape"
    )


def seek_data():
    m = Mapped()
    at = outcome(os.lseek, m.fd, 0, os.SEEK_DATA)
    check(isinstance(at, int) and at <= AT, "SEEK_DATA finds it: %s" % at)
    m.end()


def seek_hole_from_its_middle():
    m = Mapped()
    at = outcome(os.lseek, m.fd, AT + 4, os.SEEK_HOLE)
    check(isinstance(at, int) and at >= AT + len(TEXT), "SEEK_HOLE in it: %s" % at)
    at = outcome(os.lseek, m.fd, AT + 4, os.SEEK_DATA)
    check(at == AT + 4, "SEEK_DATA in the middle of it: %s" % at)
    m.end()


def seek_hole_in_the_middle_of_a_hole():
    m = Mapped()
    at = outcome(os.lseek, m.fd, 70000, os.SEEK_HOLE)
    check(at == 70000, "SEEK_HOLE in the middle of a hole stays there: %s" % at)
    m.end()


def seek_data_through_another_descriptor():
    m = Mapped()
    other = os.open(m.path, os.O_RDONLY)
    at = outcome(os.lseek, other, 0, os.SEEK_DATA)
    check(isinstance(at, int) and at <= AT, "SEEK_DATA through another descriptor: %s" % at)
    os.close(other)
    m.end()


def seek_data_on_the_other_mount():
    m = Mapped()
    other = os.open(elsewhere(m.path), os.O_RDONLY)
    m.map.flush()
    at = outcome(os.lseek, other, 0, os.SEEK_DATA)
    check(isinstance(at, int) and at <= AT, "flushed: SEEK_DATA through the other: %s" % at)
    os.close(other)
    m.end()


def cp_copies_it():
    for how in (["cp"], ["cp", "--sparse=always"], ["cp", "--reflink=never"], ["cp", "-a"]):
        m, copy = Mapped(), os.path.join(HERE, fresh())
        status = run(*how, "--", m.path, copy)
        check(status == "0", "%s ends with 0: %s" % (" ".join(how), status))
        has_text(copy, " ".join(how))
        m.end()


def tar_packs_it():
    needs("tar")
    m = Mapped()
    archive, out = os.path.join(HERE, "archive.tar"), os.path.join(HERE, "out")
    os.mkdir(out)
    directory, name = os.path.split(m.path)
    run("tar", "-C", directory, "-Scf", archive, "--", "./" + name)
    run("tar", "-C", out, "-xf", archive)
    has_text(os.path.join(out, name), "tar -S")
    m.end()


def copy_file_range_copies_it():
    m, copy = Mapped(), os.path.join(HERE, fresh())
    out, done = os.open(copy, os.O_RDWR | os.O_CREAT), 0
    while done < MIB:
        copied = os.copy_file_range(m.fd, out, MIB - done, done, done)
        if copied == 0:
            break
        done += copied
    os.close(out)
    has_text(copy, "copy_file_range")
    m.end()


def sendfile_sends_it():
    m, copy = Mapped(), os.path.join(HERE, fresh())
    out, done = os.open(copy, os.O_RDWR | os.O_CREAT), 0
    while done < MIB:
        done += os.sendfile(out, m.fd, done, MIB - done) or MIB
    os.close(out)
    has_text(copy, "sendfile")
    m.end()


def copied_over_while_dirty():
    """The target of a copy by range is what is mapped: the copy is newer than what was dirty
    before it."""
    m = Mapped()
    source = os.open(os.path.join(HERE, fresh()), os.O_RDWR | os.O_CREAT)
    os.write(source, b"s" * 4096)
    os.copy_file_range(source, m.fd, 4096, 0, AT + 4096)
    check(m.map[AT + 4096 : AT + 8192] == b"s" * 4096, "the mapping shows what was copied")
    check(m.map[AT : AT + len(TEXT)] == TEXT, "and what it had before beside it")
    check(os.pread(m.fd, 4096, AT + 4096) == b"s" * 4096, "and so does read")
    os.close(source)
    m.end()


def punched_while_dirty():
    from kernel import KEEP_SIZE, PUNCH_HOLE, fallocate

    m = Mapped()
    fallocate(m.fd, PUNCH_HOLE | KEEP_SIZE, AT, 4096)
    check(m.map[AT : AT + len(TEXT)] == bytes(len(TEXT)), "punched: the mapping shows zeros")
    m.map[AT : AT + len(TEXT)] = TEXT
    m.end()


def truncated_while_dirty():
    m = Mapped()
    os.ftruncate(m.fd, AT + 4)
    check(os.pread(m.fd, 100, AT) == TEXT[:4], "cut in the middle of it: the rest is there")
    os.ftruncate(m.fd, MIB)
    check(os.pread(m.fd, 9, AT) == TEXT[:4] + bytes(5), "and zeros after it was made longer")
    m.map[AT : AT + len(TEXT)] = TEXT
    m.end()


def times_set_while_dirty():
    """Times that are set while a mapping is dirty stay, though content is flushed later."""
    m = Mapped()
    os.utime(m.path, ns=(10**18, 10**18 + 5))
    status = run("cp", "-a", "--", m.path, m.path[:-1] + "~" if len(m.path) > 250 else m.path + "~")
    now = os.stat(m.path).st_mtime_ns
    check(status == "0" and now == 10**18 + 5, "mtime that was set, after a copy: %d" % now)
    os.close(m.fd)
    now = os.stat(m.path).st_mtime_ns
    check(now == 10**18 + 5, "after close: %d" % now)
    for path in both(m.path):
        check(os.stat(path).st_mtime_ns == now, "and the same through each mount")
    m.map.close()


def size_and_blocks_when_flushed():
    m = Mapped()
    os.fsync(m.fd)
    stat = os.stat(elsewhere(m.path) if TWO else m.path)
    check(
        0 < stat.st_blocks <= 2048,
        "synced: 1 MiB with one page occupies %d blocks" % stat.st_blocks,
    )
    m.end()


def several_pieces():
    """Islands of dirty pages: each is data, and between them are holes or zeros."""
    path = os.path.join(HERE, fresh())
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 16 * MIB)
    mapping = mmap.mmap(fd, 16 * MIB)
    places = [n * MIB + n * 4096 for n in range(16)]
    for at in places:
        mapping[at : at + len(TEXT)] = TEXT
    for at in places:
        found = outcome(os.lseek, fd, at - at % 4096, os.SEEK_DATA)
        check(found == at - at % 4096, "island at %d is data: %s" % (at, found))
    copy = os.path.join(HERE, "islands")
    run("cp", "--", path, copy)
    content = read(copy)
    lacking = [at for at in places if content[at : at + len(TEXT)] != TEXT]
    check(not lacking, "cp copies all islands; lacking: %s" % lacking)
    mapping.close()
    os.close(fd)


def written_and_mapped():
    """Writes and mappings of one file: each sees the other, and a copy sees both."""
    m, copy = Mapped(), os.path.join(HERE, fresh())
    os.pwrite(m.fd, b"written", 100)
    check(m.map[100:107] == b"written", "the mapping shows what was written")
    run("cp", "--", m.path, copy)
    check(read(copy)[100:107] == b"written", "cp copies what was written")
    has_text(copy, "cp")
    write(copy, b"")
    m.end()


if __name__ == "__main__":
    start_shell()
    main(
        seek_data,
        seek_hole_from_its_middle,
        seek_hole_in_the_middle_of_a_hole,
        seek_data_through_another_descriptor,
        seek_data_on_the_other_mount,
        cp_copies_it,
        tar_packs_it,
        copy_file_range_copies_it,
        sendfile_sends_it,
        copied_over_while_dirty,
        punched_while_dirty,
        truncated_while_dirty,
        times_set_while_dirty,
        size_and_blocks_when_flushed,
        several_pieces,
        written_and_mapped,
    )
