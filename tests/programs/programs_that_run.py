#!/usr/bin/env -S python3 -B
"""A program runs right after it was written, cannot be written while it runs, and goes on when it
is replaced.

Reports: google/gvisor #1005 (a program that runs is overwritten and dies), pantsbuild/pants
#10507, macfuse #1181.
"""

import os
import shutil
import subprocess
import time

from trial import HERE, TWO, check, command, elsewhere, error_of, fresh, main, needs, note, scratch
from trial import write

SOURCE = r"""
#include <stdio.h>
#include <unistd.h>
int table[300000] = {1, 2, 3};
int main(int count, char **arguments) {
    int sum = 0;
    if (count > 1) read(0, &sum, 1);
    sum = 0;
    for (int i = 0; i < 300000; i++) sum += table[i];
    printf("v%d %d\n", VERSION, sum);
    return 0;
}
"""


def program(version):
    needs("gcc")
    source, built = scratch("program.c"), os.path.join(HERE, fresh())
    write(source, SOURCE.encode())
    # gcc takes a name that begins with a dash, or has odd bytes, only within a path.
    ended = command("gcc", "-DVERSION=%d" % version, "-o", built, source)
    check(ended.returncode == 0, "gcc writes it: %s" % ended.said)
    return built


def said(path):
    return command(path).stdout


class Running:
    """One that runs until it is told."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [path, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        # Until exec has happened, the program has not begun.
        while os.readlink("/proc/%d/exe" % self.process.pid) == os.readlink("/proc/self/exe"):
            time.sleep(0.01)

    def end(self):
        return self.process.communicate("x")[0], self.process.returncode


def right_after_it_was_linked():
    path = program(1)
    got = said(path)
    check(got == "v1 6\n", "run where it was linked: %r" % got)
    got = said(elsewhere(program(2)))
    check(got == "v2 6\n", "run through the other: %r" % got)


def written_while_it_runs():
    path = program(1)
    running = Running(path)
    e = error_of(os.open, path, os.O_WRONLY)
    check(e == "ETXTBSY", "opened to write: %s" % e)
    e = error_of(os.truncate, path, 10)
    check(e == "ETXTBSY", "truncated: %s" % e)
    check(running.end() == ("v1 6\n", 0), "it goes on")
    if TWO:
        running = Running(path)
        e = error_of(lambda: os.close(os.open(elsewhere(path), os.O_WRONLY)))
        note("opened to write through the other while it runs here: %s (NFS allows that, too)" % e)
        check(running.end() == ("v1 6\n", 0), "it goes on after that")


def replaced_while_it_runs():
    path, new = program(1), program(2)
    running = Running(path)
    copy = os.path.join(elsewhere(HERE), "copy")
    shutil.copy(elsewhere(new), copy)
    os.rename(copy, elsewhere(path))
    got = running.end()
    check(
        got == ("v1 6\n", 0), "replaced by rename while it runs, it goes on as it was: %s" % (got,)
    )
    check(said(path) == "v2 6\n", "and the next is the new one")


def unlinked_while_it_runs():
    path = program(2)
    running = Running(path)
    os.unlink(elsewhere(path))
    got = running.end()
    check(got == ("v2 6\n", 0), "unlinked while it runs: %s" % (got,))


def run_while_it_is_open_to_write():
    path = program(1)
    fd = os.open(path, os.O_WRONLY)
    e = error_of(lambda: subprocess.run([path]))
    check(e == "ETXTBSY", "run while somebody has it open to write: %s" % e)
    os.close(fd)
    check(said(path) == "v1 6\n", "and after it was closed")


def scripts_that_are_written_and_run():
    path, wrong = os.path.join(HERE, fresh()), []
    for number in range(60):
        write(path, b"#!/bin/sh\necho %d\n" % number)
        os.chmod(path, 0o755)
        got = command(elsewhere(path)).stdout
        if got != "%d\n" % number:
            wrong.append((number, got))
    check(not wrong, "60 scripts, each run right after it was written: %s" % (wrong[:3] or "right"))


if __name__ == "__main__":
    main(
        right_after_it_was_linked,
        written_while_it_runs,
        replaced_while_it_runs,
        unlinked_while_it_runs,
        run_while_it_is_open_to_write,
        scripts_that_are_written_and_run,
    )
