"""Compares the steps of jobs that are all alive and train in turns.

Runs one after the other differ by more than an allocator costs, because of other work on the machine.
Here one job trains for a third of a second while the others wait, then the next, round after round,
forwards and backwards. All jobs do the same work in the same iteration, so iterations are compared one by one:
the least time that a job of one kind took for it with the least of the other kind, since other work only adds.
The result is the median of these ratios. Only one job trains at a time, so all use the same few
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
LEAST = 3  # iterations of a turn; the first, with cold caches, is not counted
LAST_WORDS = 10  # seconds in which a job has to end after it was asked to
PROCESSORS = 4  # that all jobs have in common, at most


class Stopped(Exception):
    """A job ended, or took too long."""


def processors(place, places):
    """Set number `place` of `places` of this process's processors."""
    ours = sorted(os.sched_getaffinity(0))
    return ours[place * len(ours) // places : (place + 1) * len(ours) // places] or ours


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


def threads_of_session(leader):
    """The threads of all processes of a session."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if os.getsid(int(process)) == leader:
                yield from map(int, os.listdir(f"/proc/{process}/task"))


class Job:
    """A job that trains when it is asked to, on the processors at place[0] of place[1]: all of them until pin()."""

    def __init__(self, command, errors, env=None, place=(0, 1)):
        env = dict(env or os.environ, PYTHONHASHSEED="0")  # so that jobs of a kind do not differ by it
        with open(errors, "w") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=env, start_new_session=True)
        self.command, self.errors, self.place = command, errors, place
        self.output = b""  # everything that the job printed
        self.read = 0  # bytes of it that steps_of_turn() has read

    def pin(self):
        """Leaves the job PROCESSORS of its processors at most, as all jobs beside it, once it has made its threads."""
        few = processors(*self.place)[-PROCESSORS:]
        for thread in threads_of_session(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, few)

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
    """Rounds of turns: {kind: of each round, of each job, the milliseconds of its steps}, for `kinds`, {kind: jobs}.

    All jobs train for `first` iterations beforehand, at once. No round is begun after `seconds`;
    there are at least two. No job may take longer than `patience` seconds for a turn.
    """
    jobs = [job for place in zip(*kinds.values()) for job in place]
    for job in jobs:
        job.ask(first)
    for job in jobs:
        job.steps_of_turn(patience)
        job.pin()
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
            found[job] = job.steps_of_turn(patience)[1:]
        for kind, of in kinds.items():
            rounds[kind].append([found[job] for job in of])
        jobs.reverse()
    return rounds


def steps(rounds):
    """The milliseconds of each iteration, the least of the jobs of a kind."""
    return [min(of) for jobs in rounds for of in zip(*jobs)]


def ratio(rounds, base):
    """Of the ratios of each iteration's steps: the median, and the interval that has it with a probability of 95 %."""
    ratios = sorted(a / b for a, b in zip(steps(rounds), steps(base)))
    outside = max(0, int((len(ratios) - 1 - 1.96 * len(ratios) ** 0.5) / 2))  # on each side: the binomial distribution's, by the normal one
    return statistics.median(ratios), ratios[outside], ratios[-1 - outside]


def apart(rounds):
    """How far the slowest job of a kind is from the fastest, as a share of the step: what the processes themselves
    differ by, and an interval does not show. With one job nobody knows: None."""
    if len(rounds[0]) < 2:
        return None
    shares = [[step / statistics.mean(of) for step in of] for jobs in rounds for of in zip(*jobs)]
    medians = [statistics.median(of) for of in zip(*shares)]
    return max(medians) - min(medians)
