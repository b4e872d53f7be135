#!/usr/bin/env -S python3 -B
"""While one replaces a name without pause, no call on the name by another fails, and none waits
for long.

The smallest form of openzfs/zfs #6197 (ESTALE), git's "no such ref": the name always exists.
Every call on a path that is two requests, a lookup and then the call on what was found, on the
machine that replaces and on the other; of files, directories that are exchanged, and symbolic
links. GAP=seconds between replacements.
"""

import ctypes
import os
import subprocess
import time

import kernel
from kernel import libc
from trial import ERRORS, HERE, SECONDS, Child, Floor, both, check, fresh, main, write

GAP = float(os.environ.get("GAP", 0))


def looped(until, calls):
    """Calls each in turn until then: how often each ended how, and the longest that one took."""

    def loop():
        counts, worst = {}, (0.0, "")
        while time.monotonic() < until:
            for what, call in calls.items():
                began, key = time.monotonic(), what
                try:
                    call()
                except OSError as e:
                    key = "%s %s" % (what, ERRORS[e.errno])
                worst = max(worst, (time.monotonic() - began, what))
                counts[key] = counts.get(key, 0) + 1
        return counts, worst

    return Child(loop)


def beside_replacements(kind, replace, calls_on, path):
    """Runs `replace` here in a loop, and `calls_on` of the path in a process on each mount."""
    # One that has begun shall not be alone because another is late.
    with Floor() as floor:
        until = time.monotonic() + SECONDS
        replacer = looped(until, {"replace": replace})
        lookers = [looped(until, calls_on(side)) for side in both(path) + [path]]
        replaced = replacer.result()
        looked = [looker.result() for looker in lookers]
    for ended in [replaced] + looked:
        if not isinstance(ended, tuple):
            check(False, "%s: a process ended so: %s" % (kind, ended))
            return
    total = {}
    for counts, _ in looked:
        for key, count in counts.items():
            total[key] = total.get(key, 0) + count
    failed = {key: count for key, count in total.items() if " " in key}
    failed |= {key: count for key, count in replaced[0].items() if " " in key}
    count, looks = replaced[0].get("replace", 0), sum(total.values())
    check(
        not failed,
        "%s: %d replacements, %d calls: %s" % (kind, count, looks, failed or "none failed"),
    )
    check(count > 0, "%s: was replaced" % kind)
    worst, what = max(worst for _, worst in looked)
    # A request that gave way once in its system call keeps a directory locked until the kernel is
    # told to drop all entries, after 3 s. Whoever starves waits for all of LOOP.
    bound = floor.bound(4)
    check(
        worst < bound,
        "%s: the longest call took %.2f s (%s) of %.2f s" % (kind, worst, what, bound),
    )


def new_name(path, number=0):
    return os.path.join(os.path.dirname(path), "new-%d-%d" % (number, os.getpid()))


def opened(path, flags):
    os.close(os.open(path, flags))


def executed(path):
    if subprocess.run([path], stdout=subprocess.DEVNULL).returncode:
        raise OSError(5, "run")


def statfs(path):
    os.statvfs(path)


def watched(path):
    inotify = kernel.inotify_init(0)
    try:
        kernel.watch(inotify, path, 0xFFF)
    finally:
        os.close(inotify)


def accessed(path):
    if libc.faccessat(-100, os.fsencode(path), 4, 0):
        raise OSError(ctypes.get_errno(), "access")


def linked(path):
    """ENOENT is right here: what was found may have no name any more, and link(2) gives it none
    again."""
    new = new_name(path, 1)
    try:
        os.link(path, new)
    except FileNotFoundError:
        return
    os.unlink(new)


def calls_on_files(path):
    return {
        "open": lambda: opened(path, os.O_RDONLY),
        "open-rw": lambda: opened(path, os.O_RDWR),
        "open-append": lambda: opened(path, os.O_WRONLY | os.O_APPEND),
        "open-creat": lambda: opened(path, os.O_WRONLY | os.O_CREAT),
        "open-path": lambda: opened(path, os.O_PATH),
        "read": lambda: open(path, "rb").read(),
        "stat": lambda: os.stat(path),
        "access": lambda: accessed(path),
        "chmod": lambda: os.chmod(path, 0o755),
        "chown": lambda: os.chown(path, 1, 1),
        "utimens": lambda: os.utime(path, (1, 2)),
        "setxattr": lambda: os.setxattr(path, "user.a", b"v"),
        "listxattr": lambda: os.listxattr(path),
        "statvfs": lambda: statfs(path),
        "link": lambda: linked(path),
        "inotify": lambda: watched(path),
        "handle": lambda: kernel.handle_of(path),
    }


def replace_file(path, content=b"#!/bin/sh\nexit 0\n"):
    new = new_name(path)

    def replace():
        write(new, content)
        os.chmod(new, 0o755)
        os.rename(new, path)
        time.sleep(GAP)

    replace()
    return replace


def file_that_is_replaced():
    path = os.path.join(HERE, fresh())
    replace = replace_file(path)
    beside_replacements("a file", replace, calls_on_files, path)


def file_that_is_replaced_and_cut():
    """open(O_TRUNC) and truncate(2) change what they find, which is not the replacement always."""
    path = os.path.join(HERE, fresh())
    replace = replace_file(path)
    calls = lambda path: {
        "truncate": lambda: os.truncate(path, 5),
        "open-trunc": lambda: opened(path, os.O_WRONLY | os.O_TRUNC),
    }
    beside_replacements("a file that is cut", replace, calls, path)


def program_that_is_replaced():
    """A script, which its shell opens again by its name; only replaced when it was closed by the
    writer."""
    path = os.path.join(HERE, "script.sh")
    replace = replace_file(path)
    beside_replacements("a program", replace, lambda path: {"exec": lambda: executed(path)}, path)


def calls_on_directories(path):
    inside = os.path.join(path, "in")
    return {
        "list": lambda: os.listdir(path),
        "stat": lambda: os.stat(path),
        "chdir": lambda: os.chdir(path),
        "chmod": lambda: os.chmod(path, 0o755),
        "utimens": lambda: os.utime(path, (1, 2)),
        "setxattr": lambda: os.setxattr(path, "user.a", b"v"),
        "statvfs": lambda: statfs(path),
        "open": lambda: opened(path, os.O_RDONLY | os.O_DIRECTORY),
        "stat-below": lambda: os.stat(inside),
        "open-below": lambda: opened(inside, os.O_RDWR),
        "chmod-below": lambda: os.chmod(inside, 0o644),
    }


def directory_that_is_exchanged():
    path, other = os.path.join(HERE, fresh()), os.path.join(HERE, fresh())
    for directory in (path, other):
        os.mkdir(directory)
        write(os.path.join(directory, "in"), b"in")

    def exchange():
        kernel.exchange(path, other)
        time.sleep(GAP)

    beside_replacements("a directory", exchange, calls_on_directories, path)


def parent_that_is_exchanged():
    """Paths of three parts, of which the first is exchanged."""
    path, other = os.path.join(HERE, fresh()), os.path.join(HERE, fresh())
    for directory in (path, other):
        os.makedirs(os.path.join(directory, "deep", "er"))
        write(os.path.join(directory, "deep", "er", "in"), b"in")

    def exchange():
        kernel.exchange(path, other)
        time.sleep(GAP)

    def calls(path):
        return calls_on_directories(os.path.join(path, "deep", "er"))

    beside_replacements("a directory above", exchange, calls, path)


def link_that_is_replaced():
    """ln -sf by rename, as of `current` or lib.so: link and target are always there."""
    path = os.path.join(HERE, fresh())
    targets = [os.path.basename(write_target()) for _ in range(2)]
    turn = [0]

    def replace():
        turn[0] += 1
        new = new_name(path)
        os.symlink(targets[turn[0] % 2], new)
        os.rename(new, path)
        time.sleep(GAP)

    replace()
    calls = lambda path: {
        "readlink": lambda: os.readlink(path),
        "open": lambda: opened(path, os.O_RDONLY),
        "stat": lambda: os.stat(path),
        "lstat": lambda: os.lstat(path),
        "lchown": lambda: os.chown(path, 1, 1, follow_symlinks=False),
        "lutimens": lambda: os.utime(path, (1, 2), follow_symlinks=False),
        "chmod": lambda: os.chmod(path, 0o644),
    }
    beside_replacements("a symbolic link", replace, calls, path)


def write_target():
    path = os.path.join(HERE, fresh())
    write(path, b"target")
    return path


if __name__ == "__main__":
    main(
        file_that_is_replaced,
        file_that_is_replaced_and_cut,
        program_that_is_replaced,
        directory_that_is_exchanged,
        parent_that_is_exchanged,
        link_that_is_replaced,
    )
