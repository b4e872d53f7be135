#!/usr/bin/env -S python3 -B
"""A listing has each entry that stays exactly once and comes to an end, however the directory
changes meanwhile.

Reports: tavianator/bfs #67 (unlink during readdir skips), seaweedfs/seaweedfs #1514,
klange/toaruos #336 (rm -r leaves some), kata-containers #13329 (getdents64 fails with ENOENT
while others work). An entry that is renamed while it is listed may come under its new name as
well, never twice under one, and a listing ends at what was there when it began.
"""

import ctypes
import errno
import os
import threading
import time

from kernel import libc
from trial import HERE, SECONDS, SIDES, TWO, check, command, elsewhere, error_of, fresh, main
from trial import make_directory, together, write

# More than one buffer of getdents holds, whatever the names.
MANY = 400 if TWO else 3000
# Where a listing of 500 that has no end is given up.
LIMIT = 1500


class Dirent(ctypes.Structure):
    _fields_ = [
        ("ino", ctypes.c_ulong),
        ("off", ctypes.c_long),
        ("reclen", ctypes.c_ushort),
        ("type", ctypes.c_ubyte),
        ("name", ctypes.c_char * 256),
    ]


libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = libc.readdir.argtypes = libc.closedir.argtypes = [ctypes.c_void_p]
libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


class Listing:
    """opendir, readdir, telldir and seekdir, as programs in C use them."""

    def __init__(self, path):
        self.handle = libc.opendir(os.fsencode(path))

    def next(self):
        """The next name, or None at the end; `.` and `..` are left out."""
        while True:
            ctypes.set_errno(0)
            entry = libc.readdir(self.handle)
            if not entry:
                number = ctypes.get_errno()
                check(number == 0, "readdir: " + errno.errorcode[number]) if number else None
                return None
            if entry.contents.name not in (b".", b".."):
                return os.fsdecode(entry.contents.name)

    def __iter__(self):
        return iter(self.next, None)

    def close(self):
        libc.closedir(self.handle)


def filled(count):
    """A directory of so many files: three wild names, and numbers."""
    path = make_directory()
    for name in [fresh() for _ in range(3)] + [str(number) for number in range(count - 3)]:
        write(os.path.join(path, name))
    return path


def unlink_of_each():
    for count in (3, 256, MANY):
        path, seen = filled(count), 0
        for name in Listing(path):
            os.unlink(os.path.join(elsewhere(path), name))
            seen += 1
        e = error_of(os.rmdir, path)
        check(
            seen == count and e is None, "unlink of each as listed: %d of %d, %s" % (seen, count, e)
        )


def rename_of_each(side_of, where):
    """The new names must not keep the listing from its end: at most each entry twice."""
    for count in (200, MANY):
        path, got, limit = filled(count), [], 4 * count
        for name in Listing(path):
            got.append(name)
            old = os.path.join(side_of(path), name)
            os.rename(old, os.path.join(side_of(path), "r-" + name[-100:]))
            if len(got) > limit:
                break
        what = "rename of each of %d as it is listed, %s: %d listed" % (count, where, len(got))
        check(len(got) <= 2 * count, what)
        check(len(got) == len(set(got)), what + ", none twice")


def rename_of_each_here():
    rename_of_each(lambda path: path, "here")


def rename_of_each_there():
    rename_of_each(elsewhere, "there")


def to_and_fro():
    """An entry that is renamed away and back is listed under a name that it had, once each."""
    path, got = filled(500), []
    for name in Listing(path):
        got.append(name)
        at = os.path.join(elsewhere(path), name)
        os.rename(at, at + "~") if len(os.fsencode(name)) < 255 else None
        os.rename(at + "~", at) if len(os.fsencode(name)) < 255 else None
        if len(got) > LIMIT:
            break
    wanted = set(os.listdir(path))
    check(len(got) == len(set(got)), "renamed to and fro: %d listed, none twice" % len(got))
    check(wanted <= set(got), "and all that stay are there: lacking %d" % len(wanted - set(got)))


def made_for_each():
    """A file, a link or a directory is made for each entry that is listed."""
    for what, make in (
        ("file", write),
        ("directory", os.mkdir),
        ("link", lambda new: os.link(source, new)),
    ):
        path, got = filled(300), []
        source = os.path.join(elsewhere(path), "7")
        for name in Listing(path):
            got.append(name)
            make(os.path.join(elsewhere(path), "new-%d" % len(got)))
            if len(got) > LIMIT:
                break
        old = [name for name in got if not name.startswith("new-")]
        check(
            len(old) == len(set(old)) == 300, "%s made for each: the old are %d" % (what, len(old))
        )
        check(len(got) <= 600 and len(got) == len(set(got)), "and it ends: %d listed" % len(got))


def moved_in_for_each():
    """An entry moves in from another directory, and one out, for each that is listed."""
    path, source, got = filled(300), filled(300), []
    for name in Listing(path):
        got.append(name)
        number = str(len(got) - 1)
        if os.path.exists(os.path.join(source, number)):
            os.rename(os.path.join(source, number), os.path.join(path, "in-" + number))
        if len(got) > LIMIT:
            break
    check(len(got) <= 600 and len(got) == len(set(got)), "moved in for each: %d listed" % len(got))


def renamed_and_made_meanwhile():
    path, got = filled(MANY), []
    before = set(os.listdir(path))
    for number, name in enumerate(Listing(path)):
        got.append(name)
        if number % 3 == 0:
            new = "renamed-" + name[:200]
            os.rename(os.path.join(elsewhere(path), name), os.path.join(elsewhere(path), new))
        if number % 5 == 0:
            write(os.path.join(elsewhere(path), "new%d" % number))
        if number > 4 * MANY:
            break
    listed = set(got)
    lacking = before - listed - {n[8:] for n in listed if n.startswith("renamed-")}
    check(len(got) == len(listed), "renamed and made meanwhile: %d listed, none twice" % len(got))
    check(not lacking, "and all that stayed: lacking %a" % sorted(lacking)[:3])


def seekdir_holds():
    path = filled(500)
    listing, places = Listing(path), []
    while True:
        at = libc.telldir(listing.handle)
        name = listing.next()
        if name is None:
            break
        places.append((at, name))
    for _, name in places[50:60]:
        os.unlink(os.path.join(elsewhere(path), name))
    for number in (60, 61, 300, 10, 499):
        libc.seekdir(listing.handle, places[number][0])
        got = listing.next()
        wanted = places[number][1]
        check(got == wanted, "seekdir to %d after names before it went: %a" % (number, got))
    libc.rewinddir(listing.handle)
    count = sum(1 for _ in listing)
    check(count == 490, "rewinddir shows what is there now: %d" % count)
    listing.close()


def rewinddir_shows_what_is_new():
    path = filled(50)
    listing = Listing(path)
    check(sum(1 for _ in listing) == 50, "50 at first")
    name = fresh()
    write(os.path.join(elsewhere(path), name))
    libc.rewinddir(listing.handle)
    check(name in list(listing), "rewinddir: the other's new one is listed")
    listing.close()


def beside_two_that_churn():
    path = filled(400)
    stays, stop, bad = set(os.listdir(path)), threading.Event(), []

    def churn(side, letter):
        number = 0
        while not stop.is_set():
            at = os.path.join(side, "churn-%s-%d" % (letter, number % 50))
            try:
                write(at)
                os.rename(at, at + "r")
                os.unlink(at + "r")
            except OSError as e:
                bad.append(repr(e))
            number += 1

    sides = (path, elsewhere(path))
    threads = [threading.Thread(target=churn, args=(s, l)) for s, l in zip(sides, "xy")]
    for thread in threads:
        thread.start()
    lists, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        for side in sides:
            try:
                names = os.listdir(side)
            except OSError as e:
                bad.append("listing: %r" % e)
                continue
            lists += 1
            if len(stays - set(names)) or len(set(names)) != len(names):
                bad.append("%d, %d of them different" % (len(names), len(set(names))))
    stop.set()
    for thread in threads:
        thread.join()
    check(not bad and lists > 3, "%d listings beside two that churn: %s" % (lists, bad[:3]))
    ended = command("rm", "-rf", elsewhere(path))
    check(ended.returncode == 0, "rm -rf: %s" % ended.said)


def removed_by_two_at_once():
    """rm -rf of one tree by both: nothing is left, and whoever fails fails with a lost race."""
    path = filled(500)
    ended = []
    together(*(lambda s=s: ended.append(command("rm", "-rf", s)) for s in (path, elsewhere(path))))
    left = [side for side in SIDES if os.path.exists(side + path[len(HERE) :])]
    said = [e.said for e in ended if "No such file" not in e.said and "not empty" not in e.said]
    check(not left and not any(said), "rm -rf by two: %s %s" % (left, said))


if __name__ == "__main__":
    main(
        unlink_of_each,
        rename_of_each_here,
        rename_of_each_there,
        to_and_fro,
        made_for_each,
        moved_in_for_each,
        renamed_and_made_meanwhile,
        seekdir_holds,
        rewinddir_shows_what_is_new,
        beside_two_that_churn,
        removed_by_two_at_once,
    )
