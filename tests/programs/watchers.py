#!/usr/bin/env -S python3 -B
"""inotify tells what is done through its mount; of another machine's work, tail -f and whoever
polls hear in time.

Reports: gluster/glusterfs #3864 and #585, lizardfs #750, seaweedfs #2608, cubefs #3643,
ceph/go-ceph #478: editors, development servers, tail -f, systemd's path units. FUSE has no notice
by which a file system can tell inotify that another machine made or wrote something (nor have NFS
and CephFS), so that part is not tried: programs poll.
"""

import os
import select
import struct
import subprocess
import time

import kernel
from trial import (
    HERE,
    TWO,
    Floor,
    check,
    elsewhere,
    fresh,
    main,
    make_directory,
    needs,
    skip,
    write,
)

EVENTS = {
    0x100: "create",
    0x2: "modify",
    0x8: "close_write",
    0x40: "from",
    0x80: "to",
    0x200: "delete",
    0x4: "attrib",
}


class Watch:
    def __init__(self, directory):
        self.fd = kernel.inotify_init(os.O_NONBLOCK)
        kernel.watch(self.fd, directory, 0xFFF)

    def events(self, wanted, seconds):
        """Those that come until all wanted are there, or for so long."""
        got, until = set(), time.monotonic() + seconds
        while not wanted <= got and time.monotonic() < until:
            if select.select([self.fd], [], [], 0.1)[0]:
                got |= set(self.take())
        return got

    def take(self):
        data = os.read(self.fd, 65536)
        while data:
            _, mask, _, length = struct.unpack("iIII", data[:16])
            name = os.fsdecode(data[16 : 16 + length].rstrip(b"\0"))
            data = data[16 + length :]
            for bit, event in EVENTS.items():
                if mask & bit:
                    yield event, name


def act(directory):
    """Does what a program may do with a name, and the events of it."""
    old, new = fresh(), fresh()
    write(os.path.join(directory, old), b"x")
    os.chmod(os.path.join(directory, old), 0o600)
    os.rename(os.path.join(directory, old), os.path.join(directory, new))
    os.unlink(os.path.join(directory, new))
    first = {(event, old) for event in ("create", "modify", "close_write", "attrib", "from")}
    return first | {("to", new), ("delete", new)}


def through_the_same_mount():
    directory = make_directory()
    watch = Watch(directory)
    wanted = act(directory)
    got = watch.events(wanted, 10)
    check(wanted <= got, "lacking: %a" % (wanted - got or "nothing"))


def after_the_other_has_worked_there():
    """A watch is not lost by what another machine does to the directory and in it."""
    directory = make_directory()
    watch = Watch(directory)
    act(elsewhere(directory))
    for _ in range(20):
        write(os.path.join(elsewhere(directory), fresh()))
    os.listdir(directory)
    wanted = act(directory)
    got = watch.events(wanted, 10)
    check(wanted <= got, "after the other worked there, lacking: %a" % (wanted - got or "nothing"))


def what_the_other_does():
    if TWO:
        skip("inotify cannot be told what another machine does: FUSE has no notice for it")


def tail_follows():
    needs("tail")
    # Where inotify tells nothing tail must poll, as it does by itself on network file systems
    # that it knows.
    for arguments in ([],) if not TWO else ([], ["---disable-inotify"]):
        path = os.path.join(HERE, fresh())
        write(path, b"first\n")
        tail = subprocess.Popen(
            ["tail", "-f", "-n", "+1", *arguments, "--", path], stdout=subprocess.PIPE
        )
        out, until = b"", time.monotonic() + 60
        with Floor() as floor:
            while b"first\n" not in out and time.monotonic() < until:
                out += os.read(tail.stdout.fileno(), 1000)
            time.sleep(0.5)
            write(elsewhere(path), b"second\n", "ab")
            began = time.monotonic()
            while b"second\n" not in out and time.monotonic() < until:
                if select.select([tail.stdout], [], [], 0.2)[0]:
                    out += os.read(tail.stdout.fileno(), 1000)
            took = time.monotonic() - began
        tail.kill()
        tail.wait()
        good = out == b"first\nsecond\n" and took < floor.bound(8)
        check(good, "tail -f %s: %r after %.1f s" % (" ".join(arguments), out, took))


if __name__ == "__main__":
    main(
        through_the_same_mount, after_the_other_has_worked_there, what_the_other_does, tail_follows
    )
