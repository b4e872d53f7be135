#!/usr/bin/env -S python3 -B
"""Whoever reads a file that another replaces without pause reads it whole, and never an older one
than was there.

Reports: openzfs/zfs #6197 (ESTALE on clients while a file is replaced by rename), microsoft/WSL
#8443, juicedata/juicefs #6323 and #6309 (old content after close).
"""

import os
import threading
import time

import kernel
from trial import HERE, SECONDS, both, check, elsewhere, fresh, main, read, write


def body(number):
    return b"%08d\n" % number * (1 + number % 2000)


def number_of(content):
    return int(content[:8]) if content else -1


class Replaced:
    """One writer, two readers on the other side."""

    def __init__(self, replace):
        self.path, self.replace = os.path.join(HERE, fresh()), replace
        write(self.path, body(0))
        self.stop, self.bad = threading.Event(), []
        self.there, self.reads = 0, 0

    def write(self):
        number = 0
        while not self.stop.is_set():
            number += 1
            self.replace(self.path, body(number))
            # Whoever begins to read from here on must not see an older one.
            self.there = number
            time.sleep(0.002)

    def read(self, path):
        last = 0
        while not self.stop.is_set():
            before = self.there
            try:
                content = read(path)
                os.stat(path)
            except OSError as e:
                self.bad.append("%s after %d" % (e.strerror, before))
                continue
            number = number_of(content)
            if number < 0 or content != body(number):
                self.bad.append("torn: %d bytes, begins %r" % (len(content), content[:20]))
            elif number < max(before, last):
                self.bad.append("old: %d after %d was there" % (number, max(before, last)))
            last = max(last, number)
            self.reads += 1

    def run(self):
        readers = both(self.path) if len(both(self.path)) == 2 else [self.path] * 2
        threads = [threading.Thread(target=self.write)]
        threads += [threading.Thread(target=self.read, args=(path,)) for path in readers]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        self.stop.set()
        for thread in threads:
            thread.join()
        return "%d replacements, %d reads: %s" % (
            self.there,
            self.reads,
            self.bad[:5] or "all right",
        )


def by_rename():
    def replace(path, content):
        new = os.path.join(HERE, "new")
        write(new, content)
        os.rename(new, path)

    replaced = Replaced(replace)
    said = replaced.run()
    check(not replaced.bad, "by rename: " + said)


def by_exchange():
    def replace(path, content):
        new = os.path.join(HERE, "other")
        write(new, content)
        kernel.exchange(new, path)
        # Not written anew: whoever has it open reads on in it.
        os.unlink(new)

    replaced = Replaced(replace)
    said = replaced.run()
    check(not replaced.bad, "by exchange: " + said)


def written_anew_in_place():
    """Close to open: what one has closed the other reads."""
    path, wrong = os.path.join(HERE, fresh()), []
    for number in range(200):
        one, other = (path, elsewhere(path)) if number % 2 else (elsewhere(path), path)
        write(one, body(number))
        content = read(other)
        if content != body(number):
            wrong.append("%d: %d bytes of %d" % (number, len(content), len(body(number))))
    check(not wrong, "200 written anew in place: %s" % (wrong[:5] or "all right"))


if __name__ == "__main__":
    main(by_rename, by_exchange, written_anew_in_place)
