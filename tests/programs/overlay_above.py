#!/usr/bin/env -S python3 -B
"""Overlayfs works with its directories on the mount: as upper and work directory, and as lower
one while others change.

Reports: rfjakob/gocryptfs #641, juicedata/juicefs #1989 and #2365, kata-containers/runtime #1888:
docker, podman, containerd and dev containers. An upper wants RENAME_WHITEOUT, trusted.*
attributes and file types in readdir. An overlay above a lower directory of the mount stays
usable, whatever happens beside it.
"""

import os
import shutil
import tempfile
import threading

import kernel
from trial import HERE, SECONDS, SIDES, check, command, elsewhere, error_of, fresh, main, needs_root
from trial import outcome, read, skip, write


class Overlay:
    def __init__(self, lower, upper=None, work=None):
        self.at = tempfile.mkdtemp(prefix="overlay-", dir="/run")
        options = "lowerdir=%s" % lower
        if upper:
            options += ",upperdir=%s,workdir=%s" % (upper, work)
        self.ended = command("mount", "-t", "overlay", "overlay", "-o", options, self.at)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        command("umount", "-l", self.at)
        os.rmdir(self.at)


def directories(*names):
    """Names that an option of mount(8) can say."""
    parent = tempfile.mkdtemp(prefix="layers-", dir=HERE)
    paths = [os.path.join(parent, name) for name in names]
    for path in paths:
        os.mkdir(path)
    return paths


def needs_overlayfs():
    needs_root()
    if "overlay" not in open("/proc/filesystems").read():
        command("modprobe", "overlay").returncode == 0 or skip("this kernel has no overlayfs")


def fill(lower):
    write(lower + "/a", b"a")
    os.mkdir(lower + "/d")
    write(lower + "/d/b", b"b")


def upper_on_the_mount():
    needs_overlayfs()
    lower, upper, work = directories("lower", "upper", "work")
    fill(lower)
    with Overlay(lower, upper, work) as overlay:
        if not check(overlay.ended.returncode == 0, "mounts: %s" % overlay.ended.said):
            return
        at = overlay.at
        e = error_of(os.rename, at + "/a", at + "/a2")
        check(e is None, "rename of a lower file, which wants a whiteout: %s" % e)
        e = error_of(os.unlink, at + "/d/b")
        check(e is None and not os.path.exists(at + "/d/b"), "unlink of a lower file: %s" % e)
        write(at + "/d/c", b"c")
        check(sorted(os.listdir(at)) == ["a2", "d"], "lists: %s" % sorted(os.listdir(at)))
        check(os.listdir(at + "/d") == ["c"], "lists below: %s" % os.listdir(at + "/d"))
        e = error_of(os.setxattr, at + "/a2", "user.x", b"y")
        check(e is None, "an attribute of a lower file: %s" % e)
        e = error_of(shutil.rmtree, at + "/d")
        check(e is None, "rm -r of a lower directory: %s" % e)
        os.mkdir(at + "/d")
        check(os.listdir(at + "/d") == [], "made anew it is empty (opaque)")
        name = fresh()
        write(os.path.join(at, name), b"w")
        check(name in os.listdir(at), "a wild name is listed")
    with Overlay(lower, upper, work) as overlay:
        names = set(os.listdir(overlay.at)) if overlay.ended.returncode == 0 else overlay.ended.said
        check(names == {"a2", "d", name}, "mounted again, the same is there: %a" % names)
    check(sorted(os.listdir(lower)) == ["a", "d"], "the lower directory is as it was")


def rename_with_whiteout():
    """Without overlayfs: RENAME_WHITEOUT leaves a character device 0:0 at the old name, at once."""
    needs_root()
    old, new = (os.path.join(HERE, fresh()) for _ in range(2))
    write(old, b"x")
    got = outcome(kernel.renameat2, old, new, kernel.WHITEOUT)
    if not check(got is None, "RENAME_WHITEOUT: %s" % got):
        return
    for side in (old, elsewhere(old)):
        stat = os.lstat(side)
        check(stat.st_mode & 0o170000 == 0o020000 and stat.st_rdev == 0, "a whiteout is left")
    check(read(elsewhere(new)) == b"x", "and the file is at its new name")
    write(old + "2" if len(old) < 250 else old[:-1] + "2", b"y")
    other = os.path.join(HERE, fresh())
    write(other, b"replaced")
    got = outcome(kernel.renameat2, new, other, kernel.WHITEOUT)
    check(got is None and read(other) == b"x", "and over a file: %s" % got)
    got = outcome(kernel.renameat2, other, new, kernel.WHITEOUT | kernel.NOREPLACE)
    check(got == "EEXIST", "with NOREPLACE, onto the whiteout: %s" % got)


def lower_on_the_mount_while_others_work():
    needs_overlayfs()
    lower, busy = directories("lower", "busy")
    fill(lower)
    os.makedirs(lower + "/deep/er")
    write(lower + "/deep/er/f", b"deep")
    stop = threading.Event()

    def churn(side, letter):
        at = os.path.join(side, os.path.relpath(busy, HERE))
        number = 0
        while not stop.is_set():
            path = os.path.join(at, "%s%d" % (letter, number % 30))
            write(path)
            os.rename(path, path + "r")
            os.unlink(path + "r")
            number += 1

    with Overlay(":".join([lower, busy])) as overlay:
        if not check(overlay.ended.returncode == 0, "mounts read-only: %s" % overlay.ended.said):
            return
        shown = [("a", b"a"), ("d/b", b"b"), ("deep/er/f", b"deep")]
        bad, looks = {}, 0
        threads = [
            threading.Thread(target=churn, args=(side, letter))
            for letter, side in zip("wxyz", SIDES * 2)
        ]
        for thread in threads:
            thread.start()
        from time import monotonic

        until = monotonic() + SECONDS
        while monotonic() < until:
            for name, content in shown:
                got = outcome(read, os.path.join(overlay.at, name))
                looks += 1
                if got != content:
                    bad[name] = got
        stop.set()
        for thread in threads:
            thread.join()
        check(not bad, "%d reads through the overlay: %s" % (looks, bad or "all as they should be"))


if __name__ == "__main__":
    main(upper_on_the_mount, rename_with_whiteout, lower_on_the_mount_while_others_work)
