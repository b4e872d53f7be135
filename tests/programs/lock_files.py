#!/usr/bin/env -S python3 -B
"""Lock files, as programs make them, are never held by two, on two machines at once.

emacs (symbolic link .#f), LibreOffice (.~lock.f# by O_EXCL), vim (O_EXCL swap names), dovecot and
mutt (a link to a name of one's own, then a look at its links), git (O_EXCL x.lock, then rename),
mkdir. Reports: awslabs/mountpoint-s3 #478, rclone/rclone #5853, kahing/goofys #74, GDriveFS #194.
"""

import os
import time

import kernel
from trial import HERE, SIDES, check, fresh, main, outcome, together, write

ROUNDS = int(os.environ.get("ROUNDS", 60))
EXCLUSIVE = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def race(what, take, release):
    """Four workers, here and there; `take` and `release` get a side and the worker's number."""
    holders, both, taken, errors = [], [], [0] * 4, set()

    def go(number, side):
        until = time.monotonic() + 30
        while taken[number] < ROUNDS and time.monotonic() < until:
            got = outcome(take, side, number)
            if got == "EEXIST" or got is False:
                continue
            if isinstance(got, str):
                errors.add(got)
                continue
            if holders:
                both.append((number, list(holders)))
            holders.append(number)
            time.sleep(0.0005)
            holders.remove(number)
            release(side, number)
            taken[number] += 1

    together(*(lambda n=n: go(n, (SIDES * 4)[n]) for n in range(4)))
    good = not both and not errors and min(taken) > 0
    check(good, "%s: taken %s times; held by two: %s; errors: %s" % (what, taken, both[:2], errors))


def named(how, release=os.unlink):
    """Take and release of a lock that is a name."""
    name = fresh()
    return (
        lambda side, number: how(os.path.join(side, name), number),
        lambda side, number: release(os.path.join(side, name)),
    )


def symbolic_link():
    race("symlink", *named(lambda path, number: os.symlink("me@host.%d" % number, path)))


def exclusive_file():
    race("O_EXCL", *named(lambda path, _: os.close(os.open(path, EXCLUSIVE))))


def directory():
    race("mkdir", *named(lambda path, _: os.mkdir(path), os.rmdir))


def fifo():
    race("mkfifo", *named(lambda path, _: os.mkfifo(path)))


def link_of_a_name_of_ones_own():
    name = fresh()

    def take(side, number):
        own = os.path.join(side, "own-%d" % number)
        write(own)
        try:
            os.link(own, os.path.join(side, name))
        except FileExistsError:
            pass
        taken = os.stat(own).st_nlink == 2
        os.unlink(own)
        return taken

    race("link, and two links", take, lambda side, _: os.unlink(os.path.join(side, name)))


def lock_that_becomes_the_file():
    lock, file = fresh(), fresh()
    race(
        "O_EXCL x.lock, then rename",
        lambda side, _: os.close(os.open(os.path.join(side, lock), EXCLUSIVE)),
        lambda side, _: os.rename(os.path.join(side, lock), os.path.join(side, file)),
    )


def rename_to_a_new_name_only():
    name = fresh()

    def take(side, number):
        own = os.path.join(side, "mine-%d" % number)
        write(own)
        kernel.renameat2(own, os.path.join(side, name), kernel.NOREPLACE)

    race("rename with NOREPLACE", take, lambda side, _: os.unlink(os.path.join(side, name)))


if __name__ == "__main__":
    main(
        symbolic_link,
        exclusive_file,
        directory,
        fifo,
        link_of_a_name_of_ones_own,
        lock_that_becomes_the_file,
        rename_to_a_new_name_only,
    )
