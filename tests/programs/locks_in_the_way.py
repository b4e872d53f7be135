#!/usr/bin/env -S python3 -B
"""F_GETLK tells which lock is in the way, and SQLite works with all its journals, from several
processes and machines.

Reports: superfly/litefs #123 (SQLite's WAL waits for ever on a wrong answer of F_GETLK), devenv
#2985 (the mapping of WAL's -shm fails on virtiofs and 9p), libfuse/sshfs #204. The write-ahead
log is for one machine, as SQLite says.
"""

import fcntl
import os
import sqlite3
import struct
import time

from trial import HERE, SIDES, Child, both, check, elsewhere, error_of, fresh, main, write

F_OFD_GETLK, F_OFD_SETLK = 36, 37


def get_lock(fd, kind, start, length, request=fcntl.F_GETLK):
    """The kind of lock that is in the way, and its range."""
    asked = struct.pack("hhqqhh", kind, 0, start, length, 0, 0)
    got = struct.unpack("hhqqhh", fcntl.fcntl(fd, request, asked))
    return got[0], got[2:4]


class Holder:
    """A process that takes one lock after another, when it is told."""

    def __init__(self, path, kinds):
        taken, self.told = os.pipe(), os.pipe()

        def run():
            fd = os.open(path, os.O_RDWR)
            for kind in kinds:
                fcntl.lockf(fd, kind, 10, 20)
                os.write(taken[1], b"1")
                os.read(self.told[0], 1)

        self.child, self.taken = Child(run), taken

    def wait(self):
        os.read(self.taken[0], 1)

    def go_on(self):
        os.write(self.told[1], b"1")


def what_is_in_the_way():
    path = os.path.join(HERE, fresh())
    write(path, b"x" * 100)
    for side in both(path):
        where = "here" if side == path else "elsewhere"
        holder = Holder(side, (fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN))
        fd = os.open(path, os.O_RDWR)
        for request in (fcntl.F_GETLK, F_OFD_GETLK):
            if request == fcntl.F_GETLK:
                holder.wait()
            got = get_lock(fd, fcntl.F_RDLCK, 0, 0, request)
            check(
                got == (fcntl.F_WRLCK, (20, 10)), "a write lock of 20..29 (%s): %s" % (where, got)
            )
        holder.go_on()
        holder.wait()
        got = get_lock(fd, fcntl.F_WRLCK, 0, 0)
        check(got == (fcntl.F_RDLCK, (20, 10)), "after it became a read lock: %s" % (got,))
        got = get_lock(fd, fcntl.F_RDLCK, 0, 0)[0]
        check(got == fcntl.F_UNLCK, "it is in no reader's way: %s" % got)
        got = get_lock(fd, fcntl.F_WRLCK, 0, 20)[0]
        check(got == fcntl.F_UNLCK, "nor in that of a writer before it: %s" % got)
        holder.go_on()
        holder.wait()
        got = get_lock(fd, fcntl.F_WRLCK, 0, 0)[0]
        check(got == fcntl.F_UNLCK, "after it was let go: %s" % got)
        holder.go_on()
        holder.child.wait()
        os.close(fd)


def description_locks():
    """Locks of two descriptors of one process exclude each other, and close lets go of the one
    only."""
    path = os.path.join(HERE, fresh())
    write(path, b"x" * 100)
    one, other, third = (
        os.open(path, os.O_RDWR),
        os.open(elsewhere(path), os.O_RDWR),
        os.open(path, os.O_RDWR),
    )

    def lock(fd, kind, start=0, length=10):
        return error_of(
            fcntl.fcntl, fd, F_OFD_SETLK, struct.pack("hhqqhh", kind, 0, start, length, 0, 0)
        )

    got = lock(one, fcntl.F_WRLCK)
    check(got is None, "the first: %s" % got)
    got = lock(other, fcntl.F_WRLCK, 5, 10)
    check(got == "EAGAIN", "another descriptor, of a part: %s" % got)
    got = lock(other, fcntl.F_WRLCK, 10, 10)
    check(got is None, "another descriptor, beside it: %s" % got)
    os.close(third)
    got = lock(other, fcntl.F_WRLCK)
    check(got == "EAGAIN", "after a third descriptor was closed: %s" % got)
    os.close(one)
    # Close tells the file system later, if at all: a while is allowed.
    until = time.monotonic() + 10
    while (got := lock(other, fcntl.F_WRLCK)) and time.monotonic() < until:
        time.sleep(0.01)
    check(got is None, "after the first was closed: %s" % got)
    os.close(other)


def held_by_both_kinds():
    """flock and fcntl do not know of each other."""
    path = os.path.join(HERE, fresh())
    write(path)
    one, other = os.open(path, os.O_RDWR), os.open(elsewhere(path), os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_EX)
    got = Child(lambda: fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)).result()
    check(got is None, "fcntl beside flock: %s" % got)


def work(path, number, rounds):
    database = sqlite3.connect(path, timeout=120)
    for i in range(rounds):
        database.execute("begin immediate")
        count = database.execute("select count(*) from t where w = ?", (number,)).fetchone()[0]
        if count != i:
            return "lost: %d of %d" % (count, i)
        database.execute("insert into t values (?, ?)", (number, i))
        database.commit()
    return "done"


def sqlite_by_several(journal, sides, workers, rounds):
    name = "%s.db" % journal
    path = os.path.join(HERE, name)
    database = sqlite3.connect(path)
    got = database.execute("pragma journal_mode=" + journal).fetchone()[0]
    check(got == journal, "journal mode %s" % got)
    database.execute("create table t (w, i)")
    database.commit()
    database.close()
    paths = [os.path.join(sides[k % len(sides)], name) for k in range(workers)]
    children = [Child(work, paths[k], k, rounds) for k in range(workers)]
    ended = [child.result() for child in children]
    database = sqlite3.connect(os.path.join(sides[-1], name))
    rows = database.execute("select count(*), count(distinct w||','||i) from t").fetchone()
    sound = database.execute("pragma integrity_check").fetchone()[0]
    database.close()
    wanted = workers * rounds
    good = ended == ["done"] * workers and rows == (wanted, wanted) and sound == "ok"
    check(good, "%s: %s, %s of %d, %s" % (journal, ended, rows, wanted, sound))


def sqlite_with_a_log():
    sqlite_by_several("wal", [HERE], 4, 25)


def sqlite_with_journals():
    for journal in ("delete", "truncate", "persist"):
        sqlite_by_several(journal, SIDES, 4, 12)


if __name__ == "__main__":
    main(
        what_is_in_the_way,
        description_locks,
        held_by_both_kinds,
        sqlite_with_a_log,
        sqlite_with_journals,
    )
