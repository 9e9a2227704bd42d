"""Runs the tests of a file in several processes, always the same tests in the same order in each.

    python3 pytest_shards.py N BASE GATE RUNS COMMAND...

COMMAND is that of pytest, BASE the beginning of the files' names. GATE is a folder that as many RUNS share as are made
at the same time.

What a test leaves behind in its process can fail later ones, PyTorch's own tests included. So a run can
be compared with another one only if each test has the same predecessors. pytest-xdist gives a test to
the process that is free, which is another one in every run.

Tests that torch marks as serial, since they need most of the card or measure what is free on it, run first
and in a process of their own, those of one run after those of another. The other processes import torch
meanwhile, and wait until the serial tests of all runs are over. A process that dies is started again after the
test in which it died.
"""

import os
import subprocess
import sys
import threading

ENDED = (0, 1, 5)  # pytest's exit codes: all passed, some failed, there were no tests


def lines(path):
    if not os.path.exists(path):
        return 0
    with open(path) as f:
        return sum(1 for _ in f)


def run_share(command, base, share, **variables):
    """Runs the tests of a share, if need be by several processes one after the other."""
    at = base + "." + share.replace("/", "-of-")
    env = dict(os.environ, PYTEST_OUTCOMES=at + ".jsonl", PYTEST_SHARE=share, **variables)
    with open(at + ".log", "a") as log:
        while True:
            before = lines(at + ".jsonl")
            code = subprocess.run(command, env=env, stdout=log, stderr=log).returncode
            if code in ENDED or lines(at + ".jsonl") == before:
                return


def has_serial_tests(command):
    for word in command:
        if word.endswith(".py") and os.path.exists(word):
            with open(word) as f:
                return "serialTest" in f.read()
    return False


def main():
    workers, base, gate, runs, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]
    wait = {"PYTEST_GATE": gate, "PYTEST_GATES": runs}
    shares = [threading.Thread(target=run_share, args=(command, base, f"{i}/{workers}"), kwargs=wait) for i in range(workers)]
    for share in shares:
        share.start()
    if has_serial_tests(command):
        run_share(command, base, "serial", PYTEST_LOCK=gate + ".lock")
    open(os.path.join(gate, str(os.getpid())), "w").close()
    for share in shares:
        share.join()


if __name__ == "__main__":
    main()
