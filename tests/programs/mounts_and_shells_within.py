#!/usr/bin/env -S python3 -B
"""Whatever hangs on a directory of the mount is left alone by what others do elsewhere.

Reports: virtio-win/kvm-guest-drivers-windows #1431 (bind mounts within a shared directory),
volumes of docker and podman, sshfs and gocryptfs mounted somewhere in a network home. Mounts on
directories and on files, bind mounts out of the mount, working directories, roots, listening
sockets, open descriptors and mappings, while both machines make, rename and remove names in
another directory, and many names anew.
"""

import mmap
import os
import socket
import subprocess
import tempfile
import threading
import time

from trial import HERE, SECONDS, SIDES, TWO, check, command, elsewhere, error_of, fresh, main
from trial import needs_root, note, outcome, read, write


class Shell:
    """A shell that stands in a directory."""

    def __init__(self, directory):
        self.process = subprocess.Popen(
            ["sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            cwd=directory,
        )

    def says(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def is_mounted(path):
    for line in open("/proc/self/mountinfo", errors="surrogateescape"):
        at = line.split()[4]
        for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            at = at.replace(octal, character)
        if at == path:
            return True
    return False


class Kept:
    """All that hangs on the directories of `keep`, and how each is looked at."""

    def __init__(self):
        self.keep, self.undo = os.path.join(HERE, "keep"), []
        os.mkdir(self.keep)
        self.looks = {}

    def __enter__(self):
        try:
            self.mounts()
            self.processes()
            self.descriptors()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for undo in reversed(self.undo):
            undo()
        command("rm", "-rf", "--one-file-system", self.keep)

    def path(self, name):
        return os.path.join(self.keep, name)

    def mount(self, *arguments):
        ended = command("mount", *arguments)
        check(ended.returncode == 0, "mounts %s: %s" % (arguments[0], ended.said))
        self.undo.append(lambda: command("umount", "-l", arguments[-1]))

    def mounts(self):
        point, source = self.path("mount point"), self.path("source")
        bound, file, elsewhere_ = (
            self.path("bound"),
            self.path("file"),
            tempfile.mkdtemp(dir="/run"),
        )
        wild = self.path(fresh(100).replace("\n", "").replace("\\", "").strip() + "M")
        for directory in (point, source, bound, wild):
            os.mkdir(directory)
        write(os.path.join(source, "f"), b"bound")
        write(file)
        self.mount("-t", "tmpfs", "none", point)
        self.mount("-t", "tmpfs", "none", wild)
        write(os.path.join(point, "inside"), b"tmpfs")
        self.mount("--bind", source, bound)
        self.mount("--bind", os.path.join(source, "f"), file)
        self.undo.append(lambda: os.rmdir(elsewhere_))
        self.mount("--bind", source, elsewhere_)
        self.looks |= {
            "a tmpfs on a directory": (lambda: is_mounted(point), True),
            "a tmpfs on a wild name": (lambda: is_mounted(wild), True),
            "what is in the tmpfs": (lambda: read(os.path.join(point, "inside")), b"tmpfs"),
            "a bind mount on a directory": (lambda: is_mounted(bound), True),
            "what is in it": (lambda: read(os.path.join(bound, "f")), b"bound"),
            "a bind mount on a file": (lambda: is_mounted(file), True),
            "what is in that file": (lambda: read(file), b"bound"),
            "a bind mount out of it": (lambda: read(os.path.join(elsewhere_, "f")), b"bound"),
            "its source": (lambda: read(os.path.join(source, "f")), b"bound"),
        }
        # Mounts of others are theirs: the other machine sees what is below.
        self.mounted = [point, bound]

    def processes(self):
        deep, root = self.path("stands/deep/er"), self.path("root")
        os.makedirs(deep)
        os.makedirs(root + "/etc")
        write(root + "/etc/name", b"in the root\n")
        shell, fd = Shell(deep), os.open(root, os.O_PATH)
        self.undo += [shell.end, lambda: os.close(fd)]
        self.looks |= {
            "pwd of a shell": (lambda: shell.says("/bin/pwd -P 2>&1"), deep),
            "its directory": (lambda: shell.says("ls -d . 2>&1"), "."),
            "what is above it": (lambda: shell.says("ls -d ../../deep 2>&1"), "../../deep"),
            "its cwd in /proc": (lambda: os.readlink("/proc/%d/cwd" % shell.process.pid), deep),
            "an O_PATH descriptor": (lambda: os.readlink("/proc/self/fd/%d" % fd), root),
            "a file below it": (lambda: opened_at("etc/name", fd), b"in the root\n"),
        }

    def descriptors(self):
        path, at = self.path("open"), self.path("s")
        write(path, b"mapped" * 1000)
        fd = os.open(path, os.O_RDWR)
        mapping, listening = mmap.mmap(fd, 6000), socket.socket(socket.AF_UNIX)
        os.chdir(self.keep)
        listening.bind("s")
        listening.listen(10000)
        os.chdir("/")
        self.undo += [mapping.close, lambda: os.close(fd), listening.close]
        self.looks |= {
            "the path of an open file": (lambda: os.readlink("/proc/self/fd/%d" % fd), path),
            "a mapping": (lambda: mapping[:6], b"mapped"),
            "a listening socket": (lambda: connected(self.keep, listening), None),
            "a socket's inode": (lambda i=os.lstat(at).st_ino: os.lstat(at).st_ino == i, True),
        }

    def lost(self):
        """All that is not as it should be, and how it is."""
        for what, (look, wanted) in self.looks.items():
            got = outcome(look)
            if got != wanted:
                yield what, got


def opened_at(name, directory):
    fd = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def connected(directory, listening):
    # By a short path through a descriptor: a socket's path has 107 bytes at most.
    fd, client = os.open(directory, os.O_PATH), socket.socket(socket.AF_UNIX)
    try:
        client.connect("/proc/self/fd/%d/s" % fd)
        listening.accept()[0].close()
    finally:
        client.close()
        os.close(fd)


def beside(kept, work):
    """The losses of all that is kept, while `work(side, letter, stop)` goes on through each
    mount, twice."""
    stop, lost, rounds = threading.Event(), {}, 0
    threads = [
        threading.Thread(target=work, args=(side, letter, stop))
        for side, letter in zip((SIDES * 4)[:4], "abcd")
    ]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    while time.monotonic() < began + SECONDS:
        for what, got in kept.lost():
            lost.setdefault(what, "%a after %.1f s" % (got, time.monotonic() - began))
        rounds += 1
    stop.set()
    for thread in threads:
        thread.join()
    return lost, rounds


def churn(side, letter, stop):
    """Makes and renames a few names in another directory."""
    busy, number = os.path.join(side, "busy"), 0
    os.makedirs(busy, exist_ok=True)
    while not stop.is_set():
        path = "%s/%s%d" % (busy, letter, number % 30)
        error_of(write, path)
        error_of(os.rename, path, "%s/r%d" % (busy, number % 30))
        error_of(os.stat, busy + "/r3")
        number += 1


def make_many(side, letter, stop):
    """Makes and removes trees of new names, as a build or a checkout does."""
    number = 0
    while not stop.is_set():
        top = "%s/tree-%s%d" % (side, letter, number)
        os.makedirs(top + "/x/y")
        for name in range(50):
            write("%s/x/y/%d" % (top, name))
        command("rm", "-rf", top)
        number += 1


def others_work_elsewhere():
    needs_root()
    with Kept() as kept:
        lost, rounds = beside(kept, churn)
        check(not lost, "%d rounds beside a churn elsewhere: %s" % (rounds, lost or "all is there"))
        if TWO:
            beside_it_and_on_it(kept)


def beside_it_and_on_it(kept):
    """The other works in the directory itself, and on what is mounted on here."""
    other = elsewhere(kept.keep)
    for number in range(10):
        os.mkdir("%s/made-%d" % (other, number))
        write("%s/file-%d" % (other, number))
        os.unlink("%s/file-%d" % (other, number))
    os.listdir(kept.keep)
    lost = dict(kept.lost())
    check(not lost, "after names were made and removed beside it: %s" % (lost or "all is there"))
    listed = os.listdir(elsewhere(kept.mounted[0]))
    check(listed == [], "the other sees what is below a mount: %s" % listed)
    note(
        "the other removes what is mounted on: %s" % error_of(os.rmdir, elsewhere(kept.mounted[0]))
    )


def others_make_many_names():
    needs_root()
    with Kept() as kept:
        lost, rounds = beside(kept, make_many)
        check(
            not lost,
            "%d rounds beside trees that come and go: %s" % (rounds, lost or "all is there"),
        )


if __name__ == "__main__":
    main(others_work_elsewhere, others_make_many_names)
