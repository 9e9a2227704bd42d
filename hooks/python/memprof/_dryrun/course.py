"""Ends a dry run when it has shown what an iteration requests: iterations repeat, and values that would end it do not exist."""

import atexit
import os
import threading
import time

from memprof import _hook

LONGEST_WAIT = 1.0  # seconds that the end of the process waits for threads that compute


class Course:
    """Compares the requests of iterations. Storages notes each request."""

    def __init__(self, library, wait):
        self._wanted = int(os.environ.get("MEMPROF_DRY_RUN_ITERATIONS") or 0)  # iterations at least; 0: the script ends by itself
        self._mark = library.memprof_iteration
        self._wait = wait  # for the device
        self._ended = 0
        self._before = None  # of the last iteration
        self._same = 1  # how many of the last iterations made the same requests
        self._sizes = []
        library.memprof_iteration = self.iteration

    def request(self, size):
        self._sizes.append(size)

    def iteration(self, label):
        """Marks the end of an iteration. Ends the script once at least half of all iterations, the last ones, made the same requests."""
        self._mark(label)
        self._wait()  # a host is an iteration ahead at most
        self._ended += 1
        self._same = self._same + 1 if self._sizes == self._before else 1
        self._before, self._sizes = self._sizes, []
        if self._wanted and self._ended >= self._wanted and self._same >= max(2, self._ended / 2):
            _hook.problem("dry run: ended after %d iterations, as the last %d made the same %d requests" % (self._ended, self._same, len(self._before)))
            raise SystemExit(0)


def install():
    # Handlers run in reverse order: those that the script registers later run before this one.
    atexit.register(_wait_for_threads)


def _wait_for_threads():
    """Waits until no other thread computes.

    A thread of autograd may still destroy the graph of the last backward pass, whose fake tensors are objects of Python.
    A thread that asks for the interpreter after its end is ended inside C++ code, which aborts the process.
    """
    end = time.monotonic() + LONGEST_WAIT
    calm = 0
    while calm < 2 and time.monotonic() < end:
        time.sleep(0.002)
        calm = 0 if _computing() else calm + 1


def _computing():
    """True if a thread other than this one runs or waits for a core (proc(5): state R)."""
    own = str(threading.get_native_id())
    for thread in os.listdir("/proc/self/task"):
        if thread == own:
            continue
        try:
            with open("/proc/self/task/%s/stat" % thread) as stat:
                if stat.read().rpartition(") ")[2].startswith("R"):
                    return True
        except OSError:  # it has ended
            pass
    return False
