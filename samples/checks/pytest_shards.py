"""Runs the tests of a file in several processes, always the same tests in the same order in each.

    python3 pytest_shards.py N BASE GATE RUNS COMMAND...

COMMAND is that of pytest, BASE the beginning of the files' names. GATE is a folder that as many RUNS share as are made
at the same time.

What a test leaves behind in its process can fail later ones, PyTorch's own tests included. So a run can
be compared with another one only if each test has the same predecessors. pytest-xdist gives a test to
the process that is free, which is another one in every run.

Tests that torch marks as serial, since they need most of the card or measure what is free on it, run first
and in a process of their own. Collecting PyTorch's tests takes memory of the card, too: the import of a file
makes a CUDA context. So no test of any run begins before the processes of all runs have collected theirs; then
the process with the serial tests of one run ends before that of another one begins, and the other processes
wait for the last of them. A process that dies is started again after the test in which it died.
"""

import fcntl
import os
import subprocess
import sys
import threading
import time

ENDED = (0, 1, 5)  # pytest's exit codes: all passed, some failed, there were no tests
SERIAL = "serial"
COLLECTED = "collected"
POINTS = (COLLECTED, SERIAL)  # where runs wait for each other: their tests are collected, their serial tests are over


def lines(path):
    if not os.path.exists(path):
        return 0
    with open(path) as f:
        return sum(1 for _ in f)


def touch(path):
    open(path, "w").close()


class Share:
    """The processes that run a share of a run's tests, one after the other if one dies. They begin when `go` exists."""

    def __init__(self, command, base, share, go):
        self.command = command
        self.at = base + "." + share.replace("/", "-of-")
        self.go = go
        self.env = dict(os.environ, PYTEST_OUTCOMES=self.at + ".jsonl", PYTEST_SHARE=share, PYTEST_READY=self.at + ".ready", PYTEST_GO=go)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with open(self.at + ".log", "a") as log:
            while True:
                before = lines(self.at + ".jsonl")
                code = subprocess.run(self.command, env=self.env, stdout=log, stderr=log).returncode
                if code in ENDED or lines(self.at + ".jsonl") == before:
                    return

    def wait_until_ready(self):
        """Waits until the process has collected its tests, or has ended before."""
        while self.thread.is_alive() and not os.path.exists(self.at + ".ready"):
            time.sleep(0.05)


def pass_gate(gate, base, *points):
    """Notes that a run is past some points; a run that has ended is past all."""
    for point in points or POINTS:
        touch(os.path.join(gate, f"{point}-{os.path.basename(base)}"))


def meet(gate, base, point, runs):
    """Waits until all runs of the gate have come to a point."""
    pass_gate(gate, base, point)
    while sum(name.startswith(point) for name in os.listdir(gate)) < runs:
        time.sleep(0.05)


def has_serial_tests(command):
    for word in command:
        if word.endswith(".py") and os.path.exists(word):
            with open(word) as f:
                return "serialTest" in f.read()
    return False


def main():
    workers, base, gate, runs, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:]
    shares = [Share(command, base, f"{i}/{workers}", base + ".go") for i in range(workers)]
    serial = [Share(command, base, SERIAL, base + ".serial.go")] if has_serial_tests(command) else []
    for share in shares + serial:
        share.wait_until_ready()
    meet(gate, base, COLLECTED, runs)
    for share in serial:
        with open(gate + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            touch(share.go)
            share.thread.join()  # with the process its context is gone from the card
    meet(gate, base, SERIAL, runs)
    touch(base + ".go")
    for share in shares:
        share.thread.join()


if __name__ == "__main__":
    main()
