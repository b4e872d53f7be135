"""Processes that work at once, one for each mount, under a watchdog. For the programs of this directory."""
import faulthandler
import multiprocessing
import os
import sys
import time
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from wild import wild

# A call that takes longer than this hangs: the whole is given up, and says where.
LONGEST = float(os.environ.get("LONGEST", 300))


class Pulse:
    """What a worker is at, and since when: seen by the parent."""

    def __init__(self):
        self.since, self.what = multiprocessing.Value("d", time.monotonic()), multiprocessing.Array("c", 200)

    def at(self, what):
        self.what.value = what.encode()[:199]
        self.since.value = time.monotonic()


def run(number, act, pulse, arguments):
    # A page that is not there is SIGBUS, and says nothing by itself.
    faulthandler.enable()
    try:
        act(pulse, *arguments)
    except AssertionError as e:
        print("%s: worker %d: wrong: %s" % (os.path.basename(sys.argv[0]), number, e), file=sys.stderr)
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def stack(pid):
    """Where the kernel waits for it, as far as may be known."""
    try:
        return " < ".join(line.split()[-1] for line in open("/proc/%d/stack" % pid).read().splitlines()[:6])
    except OSError:
        return "?"


def together(*calls):
    """Each of `calls` is (function, arguments...), called as function(pulse, arguments...) in a process. Ends the program if one fails or hangs."""
    workers = []
    for number, (act, *arguments) in enumerate(calls):
        pulse = Pulse()
        process = multiprocessing.Process(target=run, args=(number, act, pulse, arguments))
        process.start()
        workers.append((process, pulse))
    failed = None
    while not failed and any(process.is_alive() for process, _ in workers):
        time.sleep(0.02)
        for number, (process, pulse) in enumerate(workers):
            if process.exitcode:
                failed = "worker %d failed" % number
            elif process.exitcode is None and time.monotonic() - pulse.since.value > LONGEST:
                failed = "worker %d has been at %s for %d s: %s" % (number, pulse.what.value.decode(), LONGEST, stack(process.pid))
    if not failed and any(process.exitcode for process, _ in workers):
        failed = "a worker failed"
    if failed:
        for process, _ in workers:
            if process.is_alive():
                process.kill()
        print("%s: %s" % (os.path.basename(sys.argv[0]), failed), file=sys.stderr, flush=True)
        # Not to wait for one that nothing can end.
        os._exit(1)


def must(condition, what, *values):
    if not condition:
        raise AssertionError(what % values if values else what)
