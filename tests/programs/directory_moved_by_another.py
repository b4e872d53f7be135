#!/usr/bin/env -S python3 -B
"""A directory that another machine has moved is where it is now, for paths, descriptors, renames
and getcwd.

Reports: juicedata/juicefs #6597 (O_CREAT by the old path lands in the trash after another client
replaced the directory by rename), #6593 (what another client deleted cannot be made again), #5711
and #3476 (crossed renames make a loop). Linux finds a directory that has moved under its old
parent and cannot splice it while it holds its rename lock, so rename(2) of it is the hard case,
for all three kinds of rename.
"""

import os
import shutil

import kernel
from trial import (
    HERE,
    SIDES,
    THERE,
    TWO,
    both,
    check,
    elsewhere,
    error_of,
    fresh,
    main,
    outcome,
    read,
)
from trial import skip, together, write


def sides(number):
    """Here and there, or there and here."""
    return (THERE, HERE) if number % 2 else (HERE, THERE)


def old_path_is_gone():
    wrong = []
    for number in range(20):
        a, b = sides(number)
        active, backup = fresh(), fresh()
        os.mkdir(os.path.join(a, active))
        os.mkdir(os.path.join(b, backup))
        write(os.path.join(b, active, "warm"))
        os.unlink(os.path.join(a, active, "warm"))
        os.listdir(os.path.join(a, active))
        os.rename(os.path.join(b, active), os.path.join(b, backup))
        e = error_of(write, os.path.join(a, active, fresh()))
        left = os.listdir(os.path.join(a, backup)) + os.listdir(os.path.join(b, backup))
        if e != "ENOENT" or left:
            wrong.append((e, left))
        os.rmdir(os.path.join(b, backup))
    check(not wrong, "O_CREAT by a path that is gone, 20 times: %a" % (wrong[:3] or "ENOENT"))


def by_a_descriptor():
    wrong = []
    for number in range(20):
        a, b = sides(number)
        old, new, made = fresh(), fresh(), fresh()
        os.mkdir(os.path.join(a, old))
        fd = os.open(os.path.join(a, old), os.O_RDONLY)
        os.rename(os.path.join(b, old), os.path.join(b, new))
        os.close(os.open(made, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        listed = os.listdir(os.path.join(b, new))
        if listed != [made]:
            wrong.append(listed)
        os.close(fd)
        shutil.rmtree(os.path.join(b, new))
    check(not wrong, "made by a descriptor of a moved directory: %a" % (wrong[:3] or "is there"))


def getcwd_of_one_that_stands_in_it():
    # Until it finds the directory by its new name, and nobody can tell it of that.
    TWO and skip("Linux goes on with the path of a directory that another machine has moved")
    wrong = []
    for number in range(20):
        a, b = sides(number)
        old, new, parent = fresh(), fresh(), fresh()
        os.mkdir(os.path.join(a, old))
        os.mkdir(os.path.join(a, parent))
        # Into another directory every other time.
        new = os.path.join(parent, new) if number // 2 % 2 else new
        os.chdir(os.path.join(a, old))
        os.rename(os.path.join(b, old), os.path.join(b, new))
        got = outcome(os.getcwd)
        if got != os.path.join(a, new):
            wrong.append(got)
        os.chdir("/")
        os.rmdir(os.path.join(b, new))
    check(not wrong, "getcwd in a moved directory: %a" % (wrong[:2] or "where it is now"))


def deleted_there_and_made_here():
    wrong = []
    for number in range(20):
        a, b = sides(number)
        name = fresh()
        one, other = os.path.join(a, name), os.path.join(b, name)
        write(one)
        os.chmod(other, 0o600)
        os.unlink(one)
        e = error_of(write, other)
        if e or not os.path.exists(one):
            wrong.append(e or "not seen by the one that deleted it")
        os.unlink(other)
    check(not wrong, "made again after the other deleted it: %s" % (wrong[:3] or "20 times"))


def moved():
    """A directory that one machine knows at its old place, and that the other has moved since."""
    parent, target, name, new = (fresh() for _ in range(4))
    for path in (parent, target, os.path.join(parent, name)):
        os.mkdir(os.path.join(HERE, path))
    write(os.path.join(HERE, parent, name, "in"), b"in")
    os.stat(os.path.join(HERE, parent, name, "in"))
    os.rename(
        elsewhere(os.path.join(HERE, parent, name)), elsewhere(os.path.join(HERE, target, new))
    )
    return os.path.join(HERE, parent, name), os.path.join(HERE, target, new)


def there_is(path, what):
    got = [outcome(read, os.path.join(side, "in")) for side in both(path)]
    check(all(content == b"in" for content in got), "%s: it is there: %s" % (what, got))


def rename_of_a_moved_one():
    """No call looks at it between the move there and the rename here."""
    for what, flags in (("plain", 0), ("NOREPLACE", kernel.NOREPLACE)):
        for onto in ("a new name", "its old name"):
            old, now = moved()
            new = old if onto == "its old name" else os.path.join(HERE, fresh())
            got = outcome(kernel.renameat2, now, new, flags)
            check(got is None, "%s rename of a moved directory to %s: %s" % (what, onto, got))
            there_is(new, "after it")
    old, now = moved()
    other = os.path.join(HERE, fresh())
    os.mkdir(other)
    write(os.path.join(other, "in"), b"in")
    got = outcome(kernel.exchange, now, other)
    check(got is None, "EXCHANGE of a moved directory: %s" % got)
    there_is(now, "after EXCHANGE")
    there_is(other, "after EXCHANGE")
    _, now = moved()
    _, target = moved()
    os.unlink(elsewhere(os.path.join(target, "in")))
    got = outcome(os.rename, now, target)
    check(got is None, "rename of a moved directory over a moved empty one: %s" % got)
    there_is(target, "after it")


def rename_below_a_moved_one():
    _, now = moved()
    got = outcome(os.rename, os.path.join(now, "in"), os.path.join(now, "inside"))
    check(got is None, "rename of a file below a moved directory: %s" % got)
    _, now = moved()
    outside = os.path.join(HERE, fresh())
    got = outcome(os.rename, os.path.join(now, "in"), outside)
    check(got is None and read(elsewhere(outside)) == b"in", "and out of it: %s" % got)
    _, now = moved()
    file = os.path.join(HERE, fresh())
    write(file, b"in")
    os.unlink(os.path.join(elsewhere(now), "in"))
    got = outcome(os.rename, file, os.path.join(now, "in"))
    check(got is None, "and into it: %s" % got)
    there_is(now, "after it")


def other_calls_on_a_moved_one():
    for what, call in (
        ("stat", os.stat),
        ("listdir", os.listdir),
        ("chmod", lambda path: os.chmod(path, 0o711)),
        ("mkdir in it", lambda path: os.mkdir(os.path.join(path, fresh()))),
        ("chdir", os.chdir),
        ("setxattr", lambda path: os.setxattr(path, "user.x", b"y")),
        ("removal", shutil.rmtree),
    ):
        old, now = moved()
        got = outcome(call, now)
        check(not isinstance(got, str), "%s of a moved directory: %s" % (what, got))
        got = error_of(os.stat, old)
        check(got == "ENOENT", "%s: its old name is gone: %s" % (what, got))
        os.chdir("/")


def moved_to_and_fro():
    """Two machines move a directory in turns, each without a look at where it was put."""
    places = [os.path.join(HERE, fresh()) for _ in range(3)]
    for place in places:
        os.mkdir(place)
    name, wrong = fresh(), []
    os.mkdir(os.path.join(places[0], name))
    for number in range(60):
        side = both(HERE)[number % len(SIDES)]
        source, target = places[number % 3], places[(number + 1) % 3]
        paths = [os.path.join(p, name).replace(HERE, side, 1) for p in (source, target)]
        e = error_of(os.rename, *paths)
        if e:
            wrong.append((number, e))
            break
    check(not wrong, "moved in turns: %s" % (wrong or "60 times"))


def crossed_renames():
    """Renames of a/ into c/ and c/ into a/ at once: one must fail, and all stays reachable."""
    wrong = []
    for _ in range(150 if TWO else 40):
        root = os.path.join(HERE, fresh())
        os.makedirs(root + "/a/b")
        os.makedirs(root + "/c/d")
        other, ended = elsewhere(root), {}
        together(
            lambda: ended.update(a=error_of(os.rename, root + "/a", root + "/c/d/a")),
            lambda: ended.update(c=error_of(os.rename, other + "/c", other + "/a/b/c")),
        )
        found = sum(1 for _ in os.walk(root))
        if list(ended.values()).count(None) != 1 or found != 5:
            wrong.append((ended, found))
        shutil.rmtree(root)
    check(not wrong, "crossed renames: %s" % (wrong[:3] or "one fails, nothing is lost"))


if __name__ == "__main__":
    main(
        old_path_is_gone,
        by_a_descriptor,
        getcwd_of_one_that_stands_in_it,
        deleted_there_and_made_here,
        rename_of_a_moved_one,
        rename_below_a_moved_one,
        other_calls_on_a_moved_one,
        moved_to_and_fro,
        crossed_renames,
    )
