#!/usr/bin/env -S python3 -B
"""Further groups count, and waits can be interrupted, wherever the mount is served from.

Reports: trapexit/mergerfs #886 (docker: "permission denied" for a user who may by one of his
further groups), FUSE drivers of Kubernetes: the mount is served from a pid namespace of its own
and used from outside, so that the file system cannot look up who asks. `tests/e2e/programs.sh`
runs this on such a mount as well:

    unshare --pid --fork --mount --propagation unchanged --kill-child sh -c \\
        'mount --make-private /proc; mount -t proc proc /proc;
         exec leasehold up --data D --mount SHARED/M'
"""

import fcntl
import os
import signal
import time

from trial import (
    HERE,
    Child,
    Floor,
    as_user,
    check,
    elsewhere,
    fresh,
    main,
    make_directory,
    needs_root,
)
from trial import read, write

USER, FIRST, SECOND = 12345, 12345, 23456


def user(call, *arguments):
    return as_user(USER, FIRST, [SECOND], call, *arguments)


def team():
    """A directory and a file for the group, of root."""
    directory, file = make_directory(), os.path.join(HERE, fresh())
    write(file, b"team")
    for path, bits in ((directory, 0o770), (file, 0o660)):
        os.chown(path, 0, SECOND)
        os.chmod(path, bits)
    return directory, file


def by_a_second_group():
    needs_root()
    directory, file = team()
    new, newer, sub = (os.path.join(directory, fresh()) for _ in range(3))
    for what, call, arguments, wanted in (
        ("read", read, (file,), b"team"),
        ("write", write, (file, b"!", "ab"), 1),
        ("truncate", os.truncate, (file, 2), None),
        ("list", os.listdir, (directory,), []),
        ("create", write, (new,), 0),
        ("rename", os.rename, (new, newer), None),
        ("unlink", os.unlink, (newer,), None),
        ("mkdir", os.mkdir, (sub,), None),
        ("rmdir", os.rmdir, (sub,), None),
        ("symlink", os.symlink, ("x", new), None),
        ("mkfifo", os.mkfifo, (newer,), None),
        ("access", os.access, (file, os.R_OK | os.W_OK), True),
        ("access through the other", os.access, (elsewhere(file), os.R_OK | os.W_OK), True),
        ("read through the other", read, (elsewhere(file),), b"te"),
        ("chmod of another's", os.chmod, (file, 0o666), "EPERM"),
    ):
        got = user(call, *arguments)
        check(got == wanted, "%s by one's second group: %s" % (what, got))


def of_one_that_is_in_no_group():
    directory, file = team()
    for what, call, arguments in (
        ("read", read, (file,)),
        ("list", os.listdir, (directory,)),
        ("create", write, (os.path.join(directory, fresh()),)),
    ):
        got = as_user(USER, FIRST, [], call, *arguments)
        check(got == "EACCES", "%s without the group: %s" % (what, got))


def chgrp_to_a_second_group():
    path = os.path.join(HERE, fresh())
    write(path)
    os.chown(path, USER, FIRST)
    got = user(os.chown, path, -1, SECOND)
    check(
        got is None and os.stat(elsewhere(path)).st_gid == SECOND,
        "chgrp of one's own file: %s" % got,
    )


def many_groups():
    """More groups than one line of a status file has, the one that counts last."""
    directory, _ = team()
    got = as_user(USER, FIRST, list(range(30000, 30300)) + [SECOND], os.listdir, directory)
    check(got == [], "the last of 301 groups: %s" % got)


def waiter(path, alarm=None):
    def wait():
        if alarm:
            signal.alarm(alarm)
        fcntl.flock(os.open(path, os.O_RDWR), fcntl.LOCK_EX)

    return Child(wait)


def a_wait_ends_by_a_signal():
    path = os.path.join(HERE, fresh())
    lock = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with Floor() as floor:
        began = time.monotonic()
        child = waiter(elsewhere(path), 1)
        ended, took = child.ends_within(30), time.monotonic() - began
    check(
        ended and took < floor.bound(4), "a wait for a lock ends with SIGALRM: after %.1f s" % took
    )
    if not ended:
        os.kill(child.pid, signal.SIGKILL)
    with Floor() as floor:
        child = waiter(elsewhere(path))
        time.sleep(0.5)
        os.kill(child.pid, signal.SIGKILL)
        began = time.monotonic()
        ended, took = child.ends_within(30), time.monotonic() - began
    check(ended and took < floor.bound(4), "and can be killed: after %.1f s" % took)
    fcntl.flock(lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    main(
        by_a_second_group,
        of_one_that_is_in_no_group,
        chgrp_to_a_second_group,
        many_groups,
        a_wait_ends_by_a_signal,
    )
