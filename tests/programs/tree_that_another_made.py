#!/usr/bin/env -S python3 -B
"""A tree that one machine has made is listed, read and removed by the other, whole, and not so
slowly that it hangs.

Reports: rook #2255 and #2590, juicedata/juicefs #2594 (ls of 20,000 files: 10 minutes) and #332,
seaweedfs #1514: git clone, npm install or tar x on one machine. How fast it is is said, and is
wrong above MS milliseconds a file (25, and more on a machine that is slow by itself), which is
what hanging is. DIRECTORIES and FILES in each say how large the tree is.
"""

import os
import time

from trial import HERE, Floor, check, command, elsewhere, main, make_directory, note, read, write

DIRECTORIES, FILES = int(os.environ.get("DIRECTORIES", 10)), int(os.environ.get("FILES", 100))
MS = float(os.environ.get("MS", 25))
COUNT = DIRECTORIES * FILES


def tree():
    top = make_directory()
    for number in range(DIRECTORIES):
        os.mkdir("%s/d%d" % (top, number))
        for file in range(FILES):
            write("%s/d%d/F%d" % (top, number, file), b"x" * (100 + file * 37 % 3000))
    return top


def files_of(top):
    for parent, _, files in os.walk(top):
        for name in files:
            yield os.path.join(parent, name)


def look(top):
    return sum(os.lstat(path).st_size for path in files_of(top))


def read_all(top):
    return sum(len(read(path)) for path in files_of(top))


def remove(top):
    ended = command("rm", "-rf", top)
    check(ended.returncode == 0, "rm -rf ends right: %s" % ended.said)


def timed(what, call, *arguments, limit=True):
    with Floor() as floor:
        began = time.monotonic()
        result = call(*arguments)
        took = time.monotonic() - began
    said = "%s: %.3f ms a file" % (what, 1000 * took / COUNT)
    check(took < floor.bound(MS * COUNT / 1000), said) if limit else note(said)
    return result


def by_its_maker():
    top = timed("made", tree, limit=False)
    timed("its maker looks", look, top, limit=False)
    timed("its maker removes it", remove, top, limit=False)


def by_the_other():
    top = tree()
    size = timed("the other looks", look, elsewhere(top))
    check(
        size == look(top) == COUNT // FILES * sum(100 + n * 37 % 3000 for n in range(FILES)),
        "all sizes",
    )
    timed("the other looks again", look, elsewhere(top))
    timed("the other reads all", read_all, elsewhere(top))
    timed("the other removes it", remove, elsewhere(top))
    check(not os.path.exists(top), "and it is gone")


def by_the_other_at_once():
    timed("the other reads all at once", read_all, elsewhere(tree()))
    timed("the other removes it at once", remove, elsewhere(tree()))


if __name__ == "__main__":
    main(by_its_maker, by_the_other, by_the_other_at_once)
