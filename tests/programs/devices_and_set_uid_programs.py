#!/usr/bin/env -S python3 -B
"""Device files and set-uid programs work on a mount by root, as on a disk.

Reports: juicedata/juicefs (debootstrap, chroots), seaweedfs #2102 (LXC), root directories of
docker on network file systems.
"""

import os
import shutil

from trial import HERE, TOP, as_user, check, command, elsewhere, error_of, fresh, main, mode
from trial import needs_root, note, write

USER = 12345


def device_file():
    needs_root()
    path = os.path.join(HERE, fresh())
    os.mknod(path, 0o20666, os.makedev(1, 3))
    for side in (path, elsewhere(path)):
        e = error_of(write, side, b"x", "r+b")
        check(e is None, "null's numbers are written to: %s" % e)


def set_uid_program():
    needs_root()
    path = os.path.join(HERE, fresh())
    shutil.copy("/usr/bin/id", path)
    os.chmod(path, 0o4755)
    for side in (path, elsewhere(path)):
        got = as_user(USER, USER, [], lambda: command(side, "-u").said)
        check(got == "0", "a set-uid program gets its owner: %s" % got)
    as_user(USER, USER, [], os.chmod, path, 0o4755)
    os.chown(path, USER, USER)
    check(mode(path) == "0o755", "given away, it has lost the bit: %s" % mode(path))


def options_of_the_mount():
    for line in open("/proc/self/mountinfo"):
        if line.split()[4] == TOP:
            note("mount options: %s" % line.split()[5])


if __name__ == "__main__":
    main(device_file, set_uid_program, options_of_the_mount)
