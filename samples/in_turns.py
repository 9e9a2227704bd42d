"""Compares the steps of jobs that are all alive and train in turns.

Runs one after the other differ by more than an allocator costs, because of other work on the machine.
Here one job trains for a third of a second while the others wait, then the next, round after round,
forwards and backwards. Steps of the same round are compared, so that other work affects all jobs alike;
the result is the median over the rounds. Only one job trains at a time, so all use the same few
processors. Two processes of the same kind differ, too: there are several jobs of each kind, and apart()
returns by how much they differ.

A job is one of samples/jobs with --in-turns.
"""

import concurrent.futures
import contextlib
import os
import select
import signal
import statistics
import subprocess
import threading
import time

TURN = 0.33  # seconds of a turn, about
LEAST = 4  # iterations of a turn; the first, with cold caches, is not counted
LAST_WORDS = 10  # seconds in which a job has to end after it was asked to
PROCESSORS = 4  # that all jobs have in common, at most


class Stopped(Exception):
    """A job ended, or took too long."""


@contextlib.contextmanager
def processors(place, places):
    """Processes that this thread starts meanwhile run on a few processors: set number `place` of `places`."""
    before = os.sched_getaffinity(0)
    share = sorted(before)[place * len(before) // places : (place + 1) * len(before) // places]
    os.sched_setaffinity(0, share[-PROCESSORS:] or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def on_cards(cards, waiting, work, over=lambda: False):
    """Calls work(item, card) for each item of `waiting`, one at a time on each card. Begins none once over() is true.

    Returns the items that were not begun.
    """
    waiting, lock = list(waiting), threading.Lock()

    def take():
        with lock:
            return waiting.pop(0) if waiting and not over() else None

    def serve(card):
        while (taken := take()) is not None:
            work(taken, card)

    with concurrent.futures.ThreadPoolExecutor(cards) as threads:
        list(threads.map(serve, range(cards)))  # raises an exception of a thread
    return waiting


class Job:
    """A job that trains when it is asked to, on the processors at place[0] of place[1]."""

    def __init__(self, command, errors, env=None, place=(0, 1)):
        env = dict(env or os.environ, PYTHONHASHSEED="0")  # so that jobs of a kind do not differ by it
        with open(errors, "w") as err, processors(*place):
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=env, start_new_session=True)
        self.command, self.errors = command, errors
        self.output = b""  # everything that the job printed
        self.read = 0  # bytes of it that steps_of_turn() has read

    def ask(self, iterations):
        """Has it train for so many iterations."""
        try:
            self.process.stdin.write(b"%d\n" % iterations)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # steps_of_turn() raises why it ended

    def steps_of_turn(self, seconds):
        """The milliseconds of each step of the turn asked for."""
        deadline = time.monotonic() + seconds
        while True:
            line, found, _ = self.output[self.read :].partition(b"\n")
            if found:
                self.read += len(line) + 1
                if line.startswith(b"turn "):
                    return [float(word) for word in line.split()[1:]]
                continue
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise Stopped(f"{' '.join(self.command)}: no turn after {seconds:.0f} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Stopped(f"{' '.join(self.command)}: exit {self.process.wait()}\n{self.said()}")
            self.output += more

    def said(self):
        with open(self.errors, errors="replace") as f:
            return f.read()[-1500:]

    def end(self):
        """Lets it end by itself, or ends it; its exit status, and all that it printed."""
        try:
            self.output += self.process.communicate(timeout=LAST_WORDS)[0]  # closes its input: no more turns
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.output += self.process.communicate()[0]
        return self.process.returncode, self.output.decode(errors="replace")


def measure(kinds, first, seconds, patience=120):
    """Rounds of turns: {kind: of each round, the milliseconds of a step of each job}, for `kinds`, {kind: jobs}.

    All jobs train for `first` iterations beforehand, at once. No round is begun after `seconds`;
    there are at least two. No job may take longer than `patience` seconds for a turn.
    """
    jobs = [job for place in zip(*kinds.values()) for job in place]
    for job in jobs:
        job.ask(first)
    for job in jobs:
        job.steps_of_turn(patience)
    alone = []
    for job in jobs:
        job.ask(LEAST)
        alone += job.steps_of_turn(patience)[1:]
    iterations = max(LEAST, round(1e3 * TURN / statistics.median(alone)))
    rounds = {kind: [] for kind in kinds}
    began = time.monotonic()
    while min(map(len, rounds.values())) < 2 or time.monotonic() - began < seconds:
        found = {}
        for job in jobs:
            job.ask(iterations)
            found[job] = statistics.median(job.steps_of_turn(patience)[1:])
        for kind, of in kinds.items():
            rounds[kind].append([found[job] for job in of])
        jobs.reverse()
    return rounds


def steps(rounds):
    """The milliseconds of a step of a kind in each round, the mean of its jobs."""
    return [statistics.mean(jobs) for jobs in rounds]


def ratio(rounds, base):
    """Of the ratios of each round's steps: the median, and the quartiles."""
    ratios = [a / b for a, b in zip(steps(rounds), steps(base))]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high


def apart(rounds):
    """How far the slowest job of a kind is from the fastest, as a share of the step: what the processes themselves
    differ by, and quartiles of rounds do not show. With one job nobody knows: None."""
    if len(rounds[0]) < 2:
        return None
    shares = [[step / statistics.mean(jobs) for step in jobs] for jobs in rounds]
    medians = [statistics.median(of) for of in zip(*shares)]
    return max(medians) - min(medians)
