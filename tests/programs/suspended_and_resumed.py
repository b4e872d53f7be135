#!/usr/bin/env -S python3 -B
"""A machine that is suspended for longer than its lease loses nothing without a word.

Reports: rclone, libfuse/sshfs, NFS and CephFS users with laptops (rook/rook #14442), PostgreSQL's
"fsyncgate". Another machine needs what the suspended one holds: what that had written and not
synced may be gone, but then write, fsync or close has to say so. PID2 is the process of the
second mount's leasehold, NAP the seconds that it is stopped for.
"""

import os
import signal
import threading
import time

from trial import (
    HERE,
    TWO,
    check,
    elsewhere,
    error_of,
    fresh,
    main,
    note,
    outcome,
    read,
    skip,
    write,
)

PID = int(os.environ.get("PID2", 0))
NAP = float(os.environ.get("NAP", 25))


class Suspended:
    """The second machine, stopped; here the file of which it has written something is asked for
    meanwhile."""

    def __init__(self, path):
        self.path, self.content, self.took = path, None, None
        self.thread = threading.Thread(target=self.need)

    def need(self):
        began = time.monotonic()
        self.content = outcome(read, self.path)
        self.took = time.monotonic() - began
        os.listdir(HERE)
        write(self.path, b"by the other\n", "ab")

    def nap(self):
        os.kill(PID, signal.SIGSTOP)
        try:
            self.thread.start()
            time.sleep(NAP)
        finally:
            os.kill(PID, signal.SIGCONT)
        self.thread.join(120)
        note("the other got %r after %.1f s" % (self.content, self.took or -1))
        return not self.thread.is_alive()


def told(fd, *calls):
    """The errors that the calls on the descriptor, and its close, ended with."""
    errors = [error_of(call) for call in calls]
    return errors + [error_of(os.fsync, fd), error_of(os.close, fd)]


def what_was_not_synced():
    if not PID or not TWO:
        skip("wants two mounts, and PID2, the process of the second one")
    old, new, late = (os.path.join(HERE, fresh()) for _ in range(3))
    write(elsewhere(old), b"old\n")
    fd = os.open(elsewhere(old), os.O_RDWR)
    os.fsync(fd)
    created = os.open(elsewhere(new), os.O_RDWR | os.O_CREAT)
    os.write(created, b"created and not synced\n")
    held = os.open(elsewhere(late), os.O_RDWR | os.O_CREAT)
    os.fsync(held)
    os.pwrite(fd, b"unsynced\n", 0)

    check(Suspended(old).nap(), "the other's calls end, at the latest when it is back")

    time.sleep(2)
    errors = told(fd, lambda: os.pwrite(fd, b"X", 0))
    text = read(old)
    good = b"nsynced" in text or any(errors)
    check(good, "what is lost is said: the file is %r, its writer was told %s" % (text, errors))
    errors = told(created, lambda: os.write(created, b"more\n"))
    there = outcome(read, new)
    good = there == b"created and not synced\nmore\n" or any(errors)
    check(good, "a new file is there or its writer told: %r, %s" % (there, errors))
    errors = told(held, lambda: os.write(held, b"afterwards"))
    good = any(errors) or read(late) == b"afterwards"
    check(good, "an open file goes on, or says not: %s" % errors)
    for path in (old, late):
        check(read(path) == read(elsewhere(path)), "both see the same afterwards")
    lists = [sorted(os.listdir(side)) for side in (HERE, elsewhere(HERE))]
    check(lists[0] == lists[1], "and the same names")


if __name__ == "__main__":
    main(what_was_not_synced)
