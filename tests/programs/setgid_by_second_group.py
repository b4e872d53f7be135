#!/usr/bin/env -S python3 -B
"""A user who is in a group by a further group of his may set the set-group-id bit for it, and
nobody else keeps it.

Reports: juicedata/juicefs #6940 and #7231: chmod g+s by the owner of a directory does nothing,
and says nothing, when the directory's group is only one of his further groups. The kernel's rule
(setattr_should_drop_sgid) must hold for chmod, creat, mkdir, ACLs, changes of owner, and writes
by others.
"""

import os

from trial import HERE, THERE, Skip, as_user, check, command, fresh, main, mode, needs, write

OWNER, FIRST, SECOND, FOREIGN, STRANGER = 12345, 12345, 23456, 34567, 54321


def member(call, *arguments):
    return as_user(OWNER, FIRST, [FIRST, SECOND], call, *arguments)


def owned_file(group, bits):
    path = os.path.join(HERE, fresh())
    write(path)
    os.chown(path, OWNER, group)
    os.chmod(path, bits)
    return path


def owned_directory(group=SECOND, bits=0o775):
    path = os.path.join(HERE, fresh())
    os.mkdir(path)
    os.chown(path, OWNER, group)
    os.chmod(path, bits)
    return path


def chmod_by_a_member():
    directory, program = owned_directory(), owned_file(SECOND, 0o755)
    check(member(os.chmod, directory, 0o2775) is None, "chmod 2775 of a directory is allowed")
    check(mode(directory) == "0o2775", "a directory has the bit after it: %s" % mode(directory))
    member(os.chmod, program, 0o2755)
    check(mode(program) == "0o2755", "a program after chmod 2755: %s" % mode(program))
    member(os.chmod, program, 0o2644)
    check(mode(program) == "0o2644", "a file without group execution, 2644: %s" % mode(program))


def chmod_by_one_who_is_not_in_the_group():
    program, directory = owned_file(FOREIGN, 0o755), owned_directory(FOREIGN)
    member(os.chmod, program, 0o2755)
    check(
        mode(program) == "0o755",
        "a program of a foreign group after chmod 2755: %s" % mode(program),
    )
    member(os.chmod, directory, 0o2775)
    check(
        mode(directory) == "0o775", "a directory of a foreign group after it: %s" % mode(directory)
    )


def made_in_a_directory_with_the_bit():
    directory = owned_directory(bits=0o2775)
    os.chmod(directory, 0o2777)
    file, sub, foreign = (os.path.join(directory, fresh()) for _ in range(3))

    def make(file, sub):
        os.umask(0)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o2755))
        if sub:
            os.mkdir(sub, 0o775)

    check(member(make, file, sub) is None, "a member makes a program and a directory there")
    check(mode(file) == "0o2755", "creat with 2755 by a member: %s" % mode(file))
    check(os.stat(file).st_gid == SECOND, "and it has the directory's group")
    check(mode(sub) == "0o2775" and os.stat(sub).st_gid == SECOND, "mkdir there: %s" % mode(sub))
    as_user(STRANGER, STRANGER, [], make, foreign, None)
    check(
        mode(foreign) == "0o755",
        "creat with 2755 by one who is not in the group: %s" % mode(foreign),
    )


def writes_take_the_bit():
    for bits, kept in ((0o2777, "0o777"), (0o2666, "0o666")):
        path = owned_file(SECOND, bits)
        as_user(STRANGER, STRANGER, [], write, path, b"x", "ab")
        check(mode(path) == kept, "%o after a write by a stranger: %s" % (bits, mode(path)))
    path = owned_file(SECOND, 0o2666)
    member(write, path, b"x", "ab")
    check(
        mode(path) == "0o2666", "2666, no group execution, after a member's write: %s" % mode(path)
    )
    path = owned_file(SECOND, 0o6777)
    as_user(STRANGER, STRANGER, [], os.truncate, path, 10)
    check(mode(path) == "0o777", "6777 after truncate by a stranger: %s" % mode(path))


def writes_through_the_other_mount_take_the_bit():
    path = owned_file(SECOND, 0o2666)
    other = path.replace(HERE, THERE, 1)
    os.stat(other)
    as_user(STRANGER, STRANGER, [], write, other, b"x", "ab")
    check(mode(path) == "0o666", "2666 after a stranger's write through the other: %s" % mode(path))


def acl_by_a_member():
    needs("setfacl")
    path = owned_file(SECOND, 0o2775)
    ended = member(lambda: command("setfacl", "-m", "u:daemon:rwx", path).said)
    if "not supported" in str(ended):
        raise Skip("no ACLs here")
    check(mode(path) == "0o2775", "2775 after setfacl by a member: %s %s" % (mode(path), ended))
    foreign = owned_file(FOREIGN, 0o2775)
    member(lambda: command("setfacl", "-m", "u:daemon:rwx", foreign).said)
    check(mode(foreign) == "0o775", "of a foreign group, after it: %s" % mode(foreign))


def chgrp_by_a_member():
    path = owned_file(FIRST, 0o2755)
    check(member(os.chown, path, -1, SECOND) is None, "chgrp to a second group is allowed")
    check(mode(path) == "0o755", "2755 after chgrp by its owner: %s" % mode(path))
    check(os.stat(path).st_gid == SECOND, "and the group is the new one")
    check(member(os.chown, path, -1, FOREIGN) == "EPERM", "chgrp to a foreign group is EPERM")


if __name__ == "__main__":
    main(
        chmod_by_a_member,
        chmod_by_one_who_is_not_in_the_group,
        made_in_a_directory_with_the_bit,
        writes_take_the_bit,
        writes_through_the_other_mount_take_the_bit,
        acl_by_a_member,
        chgrp_by_a_member,
    )
