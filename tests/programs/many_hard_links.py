#!/usr/bin/env -S python3 -B
"""Thousands of links to one file, in one directory and in many: counted right, and nothing slows
down with them.

Reports: RsyncProject/rsync #741, tuna/opentuna #39 (EFS: 177 links at most), rsbackup #85,
seaweedfs #1243 and #2102: backups by --link-dest, stores of package managers. LINKS=n is their
number.
"""

import os
import shutil
import time

from trial import HERE, check, elsewhere, fresh, main, note, write

LINKS = int(os.environ.get("LINKS", 1500))


def thousands():
    path = os.path.join(HERE, fresh())
    write(path, b"x" * 100)
    directories, began = [], time.monotonic()
    for number in range(LINKS):
        if number % 100 == 0:
            directories.append(os.path.join(HERE, fresh()))
            os.mkdir(directories[-1])
        os.link(path, os.path.join(directories[-1], str(number)))
    made = time.monotonic() - began
    links = os.stat(elsewhere(path)).st_nlink
    check(links == LINKS + 1, "%d links: %d are told" % (LINKS, links))
    began = time.monotonic()
    inodes = {
        os.lstat(os.path.join(parent, name)).st_ino
        for parent, _, names in os.walk(elsewhere(HERE))
        for name in names
    }
    looked = time.monotonic() - began
    check(len(inodes) == 1, "all are one file: %d" % len(inodes))
    began = time.monotonic()
    shutil.rmtree(elsewhere(directories[0]))
    links = os.stat(path).st_nlink
    check(links == LINKS - 99, "100 fewer: %d" % links)
    os.chmod(path, 0o600)
    for directory in directories[1:]:
        shutil.rmtree(directory)
    stat = os.stat(elsewhere(path))
    check(stat.st_nlink == 1 and stat.st_mode & 0o777 == 0o600, "one is left: %d" % stat.st_nlink)
    removed = time.monotonic() - began
    note(
        "%d links: made in %.2f s, looked at in %.2f s, removed in %.2f s"
        % (LINKS, made, looked, removed)
    )


if __name__ == "__main__":
    main(thousands)
