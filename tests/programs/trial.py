"""A trial: the directory under test through one mount or two, checks, and the verdict. For the
programs of this directory.

A program is called PROGRAM DIR [DIR2] and works in a new directory below DIR, which is HERE;
THERE is the same directory through DIR2. It ends with 0 if all was right, 1 if something was
wrong, 77 if nothing could be tried here. SEED=n chooses the names, LOOP=n says for how many
seconds parts go on that work against the clock, LONGEST=n when one hangs.
"""

import errno
import faulthandler
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../shared"))
from names import NAMES

# A program that takes longer than this hangs: all of it is ended, and where each process was is
# said.
LONGEST = float(os.environ.get("LONGEST", 600))
SECONDS = float(os.environ.get("LOOP", 5))
PROGRAM = os.path.splitext(os.path.basename(sys.argv[0]))[0]
# EOPNOTSUPP is the same number as ENOTSUP: one name for both.
ERRORS = dict(errno.errorcode) | {errno.EOPNOTSUPP: "EOPNOTSUPP"}

TOP = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else sys.exit(__doc__)
TOP2 = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else TOP
TWO = TOP2 != TOP
HERE = tempfile.mkdtemp(prefix=PROGRAM[:40] + "-", dir=TOP)
THERE = os.path.join(TOP2, os.path.basename(HERE))
SIDES = [HERE, THERE] if TWO else [HERE]
os.chmod(HERE, 0o777)
sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
sys.stderr.reconfigure(errors="backslashreplace")

rng = random.Random(int(os.environ.get("SEED", 1)))
_unused = []
_wrong = []


class Skip(Exception):
    """A part cannot be tried here: why not."""


def skip(why):
    raise Skip(why)


def check(good, what):
    print(("ok     " if good else "WRONG  ") + what)
    if not good:
        _wrong.append(what)
    return good


def note(what):
    print("note   " + what)


def error_of(call, *arguments, **named):
    """The name of the error that the call ends with, or None."""
    try:
        call(*arguments, **named)
    except OSError as e:
        return ERRORS.get(e.errno, str(e.errno))
    return None


def outcome(call, *arguments, **named):
    """The result of the call, or the name of its error."""
    try:
        return call(*arguments, **named)
    except OSError as e:
        return ERRORS.get(e.errno, str(e.errno))


def fresh(longest=255):
    """A name that this trial has not had yet: of any bytes that the interface allows, `longest` at
    most."""
    while True:
        if not _unused:
            _unused.extend(name + b"%d" % rng.randrange(10**6) for name in NAMES if len(name) < 240)
            rng.shuffle(_unused)
        name = _unused.pop()
        if len(name) <= longest:
            return os.fsdecode(name)


_unused.extend(NAMES)
rng.shuffle(_unused)


def elsewhere(path):
    """The same path through the other mount."""
    for side, other in ((HERE, THERE), (THERE, HERE)):
        if (path + "/").startswith(side + "/"):
            return other + path[len(side) :]
    raise ValueError("%a is not of this trial" % path)


def both(path):
    """The path through each mount."""
    return [path, elsewhere(path)] if TWO else [path]


def make_directory(parent=HERE):
    path = os.path.join(parent, fresh())
    os.mkdir(path)
    return path


def write(path, content=b"", how="wb"):
    with open(path, how) as f:
        return f.write(content)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def mode(path):
    return oct(os.stat(path).st_mode & 0o7777)


def scratch(name):
    """A path that is not on the file system under test."""
    return os.path.join(_scratch.name, name)


_scratch = tempfile.TemporaryDirectory(prefix="trial-")


def command(*arguments, **named):
    """Runs a command: what it returned and said."""
    ended = subprocess.run(
        arguments, capture_output=True, text=True, errors="surrogateescape", **named
    )
    ended.said = (ended.stdout + ended.stderr).strip()[-300:]
    return ended


def needs(*programs):
    for program in programs:
        shutil.which(program) or skip("%s is not installed" % program)


def needs_root():
    os.getuid() == 0 or skip("only root may do this")


def together(*calls):
    """Runs all calls at once, each in a thread; raises what one of them raised."""
    raised = []

    def run(call):
        try:
            call()
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


class Child:
    """A call in a process of its own."""

    def __init__(self, call, *arguments):
        self.ended = None
        self.results, into = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.results)
            try:
                said = outcome(call, *arguments)
            except BaseException:
                said = traceback.format_exc()
            with open(into, "wb") as f:
                pickle.dump(said, f)
            os._exit(0)
        os.close(into)

    def result(self):
        """The result of the call, or the name of its error; "killed by N" if it did not come to
        that."""
        with open(self.results, "rb") as f:
            said = f.read()
        status = self.wait()
        return pickle.loads(said) if said else "killed by %d" % -os.waitstatus_to_exitcode(status)

    def wait(self):
        if self.ended is None:
            self.ended = os.waitpid(self.pid, 0)[1]
        return self.ended

    def ends_within(self, seconds):
        until = time.monotonic() + seconds
        while self.ended is None and time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = status
            else:
                time.sleep(0.02)
        return self.ended is not None


def as_user(user, group, groups, call, *arguments):
    """The result of the call for that user, or the name of its error."""

    def become_and_call():
        os.setgroups(groups)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        return call(*arguments)

    return Child(become_and_call).result()


class Floor:
    """How late this machine is by itself, measured beside a part: bounds of time grow with it, so
    that they hold under load."""

    def __enter__(self):
        self.longest = 0.0
        self.to_child, self.from_child = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.to_child[1])
            self.measure()
        os.close(self.to_child[0])
        os.close(self.from_child[1])
        return self

    def measure(self):
        """Until it is told to stop: replaces a name on the disk below, as the slowest call of a
        program may."""
        path, longest = scratch("floor"), 0.0
        os.set_blocking(self.to_child[0], False)
        while True:
            began = time.monotonic()
            write(path + ".new", b"floor")
            os.rename(path + ".new", path)
            time.sleep(0.01)
            longest = max(longest, time.monotonic() - began - 0.01)
            try:
                os.read(self.to_child[0], 1)
                break
            except BlockingIOError:
                pass
        os.write(self.from_child[1], b"%f" % longest)
        os._exit(0)

    def __exit__(self, *_):
        # Told, and not by closing: children of the part have the pipe as well.
        os.write(self.to_child[1], b"x")
        os.close(self.to_child[1])
        self.longest = float(os.read(self.from_child[0], 100) or 0)
        os.close(self.from_child[0])
        os.waitpid(self.pid, 0)

    def bound(self, seconds):
        """A bound for what takes `seconds` where nothing else runs.

        A call is some twenty turns of threads, here and elsewhere: each may be as late.
        """
        return seconds + 20 * self.longest


def processes_of(group):
    """Where each process of the group is: command, state, and what the kernel waits for."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) != group:
                continue
            command = (
                open("/proc/%s/cmdline" % pid, errors="replace").read().replace("\0", " ").strip()
            )
            for task in os.listdir("/proc/%s/task" % pid):
                at = "/proc/%s/task/%s/" % (pid, task)
                state = open(at + "stat").read().rpartition(")")[2].split()[0]
                stack = [line.split()[-1] for line in open(at + "stack").read().splitlines()[:6]]
                yield "%s/%s (%s) %s: %s" % (pid, task, state, command[:80], " < ".join(stack))
        except OSError:
            continue


def guard(child):
    """Waits for the process that tries; if it hangs, says where all of them are, and ends them."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    print("WRONG  hangs: not at its end after %d s; where its processes are:" % LONGEST)
    for where in processes_of(child):
        print("hangs  " + where)
    # The Python stack of each thread, by faulthandler.
    os.kill(child, signal.SIGUSR2)
    time.sleep(1)
    os.killpg(child, signal.SIGKILL)
    return 1


def try_parts(parts):
    skipped = []
    for part in parts:
        try:
            part()
        except Skip as e:
            skipped.append(str(e))
            print("skip   %s: %s" % (part.__name__, e))
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            check(False, "%s was not to raise this" % part.__name__)
        finally:
            os.chdir("/")
    shutil.rmtree(HERE, ignore_errors=True)
    _scratch.cleanup()
    sys.stdout.flush()
    return 1 if _wrong else 77 if len(skipped) == len(parts) else 0


def main(*parts):
    """Tries each part in turn, in a process group of its own that is ended when it hangs, and ends
    the program."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        faulthandler.register(signal.SIGUSR2, all_threads=True)
        os._exit(try_parts(parts))
    ended = guard(child)
    sys.stdout.flush()
    os._exit(ended if ended >= 0 else 1)
