#!/usr/bin/env -S python3 -B
"""A name with capitals, marks or any bytes is as fresh on the other machine as one in small
letters.

Labels are leased by their fold, and the kernel knows them as they are: README.md, Makefile, HEAD
and Ö must not be stale after they were made, removed, renamed, replaced or exchanged, nor may an
append through a stale name go into another file. Each change, for each name that the interface
allows, looked at by the very next call through the other mount.
"""

import os
import shutil
import time

import kernel
from trial import HERE, NAMES, check, elsewhere, main, make_directory, outcome, read, rng, write


class Place:
    """A name in a directory of its own, as the machine that changes it sees it."""

    def __init__(self, name):
        self.name, self.directory = name, make_directory()
        self.path = os.path.join(self.directory, name)
        self.second = os.path.join(self.directory, "second~")

    def put(self, content):
        write(self.path, content)

    def save(self, content=b"new"):
        """As an editor does."""
        new = os.path.join(self.directory, "#tmp#")
        write(new, content)
        os.rename(new, self.path)


# How many names each change is tried with.
COUNT = min(len(NAMES), int(os.environ.get("NAMES", 16)))


# Each does something before the other looks and something after, and tells what must be seen.
def made(place):
    yield
    place.put(b"new")
    yield b"new"


def removed(place):
    place.put(b"old")
    yield
    os.unlink(place.path)
    yield "ENOENT"


def renamed_away(place):
    place.put(b"old")
    yield
    os.rename(place.path, place.second)
    yield "ENOENT"


def renamed_to_it(place):
    write(place.second, b"new")
    yield
    os.rename(place.second, place.path)
    yield b"new"


def replaced(place):
    place.put(b"old")
    yield
    place.save()
    yield b"new"


def replaced_while_open(place):
    place.put(b"old")
    with open(place.path):
        yield
        place.save()
        yield b"new"


def replaced_with_a_second_link(place):
    place.put(b"old")
    os.link(place.path, place.second)
    yield
    place.save()
    yield b"new"


def renamed_and_made_anew(place):
    place.put(b"old")
    yield
    os.rename(place.path, place.second)
    place.put(b"new")
    yield b"new"


def exchanged(place):
    place.put(b"old")
    write(place.second, b"new")
    yield
    kernel.exchange(place.path, place.second)
    yield b"new"


def renamed_without_replacing(place):
    write(place.second, b"new")
    yield
    kernel.renameat2(place.second, place.path, kernel.NOREPLACE)
    yield b"new"


def linked(place):
    write(place.second, b"new")
    yield
    os.link(place.second, place.path)
    yield b"new"


def written(place):
    place.put(b"old")
    yield
    write(place.path, b"new", "r+b")
    yield b"new"


def made_by_another_case(place):
    """Another name that folds together with it is made: it is not there by that."""
    other = place.name.swapcase()
    yield
    if other != place.name and len(os.fsencode(other)) <= 255:
        write(os.path.join(place.directory, other), b"other")
    yield "ENOENT"


def renamed_to_another_case(place):
    other = place.name.swapcase()
    place.put(b"old")
    yield
    if other == place.name or len(os.fsencode(other)) > 255:
        os.unlink(place.path)
    else:
        os.rename(place.path, os.path.join(place.directory, other))
    yield "ENOENT"


CHANGES = [
    made,
    removed,
    renamed_away,
    renamed_to_it,
    replaced,
    replaced_while_open,
    replaced_with_a_second_link,
    renamed_and_made_anew,
    exchanged,
    renamed_without_replacing,
    linked,
    written,
    made_by_another_case,
    renamed_to_another_case,
]


def stays_wrong_for(path, wanted):
    """How long the other goes on to see something else, up to 30 s."""
    began = time.monotonic()
    while outcome(read, path) != wanted and time.monotonic() - began < 30:
        time.sleep(0.02)
    return time.monotonic() - began


def each_change_of_each_name():
    wrong, count = [], 0
    for change in CHANGES:
        for name in rng.sample(list(map(os.fsdecode, NAMES)), COUNT):
            place = Place(name)
            steps = change(place)
            next(steps)
            path = elsewhere(place.path)
            before = outcome(read, path)
            wanted = next(steps)
            got = outcome(read, path)
            count += 1
            if got != wanted:
                # Not for all: of those that are wrong each could take half a minute.
                took = stays_wrong_for(path, wanted) if not wrong else 0
                wrong.append((change.__name__, name, before, got, wanted, round(took, 1)))
            steps.close()
            shutil.rmtree(place.directory)
    for change, name, before, got, wanted, took in wrong[:20]:
        what = "%s, %a: before %s, then %s, right %s" % (change, name[:20], before, got, wanted)
        check(False, what + (" after %s s" % took if took else ""))
    check(not wrong, "%d changes, seen wrong: %d" % (count, len(wrong)))


def directories_too():
    wrong = []
    for name in map(os.fsdecode, NAMES):
        place = Place(name)
        other = elsewhere(place.path)
        before = outcome(os.listdir, other)
        os.mkdir(place.path)
        write(os.path.join(place.path, "in"))
        made_ = outcome(os.listdir, other)
        os.rename(place.path, place.second)
        os.mkdir(place.path)
        anew = outcome(os.listdir, other)
        os.rmdir(place.path)
        gone = outcome(os.listdir, other)
        if (before, made_, anew, gone) != ("ENOENT", ["in"], [], "ENOENT"):
            wrong.append((name[:20], before, made_, anew, gone))
    check(
        not wrong, "directories made, moved, made anew, removed: %a" % (wrong[:5] or "as they are")
    )


def appends_go_to_the_right_file():
    """An append with fsync, through the name as it is now."""
    wrong = []
    for name in map(os.fsdecode, NAMES):
        place = Place(name)
        place.put(b"old\n")
        read(elsewhere(place.path))
        os.link(place.path, place.second)
        place.save(b"new\n")
        fd = os.open(elsewhere(place.path), os.O_WRONLY | os.O_APPEND)
        os.write(fd, b"appended\n")
        os.fsync(fd)
        os.close(fd)
        got = read(place.path), read(place.second)
        if got != (b"new\nappended\n", b"old\n"):
            wrong.append((name[:20], got))
    check(not wrong, "appends after a replacement: %a" % (wrong[:3] or "all in the right file"))


def many_in_one_directory():
    """Names that fold together, side by side, changed in an order that is drawn."""
    directory, model, wrong = make_directory(), {}, []
    names = list(map(os.fsdecode, NAMES))
    for number in range(600):
        here, there = rng.sample([directory, elsewhere(directory)], 2)
        name, other = rng.sample(names, 2)
        act = rng.choice(["write", "write", "remove", "rename", "look", "look"])
        if act == "write":
            model[name] = b"%d" % number
            write(os.path.join(here, name), model[name])
        elif act == "remove" and name in model:
            os.unlink(os.path.join(here, name))
            del model[name]
        elif act == "rename" and name in model:
            os.rename(os.path.join(here, name), os.path.join(here, other))
            model[other] = model.pop(name)
        for look in (name, other):
            got = outcome(read, os.path.join(there, look))
            if got != model.get(look, "ENOENT"):
                wrong.append((number, act, look[:20], got))
    check(not wrong, "600 changes in one directory, seen wrong: %a" % (wrong[:3] or "none"))
    listed = [sorted(os.listdir(side)) for side in (directory, elsewhere(directory))]
    check(listed == [sorted(model)] * 2, "and both list the same %d names" % len(model))


if __name__ == "__main__":
    main(
        each_change_of_each_name,
        directories_too,
        appends_go_to_the_right_file,
        many_in_one_directory,
    )
