#!/usr/bin/env -S python3 -B
"""O_DIRECT reads and writes agree with cached and mapped ones, here and on the other machine, up
to an odd end.

Reports: gluster/glusterfs #946 (unaligned tail), hanwen/go-fuse #328, wfraser/fuse-mt #42,
axboe/fio #253. A buffered read beside a direct write that is on its way, synchronous or not, sees
old or new content, and new content after it.
"""

import ctypes
import fcntl
import mmap
import os
import struct

from kernel import libc
from trial import (
    HERE,
    TWO,
    both,
    check,
    elsewhere,
    error_of,
    fresh,
    main,
    outcome,
    read,
    skip,
    together,
)

MIB = 1 << 20
DATA = bytes(range(256)) * 4096


def aligned(content):
    """A buffer that begins at a page."""
    buffer = mmap.mmap(-1, len(content))
    buffer[:] = content
    return buffer


class Direct:
    """A file that is open with O_DIRECT here, and cached through the other mount."""

    def __init__(self, content=DATA[:65536]):
        self.path = os.path.join(HERE, fresh())
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT
        self.fd = os.open(self.path, flags, 0o644)
        self.write(content, 0)
        self.cached = os.open(elsewhere(self.path), os.O_RDWR)
        self.into = mmap.mmap(-1, 65536)

    def write(self, content, at):
        return os.pwritev(self.fd, [aligned(content)], at)

    def read(self, at=0):
        count = os.preadv(self.fd, [self.into], at)
        return self.into[:count]

    def close(self):
        os.close(self.fd)
        os.close(self.cached)


def beside_cached_ones():
    f = Direct()
    check(read(elsewhere(f.path)) == DATA[:65536], "written directly, read cached")
    os.pwrite(f.cached, b"cached", 4096)
    got = f.read()
    check(len(got) == 65536 and got[4096:4102] == b"cached", "written cached, read directly")
    f.write(DATA[4096:8192], 0)
    check(os.pread(f.cached, 4096, 0) == DATA[4096:8192], "written directly over what is cached")
    f.close()


def beside_mapped_ones():
    f = Direct()
    mapping = mmap.mmap(f.cached, 65536)
    mapping[0:10]
    f.write(DATA[4096:8192], 0)
    seen = os.pread(f.cached, 4096, 0) if TWO else mapping[:4096]
    check(seen == DATA[4096:8192], "a direct write is seen through a mapping")
    mapping[8192:8198] = b"mapped"
    mapping.flush()
    check(f.read()[8192:8198] == b"mapped", "mapped and flushed, read directly")
    if not TWO:
        mapping[12288:12293] = b"dirty"
        check(f.read()[12288:12293] == b"dirty", "dirty in a mapping, read directly")
    mapping.close()
    f.close()


def up_to_an_odd_end():
    f = Direct()
    # ext4 refuses a piece of a block, FUSE need not.
    e = error_of(f.write, b"o" * 32, 131072)
    check(e in (None, "EINVAL"), "32 bytes: %s" % e)
    fcntl.fcntl(f.fd, fcntl.F_SETFL, 0)
    os.pwrite(f.fd, b"t" * 32, 65536)
    good = os.fstat(f.fd).st_size >= 65568 and os.pread(f.fd, 32, 65536) == b"t" * 32
    check(good, "the tail without O_DIRECT")
    e = error_of(fcntl.fcntl, f.fd, fcntl.F_SETFL, os.O_DIRECT)
    check(e is None, "O_DIRECT by fcntl: %s" % e)
    os.ftruncate(f.fd, 65568)
    got = f.read(65536)
    check(got == b"t" * 32, "a direct read up to an odd end: %d bytes" % len(got))
    got = f.read(131072)
    check(got == b"", "and beyond it: %d bytes" % len(got))
    check(os.stat(elsewhere(f.path)).st_size == 65568, "the size through the other")
    f.close()


def mebibytes_at_once():
    f = Direct()
    written = f.write(DATA * 3, 0)
    check(written == 3 * MIB, "3 MiB from one buffer: %d" % written)
    check(read(elsewhere(f.path)) == DATA * 3, "and reads")
    f.close()


def sixteen_threads():
    f = Direct()

    def go(number):
        content = aligned(bytes([number]) * 4096)
        for i in range(30):
            os.pwritev(f.fd, [content], (number * 30 + i) * 4096)

    together(*(lambda n=n: go(n) for n in range(16)))
    wanted = b"".join(bytes([number]) * 4096 * 30 for number in range(16))
    check(read(elsewhere(f.path)) == wanted, "16 threads write beside each other")
    f.close()


def buffered_reads_beside_direct_writes():
    """A cached page must not stay old after the write that passed it by."""
    f = Direct()
    readers = [os.open(side, os.O_RDONLY) for side in both(f.path)]
    wrong = []
    for number in range(100):
        content = bytes([number]) * 65536
        together(
            lambda: f.write(content, 0), *(lambda fd=fd: os.pread(fd, 65536, 0) for fd in readers)
        )
        for fd in readers:
            if os.pread(fd, 65536, 0) != content:
                wrong.append(number)
    check(not wrong, "cached reads after direct writes: %s" % (wrong[:5] or "all new"))
    f.close()


class Aio:
    """Asynchronous direct writes, by io_submit(2)."""

    SETUP, DESTROY, GETEVENTS, SUBMIT = 206, 207, 208, 209

    def __init__(self):
        self.context = ctypes.c_ulong(0)
        if os.uname().machine != "x86_64" or libc.syscall(
            self.SETUP, 64, ctypes.byref(self.context)
        ):
            skip("no io_setup here")

    def write(self, fd, buffer, length, at):
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        block = struct.pack("QIiHhIQQqQII", 1, 0, 0, 1, 0, fd, address, length, at, 0, 0, 0)
        self.block = ctypes.create_string_buffer(block)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self.block))
        return libc.syscall(self.SUBMIT, self.context, ctypes.c_long(1), pointers)

    def wait(self):
        event = (ctypes.c_ulonglong * 4)()
        libc.syscall(self.GETEVENTS, self.context, ctypes.c_long(1), ctypes.c_long(1), event, None)
        return ctypes.c_longlong(event[2]).value


def buffered_reads_beside_asynchronous_writes():
    aio, f, wrong = Aio(), Direct(), []
    for number in range(100):
        content = aligned(bytes([number]) * 65536)
        if aio.write(f.fd, content, 65536, 0) != 1:
            skip("io_submit is refused here")
        os.pread(f.cached, 65536, 0)
        written = aio.wait()
        for side in both(f.path):
            if written != 65536 or read(side)[:65536] != bytes([number]) * 65536:
                wrong.append((number, written))
    check(not wrong, "cached reads after asynchronous writes: %s" % (wrong[:5] or "all new"))
    f.close()


def appended():
    f = Direct()
    fd = os.open(f.path, os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
    got = outcome(os.writev, fd, [aligned(DATA[:8192])])
    check(
        got == 8192 and read(elsewhere(f.path))[65536:] == DATA[:8192],
        "appended directly: %s" % got,
    )
    os.close(fd)
    f.close()


if __name__ == "__main__":
    main(
        beside_cached_ones,
        beside_mapped_ones,
        up_to_an_odd_end,
        mebibytes_at_once,
        sixteen_threads,
        buffered_reads_beside_direct_writes,
        buffered_reads_beside_asynchronous_writes,
        appended,
    )
