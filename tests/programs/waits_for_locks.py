#!/usr/bin/env -S python3 -B
"""A wait for a lock ends by a signal without a trace, goes on otherwise, and ends when the lock
is free.

Reports: gluster/glusterfs #3177 (one interrupted wait ends all), #3179 and #3831 (an interrupted
wait leaves a lock behind that nobody owns). fcntl, open file description locks and flock; of
files and, with flock, of directories.
"""

import fcntl
import os
import signal
import struct
import time

from trial import HERE, THERE, TWO, Child, Floor, check, command, elsewhere, error_of, fresh, main
from trial import needs, skip, write

F_OFD_SETLK, F_OFD_SETLKW = 37, 38
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


def by_description(fd, how):
    """As fcntl.flock(), by an open file description lock."""
    kind = fcntl.F_UNLCK if how & fcntl.LOCK_UN else fcntl.F_WRLCK
    request = F_OFD_SETLK if how & fcntl.LOCK_NB else F_OFD_SETLKW
    fcntl.fcntl(fd, request, struct.pack("hhqqhh", kind, 0, 0, 0, 0, 0))


KINDS = {"fcntl": fcntl.lockf, "flock": fcntl.flock, "description": by_description}


class Alarm(Exception):
    pass


def waiter(path, lock, seconds):
    """A child that waits for the lock for so long: its result is how that ended."""

    def alarm(*_):
        raise Alarm

    def wait():
        signal.signal(signal.SIGALRM, alarm)
        fd = os.open(path, os.O_RDWR)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            lock(fd, fcntl.LOCK_EX)
            signal.setitimer(signal.ITIMER_REAL, 0)
            return "got it"
        except Alarm:
            return "alarm"

    return Child(wait)


def error_once_released(lock, fd, floor):
    """The error of taking a lock whose holder has just ended.

    Linux tells a FUSE file system of the last close (`FUSE_RELEASE`) only after `close` has
    returned, and flock and description locks are held until then.
    """
    e, until = "EAGAIN", time.monotonic() + floor.bound(1)
    while e and time.monotonic() < until:
        e = error_of(lock, fd, NOW)
    return e


def waits(kind):
    lock, path = KINDS[kind], os.path.join(HERE, fresh())
    write(path)
    fd = os.open(path, os.O_RDWR)
    lock(fd, fcntl.LOCK_EX)
    with Floor() as floor:
        began = time.monotonic()
        short, long = waiter(elsewhere(path), lock, 1), waiter(elsewhere(path), lock, 100)
        how, took = short.result(), time.monotonic() - began
        goes_on = not long.ends_within(0.3)
        lock(fd, fcntl.LOCK_UN)
        began = time.monotonic()
        got, waited = long.result(), time.monotonic() - began
    good = how == "alarm" and 0.9 < took < floor.bound(2.5)
    check(good, "%s: one with an alarm of 1 s ends after %.1f s: %s" % (kind, took, how))
    check(goes_on, "%s: another goes on waiting" % kind)
    good = got == "got it" and waited < floor.bound(2)
    check(good, "%s: and gets it %.2f s after it is free: %s" % (kind, waited, got))
    e = error_once_released(lock, fd, floor)
    check(e is None, "%s: free again once its holder has ended: %s" % (kind, e))
    lock(fd, fcntl.LOCK_UN)
    os.close(fd)


def killed(kind):
    lock, path = KINDS[kind], os.path.join(HERE, fresh())
    write(path)
    fd = os.open(path, os.O_RDWR)
    lock(fd, fcntl.LOCK_EX)
    with Floor() as floor:
        victim = waiter(elsewhere(path), lock, 100)
        time.sleep(0.5)
        os.kill(victim.pid, signal.SIGKILL)
        began = time.monotonic()
        ended, took = victim.ends_within(60), time.monotonic() - began
    good = ended and took < floor.bound(2)
    check(good, "%s: one that waits can be killed: after %.1f s" % (kind, took))
    lock(fd, fcntl.LOCK_UN)
    other = os.open(path, os.O_RDWR)
    e = error_once_released(lock, other, floor)
    check(e is None, "%s: and leaves nothing behind: %s" % (kind, e))
    os.close(other)
    os.close(fd)


def fcntl_waits():
    waits("fcntl")
    killed("fcntl")


def flock_waits():
    waits("flock")
    killed("flock")


def description_waits():
    waits("description")
    killed("description")


def holder_is_killed():
    """The locks of one that dies are free, for one that waits already."""
    for kind, lock in KINDS.items():
        path = os.path.join(HERE, fresh())
        write(path)

        def hold():
            fd = os.open(path, os.O_RDWR)
            lock(fd, fcntl.LOCK_EX)
            time.sleep(1000)

        with Floor() as floor:
            holder = Child(hold)
            time.sleep(0.3)
            waits_for_it = waiter(elsewhere(path), lock, 100)
            time.sleep(0.3)
            os.kill(holder.pid, signal.SIGKILL)
            began = time.monotonic()
            got, took = waits_for_it.result(), time.monotonic() - began
        holder.wait()
        good = got == "got it" and took < floor.bound(3)
        check(good, "%s: %.2f s after the holder was killed: %s" % (kind, took, got))


def flock_command():
    needs("flock")
    path = os.path.join(HERE, fresh())
    write(path)
    ended = command("flock", "-w", "1", path, "true")
    check(ended.returncode == 0, "flock(1) -w 1 of what is free: %s" % ended.said)
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with Floor() as floor:
        began = time.monotonic()
        ended = command("flock", "-w", "1", elsewhere(path), "true")
        took = time.monotonic() - began
    good = ended.returncode == 1 and took < floor.bound(2.5)
    check(good, "flock(1) -w 1 of what is locked: %d after %.1f s" % (ended.returncode, took))
    os.close(fd)


def flock_of_a_directory():
    """Shell scripts, make and package tools lock a directory."""
    # `fuse_dir_operations` has neither `flock` nor `lock`: the kernel keeps such locks to itself.
    TWO and skip("Linux asks no FUSE file system about flock of a directory")
    where = "through another descriptor"
    directory = os.path.join(HERE, fresh())
    os.mkdir(directory)
    one = os.open(directory, os.O_RDONLY)
    other = os.open(elsewhere(directory), os.O_RDONLY)
    fcntl.flock(one, fcntl.LOCK_EX)
    e = error_of(fcntl.flock, other, NOW)
    check(e == "EAGAIN", "a locked directory %s: %s" % (where, e))
    fcntl.flock(one, fcntl.LOCK_SH)
    e = error_of(fcntl.flock, other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    check(e is None, "two that share it: %s" % e)
    e = error_of(fcntl.flock, other, NOW)
    check(e == "EAGAIN", "one of them wants it alone: %s" % e)
    os.close(one)
    e = "EAGAIN"
    until = time.monotonic() + 5
    while e and time.monotonic() < until:
        e = error_of(fcntl.flock, other, NOW)
    check(e is None, "free after the other was closed: %s" % e)
    os.close(other)
    root = os.open(THERE, os.O_RDONLY)
    check(error_of(fcntl.flock, root, NOW) is None, "the directory of the trial can be locked")
    os.close(root)


if __name__ == "__main__":
    main(
        fcntl_waits,
        flock_waits,
        description_waits,
        holder_is_killed,
        flock_command,
        flock_of_a_directory,
    )
