#!/usr/bin/env -S python3 -B
"""inotify tells what is done through its mount, and what another machine does; so does tail.

Reports: gluster/glusterfs #3864 and #585, lizardfs #750, seaweedfs #2608, cubefs #3643,
ceph/go-ceph #478: editors, development servers, tail -f, systemd's path units.
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
    read,
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
        self.told = []
        kernel.watch(self.fd, directory, 0xFFF)

    def events(self, wanted, seconds):
        """Those that come until all wanted are there, or for so long."""
        got, until = set(), time.monotonic() + seconds
        while not wanted <= got and time.monotonic() < until:
            if select.select([self.fd], [], [], 0.1)[0]:
                got |= {(event, name) for event, name, _ in self.take()}
        return got

    def take(self):
        """Events that wait: each with its name, and the cookie that the two of a rename share."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        taken = []
        while data:
            _, mask, cookie, length = struct.unpack("iIII", data[:16])
            name = os.fsdecode(data[16 : 16 + length].rstrip(b"\0"))
            data = data[16 + length :]
            taken += [(event, name, cookie) for bit, event in EVENTS.items() if mask & bit]
        self.told += taken
        return taken


class Names:
    """What a program believes that there is in a directory, by the events that it is told."""

    def __init__(self, directory):
        self.watch, self.names, self.told = Watch(directory), set(os.listdir(directory)), []

    def follow(self):
        for event, name, _ in self.watch.take():
            self.told.append((event, name))
            if event in ("create", "to"):
                self.names.add(name)
            elif event in ("delete", "from"):
                self.names.discard(name)

    def come_to(self, names, seconds):
        """Whether it comes to believe that."""
        until = time.monotonic() + seconds
        while self.names != names and time.monotonic() < until:
            select.select([self.watch.fd], [], [], 0.1)
            self.follow()
        return self.names == names

    def begin(self, directory):
        """Until it is heard what another machine does there: a watch is noticed within seconds."""
        until, probes = time.monotonic() + 60, []
        while not any(name in probes for _, name in self.told):
            if time.monotonic() >= until:
                check(False, "the watch is not noticed within a minute")
                return
            probes.append("probe-%d" % len(probes))
            write(os.path.join(elsewhere(directory), probes[-1]))
            select.select([self.watch.fd], [], [], 0.5)
            self.follow()
        for probe in probes:
            os.unlink(os.path.join(elsewhere(directory), probe))
        self.come_to(set(os.listdir(directory)), 30)
        self.told = []


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
    needs_two()
    directory = make_directory()
    there = elsewhere(directory)
    names = Names(directory)
    names.begin(directory)
    old, new, other, inner = (fresh() for _ in range(4))

    def step(what, wanted):
        got = names.watch.events(wanted, 30)
        check(wanted <= got, "the other %s: %a" % (what, wanted - got or "told"))

    write(os.path.join(there, old), b"x")
    step("creates and writes", {("create", old), ("modify", old)})
    write(os.path.join(there, old), b"y", "ab")
    step("appends", {("modify", old)})
    os.chmod(os.path.join(there, old), 0o600)
    step("changes the mode", {("attrib", old)})
    os.rename(os.path.join(there, old), os.path.join(there, new))
    step("renames", {("from", old), ("to", new)})
    cookies = {c for event, name, c in names.watch.told if (event, name) == ("to", new)}
    same = {c for event, name, c in names.watch.told if (event, name) == ("from", old)}
    check(cookies == same and 0 not in cookies, "both have one cookie")
    write(os.path.join(there, "..", other), b"another")
    os.rename(os.path.join(there, "..", other), os.path.join(there, new))
    step("replaces", {("to", new)})
    check(read(os.path.join(directory, new)) == b"another", "what is there is what is read")
    os.mkdir(os.path.join(there, inner))
    step("makes a directory", {("create", inner)})
    write(os.path.join(there, inner, "x"), b"x")
    check(read(os.path.join(directory, inner, "x")) == b"x", "the directory is the real one")
    os.unlink(os.path.join(there, inner, "x"))
    os.rmdir(os.path.join(there, inner))
    step("removes a directory", {("delete", inner)})
    os.unlink(os.path.join(there, new))
    step("removes", {("delete", new)})
    check(os.listdir(directory) == [], "nothing is there")
    # Nothing was told of what never was there.
    strange = {name for _, name, _ in names.watch.told} - {"", old, new, inner}
    check(not any(not name.startswith("probe-") for name in strange), "no other name: %a" % strange)


def a_file_that_is_watched():
    """The file itself, and not its directory."""
    needs_two()
    path = os.path.join(HERE, fresh())
    write(path, b"x")
    watch, until, got = Watch(path), time.monotonic() + 60, set()
    while ("modify", "") not in got and time.monotonic() < until:
        write(elsewhere(path), b"y", "ab")
        got = watch.events({("modify", "")}, 1)
    check(("modify", "") in got, "the other appends: told")
    size = os.path.getsize(elsewhere(path))
    check(os.path.getsize(path) == size and len(read(path)) == size, "what is read is what is there")
    os.chmod(elsewhere(path), 0o600)
    check(("attrib", "") in watch.events({("attrib", "")}, 30), "the other changes the mode: told")
    write(path, b"z", "ab")
    time.sleep(3)
    told = [event for event, _, _ in watch.take() if event == "modify"]
    check(len(told) == 1, "what is written here is told once: %d" % len(told))


def a_thousand_of_the_other():
    """However much is done at once: the last state is learnt of, and nothing that never was."""
    needs_two()
    directory = make_directory()
    there = elsewhere(directory)
    names = Names(directory)
    names.begin(directory)
    for n in range(1000):
        write(os.path.join(there, "f%d" % n), b"%d" % n if n % 2 else b"")
    for n in range(0, 1000, 3):
        os.rename(os.path.join(there, "f%d" % n), os.path.join(there, "g%d" % n))
    for n in range(1, 1000, 3):
        os.unlink(os.path.join(there, "f%d" % n))
    left = {"g%d" % n for n in range(0, 1000, 3)} | {"f%d" % n for n in range(2, 1000, 3)}
    good = names.come_to(left, 120)
    check(good, "1000 made, renamed, removed: %d names lacking or too many" % len(names.names ^ left))
    check(set(os.listdir(directory)) == left, "what is told is what is there")
    for name in left:
        write(os.path.join(there, name), b"written once more")
    wanted = {("modify", name) for name in left}
    until = time.monotonic() + 120
    while not wanted <= set(names.told) and time.monotonic() < until:
        select.select([names.watch.fd], [], [], 0.1)
        names.follow()
    check(wanted <= set(names.told), "%d writes not told" % len(wanted - set(names.told)))
    for name in left:
        os.unlink(os.path.join(there, name))
    check(names.come_to(set(), 120), "all removed: %d left" % len(names.names))


def ours_is_told_once():
    """What is done here the kernel tells, and nobody tells it again, whatever others do there."""
    needs_two()
    directory = make_directory()
    names = Names(directory)
    names.begin(directory)
    mine, theirs = [], set()
    for n in range(60):
        mine.append("mine-%d" % n)
        write(os.path.join(directory, mine[-1]), b"x")
        theirs.add("theirs-%d" % n)
        write(os.path.join(elsewhere(directory), "theirs-%d" % n), b"x")
        if n % 3 == 0:
            os.unlink(os.path.join(directory, mine[-1]))
        if n % 3 == 1:
            os.rename(os.path.join(directory, mine[-1]), os.path.join(directory, "moved-%d" % n))
        names.follow()
        time.sleep(0.02)
    left = theirs | {"moved-%d" % n for n in range(1, 60, 3)} | {"mine-%d" % n for n in range(2, 60, 3)}
    check(names.come_to(left, 60), "both work there: %a" % (names.names ^ left))
    time.sleep(2)
    names.follow()
    for event in ("create", "delete", "from", "to"):
        told = [name for what, name in names.told if what == event and not name.startswith("theirs")]
        twice = {name for name in told if told.count(name) > 1}
        check(not twice, "%s told twice: %a" % (event, twice or "none"))


def needs_two():
    if not TWO:
        skip("there is no other machine")


def tail_follows():
    needs("tail")
    # It may poll by itself, as on network file systems that it knows.
    for arguments in ([], ["---disable-inotify"]):
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


def tail_follows_by_name():
    """tail -F: what the other machine appends, and what it puts in the file's place. coreutils' own
    polls here, as on all that may be remote; others ask inotify."""
    needs_two()
    needs("tail")
    directory = make_directory()
    path = os.path.join(directory, "log")
    write(path, b"first\n")
    tail = subprocess.Popen(
        ["tail", "-F", "-n", "+1", "--", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    out = b""

    def hears(line, seconds):
        nonlocal out
        until = time.monotonic() + seconds
        while line not in out and time.monotonic() < until:
            if select.select([tail.stdout], [], [], 0.1)[0]:
                out += os.read(tail.stdout.fileno(), 1000)
        return line in out

    hears(b"first\n", 30)
    # Until the watch is noticed.
    for n in range(60):
        write(elsewhere(path), b"probe %d\n" % n, "ab")
        if hears(b"probe %d\n" % n, 1):
            break
    with Floor() as floor:
        for n in range(5):
            write(elsewhere(path), b"appended %d\n" % n, "ab")
            check(hears(b"appended %d\n" % n, floor.bound(10)), "tail -F hears of append %d" % n)
        for n in range(3):
            new = os.path.join(elsewhere(directory), "new")
            write(new, b"replaced %d\n" % n)
            os.rename(new, elsewhere(path))
            check(hears(b"replaced %d\n" % n, floor.bound(10)), "tail -F hears of replacement %d" % n)
            write(elsewhere(path), b"more %d\n" % n, "ab")
            check(hears(b"more %d\n" % n, floor.bound(10)), "tail -F hears of append to it %d" % n)
    tail.kill()
    tail.wait()


if __name__ == "__main__":
    main(
        through_the_same_mount,
        after_the_other_has_worked_there,
        what_the_other_does,
        a_file_that_is_watched,
        a_thousand_of_the_other,
        ours_is_told_once,
        tail_follows,
        tail_follows_by_name,
    )
