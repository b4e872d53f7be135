#!/usr/bin/env -S python3 -B
"""File handles are opened while the kernel has the file in its cache and after it was forgotten.

Reports: nfs-ganesha/nfs-ganesha #980, Barre/ZeroFS #167 and #186, trapexit/mergerfs #1132:
name_to_handle_at and open_by_handle_at, for nfsd's exports, fanotify, overlayfs' index and CRIU.
"""

import os
import time

import kernel
from trial import HERE, TOP, check, elsewhere, error_of, fresh, main, make_directory, needs_root
from trial import outcome, skip, write


def forget():
    """Makes the kernel forget all that nobody uses."""
    os.sync()
    try:
        write("/proc/sys/vm/drop_caches", b"2")
    except OSError as e:
        skip("caches cannot be dropped here: %s" % e)


class Handle:
    def __init__(self, path):
        self.path, self.handle = path, kernel.handle_of(path)

    def open(self, flags=os.O_RDONLY):
        mount = os.open(TOP, os.O_RDONLY)
        try:
            return kernel.open_handle(mount, self.handle, flags)
        finally:
            os.close(mount)

    def read(self):
        fd = self.open()
        try:
            return os.read(fd, 100)
        finally:
            os.close(fd)


def file(content=b"by handle"):
    path = os.path.join(HERE, fresh())
    write(path, content)
    return Handle(path)


def while_it_is_cached():
    needs_root()
    handle = file()
    got = outcome(handle.read)
    check(got == b"by handle", "a file in the cache: %s" % got)
    fd = os.open(handle.path, os.O_RDWR)
    os.unlink(handle.path)
    e = error_of(handle.open)
    check(e is None, "unlinked and open: %s" % e)
    os.close(fd)


def after_it_was_forgotten():
    needs_root()
    kept, directory = file(), Handle(make_directory())
    name = fresh()
    write(os.path.join(directory.path, name), b"in")
    inside = Handle(os.path.join(directory.path, name))
    forget()
    got = outcome(kept.read)
    check(got == b"by handle", "a file: %s" % got)
    got = outcome(lambda: os.listdir(directory.open()))
    check(got == [name], "a directory: %a" % got)
    forget()
    got = outcome(inside.read)
    check(got == b"in", "a file below a directory: %s" % got)


def after_it_was_moved():
    needs_root()
    handle, new = file(), os.path.join(make_directory(), fresh())
    os.rename(elsewhere(handle.path), elsewhere(new))
    forget()
    got = outcome(handle.read)
    check(got == b"by handle", "a file that was moved: %s" % got)
    write(elsewhere(new), b"written since")
    got = outcome(handle.read)
    check(got == b"written since", "and written since: %s" % got)


def after_it_was_removed():
    needs_root()
    for side in (lambda path: path, elsewhere):
        handle = file()
        os.unlink(side(handle.path))
        # What was looked up a moment ago stays good for who comes back, also if another removes it.
        time.sleep(5 if side(handle.path) != handle.path else 0)
        # The kernel says what it has forgotten when it comes to that.
        e, until = None, time.monotonic() + 20
        while e != "ESTALE" and time.monotonic() < until:
            forget()
            e = outcome(handle.read)
            time.sleep(0.1)
        check(e == "ESTALE", "a file that is removed: %s" % e)
        # Another under its name is another file.
        write(handle.path, b"another")
        e = outcome(handle.read)
        check(e == "ESTALE", "and made anew by its name: %s" % e)


if __name__ == "__main__":
    main(while_it_is_cached, after_it_was_forgotten, after_it_was_moved, after_it_was_removed)
