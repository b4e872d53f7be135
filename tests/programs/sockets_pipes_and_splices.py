#!/usr/bin/env -S python3 -B
"""Sockets and fifos in the mount talk, and content goes to and from files by sendfile, splice and
copy_file_range.

Reports: docker-library/postgres #213, gpg-agent, mysql and tmux on network homes; libuv #3117
(sendfile), golang/go #42334 (copy_file_range on CIFS).
"""

import os
import socket

from trial import (
    HERE,
    check,
    command,
    elsewhere,
    error_of,
    fresh,
    main,
    read,
    scratch,
    together,
    write,
)

DATA = bytes(range(256)) * 20000


def new():
    return os.path.join(HERE, fresh())


def unix_socket():
    # A socket's path has 107 bytes at most: it is said from where it is.
    os.chdir(HERE)
    name = fresh(80)
    listening, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    listening.bind(name)
    listening.listen()
    e = error_of(client.connect, name)
    check(e is None, "connects: %s" % e)
    accepted, _ = listening.accept()
    client.send(b"hi")
    got = accepted.recv(10)
    check(got == b"hi", "talks: %r" % got)
    check(
        os.lstat(elsewhere(os.path.join(HERE, name))).st_mode & 0o170000 == 0o140000,
        "a socket there, too",
    )
    os.unlink(name)
    e = error_of(socket.socket(socket.AF_UNIX).connect, name)
    check(e == "ENOENT", "unlinked: %s" % e)


def fifo():
    path, got = new(), []
    os.mkfifo(path)
    together(lambda: got.append(read(path)), lambda: write(path, b"through"))
    check(got == [b"through"], "a fifo: %s" % got)


def opened_source():
    path = new()
    write(path, DATA)
    return os.open(elsewhere(path), os.O_RDONLY)


def all_of(step):
    """Repeats a call, which is given how much is done, until all is."""
    done = 0
    while done < len(DATA):
        count = step(done)
        if count <= 0:
            break
        done += count
    return done


def copied_by_range():
    source, path = opened_source(), new()
    target = os.open(path, os.O_RDWR | os.O_CREAT)
    done = all_of(lambda done: os.copy_file_range(source, target, 3 << 20, done, done))
    good = read(elsewhere(path)) == DATA
    check(good, "copy_file_range: %d of %d" % (done, len(DATA)))
    count = os.copy_file_range(target, target, 100000, 0, 3000000)
    good = count == 100000 and os.pread(target, 100000, 3000000) == DATA[:100000]
    check(good, "within one file: %d" % count)
    e = error_of(os.copy_file_range, target, target, 100, 0, 50)
    check(e == "EINVAL", "overlapping: %s" % e)
    count = os.copy_file_range(source, target, 100, len(DATA) + 5, 0)
    check(count == 0, "beyond the end: %d" % count)


def sent():
    source, out = opened_source(), scratch("sent")
    target = os.open(out, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    all_of(lambda done: os.sendfile(target, source, done, len(DATA) - done))
    check(read(out) == DATA, "sendfile out of it")
    path = new()
    into = os.open(path, os.O_RDWR | os.O_CREAT)
    all_of(lambda done: os.sendfile(into, target, done, len(DATA) - done))
    check(read(elsewhere(path)) == DATA, "sendfile into it")


def spliced():
    source, path = opened_source(), new()
    target = os.open(path, os.O_WRONLY | os.O_CREAT)
    out, into = os.pipe()

    def step(done):
        count, moved = os.splice(source, into, 65536, offset_src=done), 0
        while moved < count:
            moved += os.splice(out, target, count - moved)
        return count

    all_of(step)
    check(read(elsewhere(path)) == DATA, "splice through a pipe")
    appending = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(into, b"more")
    e = error_of(os.splice, out, appending, 4)
    check(e in (None, "EINVAL"), "splice to O_APPEND: %s" % e)


def sent_to_a_socket():
    source = opened_source()
    one, other = socket.socketpair()
    got = bytearray()

    def receive():
        while data := other.recv(1 << 20):
            got.extend(data)

    def send():
        all_of(lambda done: os.sendfile(one.fileno(), source, done, len(DATA) - done))
        one.close()

    together(send, receive)
    check(bytes(got) == DATA, "sendfile to a socket: %d of %d" % (len(got), len(DATA)))


def appended_by_a_shell():
    source, target = os.path.join(HERE, "source"), os.path.join(HERE, "target")
    write(source, DATA)
    line = "cat source >>target && cat source | tee -a target >/dev/null && cat <source >>target"
    ended = command("sh", "-c", "cd '%s' && %s" % (HERE, line))
    good = ended.returncode == 0 and read(elsewhere(target)) == DATA * 3
    check(good, "cat >>, tee -a: %s" % ended.said)


if __name__ == "__main__":
    main(unix_socket, fifo, copied_by_range, sent, spliced, sent_to_a_socket, appended_by_a_shell)
