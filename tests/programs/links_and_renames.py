#!/usr/bin/env -S python3 -B
"""Links, renames over them, exchanges and symbolic links that are replaced, each step on the
mount that a pattern says.

Reports: juicedata/juicefs #7502, Barre/ZeroFS #278, marmos91/dittofs #1160, docker/for-mac #7687
(RENAME_EXCHANGE), microsoft/WSL #8443 and #13105 (open, rename, fstat), cubefs/cubefs #1578 (ln
-sf right after a build), seaweedfs #3386 (link counts). After each step both mounts must show the
same.
"""

import os

import kernel
from trial import HERE, THERE, TWO, both, check, error_of, fresh, main, read, write


class Turns:
    """A directory, whose path depends on the step: bit `step` of the pattern says through which
    mount."""

    def __init__(self, pattern):
        self.pattern, self.name = pattern, fresh()
        os.mkdir(os.path.join(HERE, self.name))

    def at(self, step, *names):
        side = THERE if self.pattern >> (step % 3) & 1 else HERE
        return os.path.join(side, self.name, *names)

    def check(self, good, what):
        check(good, "pattern %d: %s" % (self.pattern, what))


def each_pattern():
    for pattern in range(8 if TWO else 1):
        yield Turns(pattern)


def links_of(path):
    return [os.lstat(side).st_nlink for side in both(path)]


def contents_of(path):
    return [read(side) for side in both(path)]


def same(values, wanted):
    return all(value == wanted for value in values)


def link_again_and_replace():
    for turn in each_pattern():
        one, link, other = fresh(), fresh(), fresh()
        write(turn.at(0, one))
        os.link(turn.at(1, one), turn.at(1, link))
        os.unlink(turn.at(2, link))
        write(turn.at(0, other))
        os.link(turn.at(1, one), turn.at(1, link))
        e = error_of(os.rename, turn.at(2, other), turn.at(2, link))
        turn.check(e is None, "link, unlink, link, replace: %s" % e)
        lists = [sorted(os.listdir(side)) for side in both(turn.at(0))]
        turn.check(same(lists, sorted([one, link])), "both names are listed")
        turn.check(same(links_of(turn.at(0, one)), 1), "one link is left")


def rename_to_another_link_of_the_same():
    for turn in each_pattern():
        one, link = fresh(), fresh()
        write(turn.at(0, one))
        os.link(turn.at(0, one), turn.at(0, link))
        e = error_of(os.rename, turn.at(1, one), turn.at(1, link))
        links = links_of(turn.at(0, one)) + links_of(turn.at(0, link))
        turn.check(
            e is None and same(links, 2), "rename of one link to another does nothing: %s" % e
        )
        os.unlink(turn.at(2, link))
        turn.check(same(links_of(turn.at(0, one)), 1), "one link again")


def special_files_over_a_file():
    for turn in each_pattern():
        for what, make in (
            ("fifo", os.mkfifo),
            ("symbolic link", lambda path: os.symlink("x", path)),
            ("device", lambda path: os.mknod(path, 0o60644, 5)),
        ):
            one, link, target = fresh(), fresh(), fresh()
            make(turn.at(0, one))
            os.link(turn.at(1, one), turn.at(1, link), follow_symlinks=False)
            write(turn.at(0, target))
            e = error_of(os.rename, turn.at(2, one), turn.at(2, target))
            good = e is None and same(links_of(turn.at(0, target)), 2)
            turn.check(good, "%s over a file: %s" % (what, e))


def exchange_of_two():
    for turn in each_pattern():
        one, other = fresh(), fresh()
        write(turn.at(0, one), b"one")
        write(turn.at(1, other), b"other")
        e = error_of(kernel.exchange, turn.at(2, one), turn.at(2, other))
        good = same(contents_of(turn.at(0, one)), b"other") and same(
            contents_of(turn.at(0, other)), b"one"
        )
        turn.check(e is None and good, "exchange: %s" % e)


def exchange_of_file_and_directory():
    for turn in each_pattern():
        file, directory, inside = fresh(), fresh(), fresh()
        write(turn.at(0, file), b"file")
        os.mkdir(turn.at(0, directory))
        write(turn.at(1, directory, inside), b"in")
        e = error_of(kernel.exchange, turn.at(2, directory), turn.at(2, file))
        good = same(contents_of(turn.at(0, file, inside)), b"in")
        good = good and same(contents_of(turn.at(0, directory)), b"file")
        turn.check(e is None and good, "exchange of file and directory: %s" % e)
        e = error_of(kernel.renameat2, turn.at(0, file), turn.at(0, directory), kernel.NOREPLACE)
        turn.check(e == "EEXIST", "NOREPLACE over one that is there: %s" % e)
        e = error_of(kernel.renameat2, turn.at(1, file), turn.at(1, fresh()), kernel.NOREPLACE)
        turn.check(e is None, "NOREPLACE to a new name: %s" % e)
        e = error_of(kernel.exchange, turn.at(2, directory), turn.at(2, fresh()))
        turn.check(e == "ENOENT", "exchange with nothing: %s" % e)


def exchange_across_directories():
    for turn in each_pattern():
        here, there, one, other = (fresh() for _ in range(4))
        os.mkdir(turn.at(0, here))
        os.mkdir(turn.at(1, there))
        os.mkdir(turn.at(2, here, one))
        os.mkdir(turn.at(0, there, other))
        write(turn.at(1, here, one, "in"), b"one")
        e = error_of(kernel.exchange, turn.at(2, here, one), turn.at(2, there, other))
        good = same(contents_of(turn.at(0, there, other, "in")), b"one")
        lists = [os.listdir(side) for side in both(turn.at(0, here, one))]
        turn.check(e is None and good and same(lists, []), "exchange of directories: %s" % e)


def rename_of_one_that_is_open():
    for turn in each_pattern():
        one, new = fresh(), fresh()
        fd = os.open(turn.at(0, one), os.O_CREAT | os.O_RDWR)
        os.rename(turn.at(1, one), turn.at(1, new))
        e = error_of(os.fstat, fd)
        os.write(fd, b"1")
        os.close(fd)
        good = e is None and same(contents_of(turn.at(0, new)), b"1")
        turn.check(good, "open, rename, fstat, write: %s" % e)


def replaced_symbolic_links():
    for turn in each_pattern():
        link, wrong = fresh(), []
        for number in range(40):
            # A rename is through one mount, with both names.
            new = fresh()
            os.symlink("target%d" % number, turn.at(number, new))
            os.rename(turn.at(number + 1, new), turn.at(number + 1, link))
            for side in both(turn.at(0, link)):
                if os.readlink(side) != "target%d" % number:
                    wrong.append((number, os.readlink(side)))
        turn.check(not wrong, "ln -sf 40 times: %s" % (wrong[:3] or "each seen at once"))


def same_name_with_other_letters():
    """Names that fold together are different names: each rename moves the one that was said."""
    for turn in each_pattern():
        write(turn.at(0, "Makefile"), b"big")
        write(turn.at(1, "makefile"), b"small")
        e = error_of(os.rename, turn.at(2, "makefile"), turn.at(2, "MAKEFILE"))
        lists = [sorted(os.listdir(side)) for side in both(turn.at(0))]
        turn.check(
            e is None and same(lists, ["MAKEFILE", "Makefile"]), "renamed to capitals: %s" % lists
        )
        e = error_of(kernel.exchange, turn.at(0, "MAKEFILE"), turn.at(0, "Makefile"))
        good = same(contents_of(turn.at(0, "MAKEFILE")), b"big")
        turn.check(e is None and good, "exchanged: %s" % e)
        os.rename(turn.at(1, "MAKEFILE"), turn.at(1, "Makefile"))
        good = same(contents_of(turn.at(0, "Makefile")), b"big")
        lists = [os.listdir(side) for side in both(turn.at(0))]
        turn.check(good and same(lists, ["Makefile"]), "one replaced the other: %s" % lists)


if __name__ == "__main__":
    main(
        link_again_and_replace,
        rename_to_another_link_of_the_same,
        special_files_over_a_file,
        exchange_of_two,
        exchange_of_file_and_directory,
        exchange_across_directories,
        rename_of_one_that_is_open,
        replaced_symbolic_links,
        same_name_with_other_letters,
    )
