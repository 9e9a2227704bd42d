"""The base of the acceptance cases. A case is a function of a Suite, and raises Failed."""

import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

import in_turns

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A relative path, so that the command in a recording makes sense on another machine.
JOBS = os.path.relpath(os.path.join(HERE, "jobs"))
PYTHON = "python3" if shutil.which("python3") == sys.executable else sys.executable

UNDER = 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"'  # for sh: $0 is the library to load before the hook, "$@" the job
FIRST = 20  # iterations that jobs in turns train beforehand
CONTEXT = 1 << 30  # bytes of the card for a CUDA context, its modules and libraries, with room to spare

CASES = {}
ALONE = set()  # names of the cases that have the card to themselves
TWO = set()  # names of the cases that have nothing to do on one GPU

BEGUN = set()  # processes that cases have started and that may still run
ENDING = threading.Event()  # a signal ends the suite: what begins is killed, too


def case(function):
    CASES[function.__name__] = function
    return function


def alone(function):
    """Marks a case that measures time or the use of the card, or uses most of it: it runs alone."""
    ALONE.add(function.__name__)
    return case(function)


def two_gpus_only(function):
    """Marks a case that one GPU is not enough for. It stands above `case` or `alone`."""
    TWO.add(function.__name__)
    return function


class Failed(Exception):
    """A case has failed; the text says why."""


class LeftOut(Exception):
    """A case was not run, since something is not here; the text says what."""


def kill(process):
    """Kills a process of BEGUN and all that it started: a job that outlives its case would keep using the card."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended


class Suite:
    def __init__(self, memprof, work, keep, deadline=float("inf")):
        self.memprof = memprof
        self.work = work
        self.deadline = deadline  # of time.monotonic(): no command of this case runs longer
        self.keep = keep  # where recordings of the samples are left, or None
        self.figures = []  # (what, value, budget or "")
        self.lines = []  # printed when the case has ended
        os.makedirs(work, exist_ok=True)
        self.hooks = subprocess.run([memprof, "doctor", "hooks", "path"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def figure(self, what, value, budget=""):
        self.figures.append((what, value, budget))
        self.lines.append(f"  {what}: {value}" + (f"   (budget {budget})" if budget else ""))

    def run(self, command, expect=0, timeout=400):
        env = dict(os.environ, MEMPROF_PYTHON=os.path.join(self.hooks, "python"))
        timeout = max(1, min(timeout, math.ceil(self.deadline - time.monotonic()))) if self.deadline != float("inf") else timeout
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True) as process:
            BEGUN.add(process)
            if ENDING.is_set():
                kill(process)
            try:
                output, errors = process.communicate(timeout=timeout)
            except BaseException as error:
                kill(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    said = "\n".join((text or b"").decode(errors="replace")[-1500:] for text in (error.stdout, error.stderr))
                    raise Failed(f"{' '.join(command)}: not through after {timeout} s\n{said}") from None
                raise
            finally:
                BEGUN.discard(process)
        done = subprocess.CompletedProcess(command, process.returncode, output, errors)
        if expect is not None and done.returncode != expect:
            raise Failed(f"{' '.join(command)}: exit {done.returncode}, expected {expect}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
        return done

    def job(self, name, *arguments):
        return [PYTHON, os.path.join(JOBS, name + ".py"), *arguments]

    def jobs(self):
        """The folder of the sample jobs."""
        return os.path.abspath(JOBS)

    def script(self, name, text):
        """A job of a few lines."""
        path = os.path.join(self.work, name + ".py")
        with open(path, "w") as f:
            f.write(text)
        return [PYTHON, path]

    def record(self, name, command, *flags, expect=0):
        directory = os.path.join(self.work, name)
        shutil.rmtree(directory, ignore_errors=True)
        done = self.run([self.memprof, "record", "-o", directory, *flags, "--", *command], expect=expect)
        return directory, done

    def steps(self, name, job, kinds, base, memory, bound="", most=None, pairs=2, seconds=15):
        """Compares the steps of a job of several kinds, in turns, with those of the kind `base`. The rest is as for rounds().

        A ratio counts as above `most` when the median is by more than jobs of one kind differ; of one job of each kind, when its interval is.
        """
        rounds = self.rounds(name, job, kinds, memory, pairs, seconds)
        for kind in kinds:
            wrong = self.compared(name, kind, base, rounds, bound, most) if rounds and kind != base else None
            if wrong:
                raise Failed(wrong)

    def rounds(self, name, job, kinds, memory, pairs=2, seconds=15, preload=None):
        """The rounds of jobs of several kinds in turns (in_turns.measure), whose losses must agree. None: the card has no room.

        `kinds` is {kind: flags of record, or for unrecorded jobs the text of PYTORCH_CUDA_ALLOC_CONF, None without}. A job
        uses at most `memory` bytes of the card, and its context. `preload` is own_time.library(): recorded jobs then
        write the times of their calls into the hook to their recordings' paths with ".times".
        """
        pairs = min(pairs, int(self.free() / (len(kinds) * (memory + CONTEXT))))
        if pairs == 0:
            self.lines.append(f"  {name}: steps are not compared: the card has no room for {len(kinds)} such jobs at a time")
            return None
        jobs, losses_of = {kind: [] for kind in kinds}, set()
        for k in range(pairs):
            for kind, flags in kinds.items():
                path = os.path.join(self.work, f"{name}-{kind}-{k}")
                env = dict(os.environ, MEMPROF_PYTHON=os.path.join(self.hooks, "python"))
                command = [*job, "--in-turns"]
                if isinstance(flags, str):
                    env["PYTORCH_CUDA_ALLOC_CONF"] = flags
                elif flags is not None:
                    env.update(OWN_TIME=path + ".times")
                    under = ["sh", "-c", UNDER, preload] if preload else []
                    command = [self.memprof, "record", "-q", "--force", "-o", path, *flags, "--", *under, *command]
                jobs[kind].append(in_turns.Job(command, path + ".err", env))
        try:
            rounds = in_turns.measure(jobs, FIRST, seconds)
        except in_turns.Stopped as stopped:
            raise Failed(f"{name}: {stopped}") from None
        finally:
            for trained in (trained for of in jobs.values() for trained in of):
                status, output = trained.end()
                losses_of.add((status, tuple(losses(output))))
        if {status for status, _ in losses_of} != {0} or len(losses_of) != 1:
            raise Failed(f"{name}: exits {sorted(status for status, _ in losses_of)}, or losses that differ")
        return rounds

    def compared(self, name, kind, base, rounds, bound="", most=None):
        """Keeps the ratio of the steps of two kinds as a figure. Returns what is wrong if it is above `most`."""
        middle, low, high = in_turns.ratio(rounds[kind], rounds[base])
        text = " / ".join(f"{statistics.median(in_turns.steps(rounds[k])):.2f}" for k in (kind, base)) + " ms"
        known = [in_turns.apart(rounds[k]) for k in (kind, base)]
        if None in known:
            above = most is not None and low > most
        else:  # the interval is of these processes alone: others would differ by as much as jobs of a kind do
            above = most is not None and middle > most + max(known)
            text += f"; jobs of a kind {max(known):.3f} apart"
        self.figure(f"{name}: step, {kind} / {base}, median of {len(in_turns.steps(rounds[kind]))} steps and its 95 % interval", f"{middle:.3f}, {low:.3f} to {high:.3f} ({text})", bound)
        return f"{name}: a step {kind} is {middle:.3f} of {base}, {low:.3f} to {high:.3f}, above {most}" if above else None

    def same(self, name, text, *flags, prefix=None):
        """Runs a script recorded and unrecorded. The `result` lines that it prints must be equal.

        `prefix` replaces Python at the start of the command, for instance by torchrun.
        """
        command = self.script(name, text)
        if prefix:
            command = prefix + command[1:]
        plain = self.run(command)
        directory, recorded = self.record(name, command, *flags)
        expected, found = (sorted(re.findall(r"^result .*$", done.stdout, re.M)) for done in (plain, recorded))
        if not expected:
            raise Failed(f"{name}: no results:\n{plain.stdout[-1000:]}")
        if expected != found:
            raise Failed(f"{name}: unrecorded {expected}, recorded {found}\n{recorded.stderr[-2000:]}")
        self.verified(directory)
        return directory, recorded

    def torch(self, expression):
        """The value of an expression about torch, a whole number, from a process of its own."""
        query = [PYTHON, "-c", f"import torch; print({expression})"]
        return int(subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def free(self):
        """Free bytes of the card."""
        return self.torch("torch.cuda.mem_get_info()[0]")

    def gpus(self):
        return self.torch("torch.cuda.device_count()")

    def count(self, directory, kind):
        """The number of events of a kind in the trace; None without pyarrow."""
        try:
            import pyarrow.compute as compute
            import pyarrow.parquet as parquet
        except ImportError:
            return None
        total = 0
        for file in os.listdir(directory):
            if file.endswith(".parquet") and not file.startswith("device"):
                column = parquet.read_table(os.path.join(directory, file), columns=["kind"])["kind"].cast("string")
                total += compute.sum(compute.equal(column, kind)).as_py() or 0
        return total

    def verified(self, directory):
        return json.loads(self.run([self.memprof, "verify", "--json", directory]).stdout)

    def report(self, directory, *flags):
        return json.loads(self.run([self.memprof, "report", "--json", *flags, directory]).stdout)


def losses(output):
    found = re.findall(r"^iteration \d+ loss (\S+)$", output, re.M)
    if not found:
        raise Failed("the job printed no losses:\n" + output[-1000:])
    return found


def number(pattern, output):
    match = re.search(pattern, output, re.M)
    if not match:
        raise Failed(f"{pattern!r} not found in:\n{output[-1500:]}")
    return float(match.group(1))


def parquet_bytes(directory):
    return sum(os.path.getsize(os.path.join(directory, f)) for f in os.listdir(directory) if f.endswith(".parquet"))


def first_process(report):
    return report["processes"][0]
