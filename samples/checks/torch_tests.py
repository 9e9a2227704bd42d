"""PyTorch's own tests under memprof: each that passes without it passes with it.

    make gpu-check TORCH_TESTS=DIR
    cd samples && python3 -m checks.torch_tests DIR [--files test_cuda.py] [--modes classic] [--runs 1] [--limit 540]

DIR has a folder `test` of PyTorch's test files, and whatever they import. Every file runs without
memprof and in each mode, in a pytest of its own: tests of one file change settings of the process
that tests of another would find. Files that do not ask what is free on the card run side by side. A
test that passed in every run without memprof and failed in one with it is run twice more, alone on
the card, both ways: tests that measure time or what is free on the card fail now and then beside
others. What fails then, too, is a difference. Differences are allowed only to the tests of a table
of samples/README.md, which says why.

With --limit every file gets some of the time: a run that takes too much of it is killed with all
processes that it started, and the tests that it did not reach count as cut off, not as failed.
--native FILE keeps the outcomes of the runs without memprof, and uses them instead of running again.
"""

import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from checks.suite import HERE, PYTHON, Failed, Suite, alone

MODES = {
    "classic": ("record", "-q", "--force"),
    "compact": ("record", "-q", "--force", "--preset", "compact"),
    "native": ("record", "-q", "--force", "--allocator", "native"),
    "no-trace": ("record", "-q", "--no-trace"),
}
README = os.path.join(HERE, "README.md")
HEADING = "## PyTorch's own tests"
MOST_EXCEPTIONS = 6

# What runs of a file need: how often each mode runs it, which modes, how many GPUs, whether it runs beside
# other files, the workers that it gets of 16 cores, and pytest's arguments.
File = collections.namedtuple("File", "name runs modes gpus beside workers arguments")
ALL = tuple(MODES)
FILES = (
    File("test_multiprocessing.py", 1, ALL, 1, True, 6, ()),
    File("inductor/test_cudagraph_trees.py", 1, ALL, 1, True, 4, ()),
    File("test_multiprocessing_spawn.py", 1, ALL, 1, True, 3, ()),
    File("test_dataloader.py", 1, ALL, 1, True, 2, ("-k", "cuda")),
    File("test_cuda_sanitizer.py", 1, ALL, 1, True, 0, ()),
    File("test_dlpack.py", 1, ALL, 1, True, 0, ()),
    File("test_cuda_primary_ctx.py", 1, ALL, 1, True, 0, ()),
    File("test_cuda.py", 3, ALL, 1, False, 8, ()),
    File("test_cuda_multigpu.py", 3, ALL, 1, False, 3, ()),
    File("test_cuda_trace.py", 3, ALL, 1, False, 2, ()),
    File("distributed/test_c10d_nccl.py", 1, ("classic",), 2, False, 4, ()),
)
LEAST = 25  # seconds that each file's first run in a mode is left, if there are so many
WORTH = 10  # seconds below which no run is begun

Outcome = collections.namedtuple("Outcome", "kind message")  # kind: pass, fail or skip
Difference = collections.namedtuple("Difference", "test mode message")


class Run(dict):
    """The outcome of each test of a run, by "class::name"."""

    def __init__(self, found=(), seconds=0.0, cut=False):
        super().__init__(found)
        self.seconds = seconds
        self.cut = cut  # it was killed before it ended: the tests that it lacks may pass

    def passed(self):
        return "%d in %.0f s%s" % (sum(o.kind == "pass" for o in self.values()), self.seconds, ", cut off" if self.cut else "")


def outcomes(path):
    """The outcomes that pytest_outcomes.py wrote; nothing if the run did not get so far."""
    found = {}
    if not os.path.exists(path):
        return found
    with open(path) as f:
        lines = f.read().split("\n")[:-1]  # the last one may be incomplete
    for test, kind, message in map(json.loads, lines):
        if found.get(test, Outcome("pass", "")).kind != "fail":  # an error at teardown is a line of its own
            found[test] = Outcome(kind, message)
    return found


def steady(runs):
    """The tests that passed in every run."""
    passed = [{test for test, outcome in run.items() if outcome.kind == "pass"} for run in runs]
    return set.intersection(*passed) if passed else set()


def suspects(native, runs):
    """The tests that passed in every native run, and failed, or did not run, in one of the others: {test: message}."""
    found = {}
    for test in sorted(steady(native)):
        for run in runs:
            if run.cut and test not in run:
                continue
            outcome = run.get(test, Outcome("fail", "it was not run: the process ended before it"))
            if outcome.kind != "pass":
                found[test] = outcome.message or "it was skipped"
    return found


def exceptions(text):
    """The rows of the table of allowed differences in samples/README.md: {test: (modes, reason)}."""
    section = text.split(HEADING + "\n", 1)[-1].split("\n## ", 1)[0] if HEADING + "\n" in text else ""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", section, re.M)
    found = {test: (tuple(re.split(r",\s*", modes.strip())), reason.strip()) for test, modes, reason in rows}
    if len(found) > MOST_EXCEPTIONS:
        raise Failed(f"{README} allows {len(found)} tests to differ, at most {MOST_EXCEPTIONS} are meant to")
    return found


def unexplained(differences, allowed):
    """The differences that no row of the table allows."""
    return [d for d in differences if not ({d.mode, "all"} & set(allowed.get(d.test, ((),))[0]))]


def table(counts, differences, allowed):
    """The result as Markdown: passed tests for each file and mode, and each difference."""
    modes = [mode for mode in ("without", *MODES) if any(mode in by for by in counts.values())]
    lines = ["| file | " + " | ".join(modes) + " |", "|---|" + "---|" * len(modes)]
    for name, by in counts.items():
        lines.append(f"| {name} | " + " | ".join("; ".join(run.passed() for run in by[mode]) if mode in by else "" for mode in modes) + " |")
    lines += ["", "| test that differs | mode | allowed | how |", "|---|---|---|---|"]
    left = unexplained(differences, allowed)
    lines += [f"| {d.test} | {d.mode} | {'no' if d in left else 'yes'} | {d.message} |" for d in differences]
    return "\n".join(lines if differences else lines[: len(counts) + 2] + ["", "no test differs"])


class Runner:
    """Runs test files of a folder with pytest, with and without memprof."""

    def __init__(self, folder, memprof, work, limit=None):
        self.folder = os.path.abspath(folder)
        self.memprof = memprof
        self.work = work
        self.deadline = time.monotonic() + limit if limit else float("inf")
        has = lambda module: importlib.util.find_spec(module) is not None
        self.parallel = has("xdist")
        self.timeouts = ("--timeout", "90") if has("pytest_timeout") else ()
        self.number = 0
        os.makedirs(work, exist_ok=True)
        shutil.copy(os.path.join(HERE, "checks", "pytest_outcomes.py"), work)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, mode, arguments, workers, seconds=900):
        """A run, or None if there is no time for it."""
        seconds = min(seconds, self.left())
        if seconds < WORTH:
            return None
        self.number += 1
        at = os.path.join(self.work, "%03d-%s-%s" % (self.number, mode, os.path.basename(arguments[0])))
        command = [PYTHON, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-p", "pytest_outcomes", "--durations", "8", *self.timeouts, *arguments]
        workers = workers * (os.cpu_count() or 2) // 16
        if workers > 1 and self.parallel:
            command += ["-n", str(workers)]
        if mode != "without":
            target = () if mode == "no-trace" else ("-o", at)
            command = [self.memprof, *MODES[mode], *target, "--", *command]
        path = os.pathsep.join(p for p in (self.work, self.folder, os.environ.get("PYTHONPATH")) if p)
        env = dict(os.environ, PYTHONPATH=path, PYTEST_OUTCOMES=at + ".jsonl")
        began = time.monotonic()
        cut = False
        with open(at + ".log", "w") as log:
            process = subprocess.Popen(command, cwd=os.path.join(self.folder, "test"), env=env, stdout=log, stderr=log, start_new_session=True)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                cut = True
                end_session(process)
        shutil.rmtree(at, ignore_errors=True)  # the recording
        return Run(outcomes(at + ".jsonl"), time.monotonic() - began, cut)

    def beside(self, mode, files, seconds):
        """A run of each file, at the same time: {name: run}."""
        with concurrent.futures.ThreadPoolExecutor(len(files)) as threads:
            runs = {file.name: threads.submit(self.run, mode, [file.name, *file.arguments], file.workers, seconds) for file in files}
            return {name: run.result() for name, run in runs.items()}

    def again(self, mode, file, tests):
        """Runs tests alone, each process one after the other. Returns two runs."""
        words = " or ".join(sorted({test.split("::")[1].split("[")[0] for test in tests}))
        runs = [self.run(mode, [file.name, "-k", words], 0) for _ in range(2)]
        return [run for run in runs if run is not None]


def end_session(process):
    """Kills a process and all that it started: those of its session, also in process groups of their own."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == process.pid:
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass  # it has ended
    process.wait()


def groups(files):
    """The files in groups that run side by side, in order; a file that runs alone is a group."""
    beside = [file for file in files if file.beside]
    return ([beside] if beside else []) + [[file] for file in files if not file.beside]


def steps(files, modes, runs, known):
    """What is run: (mode, files) in the order of running, a first run of everything before any second one."""
    found = []
    for number in range(max(runs or file.runs for file in files)):
        for group in groups(files):
            for mode in ("without", *modes):
                wanted = [file for file in group if number < (runs or file.runs) and (mode in file.modes or mode == "without" and file.name not in known)]
                if wanted:
                    found.append((number, mode, wanted))
    return found


def run_all(runner, files, modes, runs, known, say):
    """The runs of each file by mode: {name: {mode: [run, ...]}}."""
    found = {file.name: {"without": list(known[file.name])} if file.name in known else {} for file in files}
    plan = steps(files, modes, runs, known)
    for i, (number, mode, group) in enumerate(plan):
        first_runs_left = sum(later == 0 for later, _, _ in plan[i + 1 :])
        left = runner.left()
        seconds = max(left - LEAST * first_runs_left, left / (first_runs_left + 1))
        for name, run in runner.beside(mode, group, seconds).items():
            if run is None:
                say(f"{name} {mode}: no time left")
                continue
            found[name].setdefault(mode, []).append(run)
            say(f"{name} {mode}: {run.passed()}")
    return found


def compare(runner, files, modes, runs=None, known=None, allowed=None, say=print):
    """Runs the files and returns (runs by file and mode, differences). Tests that are allowed to differ are not run
    again: what a failed test leaves behind can fail the next one."""
    found, differences = run_all(runner, files, modes, runs, known or {}, say), []
    for file in files:
        native = found[file.name].get("without", [])
        for mode in modes:
            looked_at = suspects(native, found[file.name].get(mode, []))
            for test, message in looked_at.items():
                say(f"{file.name} {mode}, to look at: {test}: {message}")
            seen = [Difference(test, mode, message) for test, message in looked_at.items()]
            differences += [d for d in seen if d not in unexplained([d], allowed or {})]
            looked_at = {d.test: d.message for d in unexplained(seen, allowed or {})}
            if not looked_at:
                continue
            after = runner.again(mode, file, looked_at)
            before = runner.again("without", file, looked_at) if after else []
            if not after:  # no time: what was seen counts
                differences += [Difference(test, mode, "not run again: " + message) for test, message in looked_at.items()]
                continue
            alone_too = suspects(before or native, after)
            differences += [Difference(test, mode, alone_too[test]) for test in looked_at if test in alone_too]
    return found, differences


def read_native(path):
    """Runs without memprof that were kept: {name: [run, ...]}."""
    if not path or not os.path.exists(path):
        return {}
    with open(path) as f:
        return {name: [Run({test: Outcome(*o) for test, o in run.items()}) for run in runs] for name, runs in json.load(f).items()}


def write_native(path, found):
    kept = {name: [run for run in by.get("without", []) if not run.cut] for name, by in found.items()}
    with open(path, "w") as f:
        json.dump({name: runs for name, runs in kept.items() if runs}, f)


def chosen(folder, names, gpus):
    """The files to run: those that the folder has, and that the machine has GPUs for."""
    there = [file for file in FILES if os.path.exists(os.path.join(folder, "test", file.name)) and file.gpus <= gpus]
    return [file for file in there if not names or file.name in names or os.path.basename(file.name) in names]


def check(folder, memprof, work, gpus, names=(), modes=ALL, runs=None, limit=None, native=None, say=print):
    with open(README) as f:
        allowed = exceptions(f.read())
    files = chosen(folder, names, gpus)
    if not files:
        raise Failed(f"{folder}/test has none of the files {', '.join(file.name for file in FILES)}")
    known = read_native(native)
    found, differences = compare(Runner(folder, os.path.abspath(memprof), work, limit), files, modes, runs, known, allowed, say)
    if native:
        write_native(native, {**{name: {"without": runs} for name, runs in known.items()}, **found})
    say("\n" + table(found, differences, allowed))
    left = unexplained(differences, allowed)
    if left:
        raise Failed(f"{len(left)} tests pass without memprof and fail with it: " + ", ".join(f"{d.test} ({d.mode})" for d in left))


FOLDER = os.environ.get("TORCH_TESTS")
if FOLDER:

    @alone
    def torch_tests(suite: Suite):
        """PyTorch's own tests, in every mode."""
        check(FOLDER, suite.memprof, suite.work, suite.gpus(), say=suite.lines.append)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    parser.add_argument("--work", default="/tmp/memprof-torch-tests-%d" % os.getpid())
    parser.add_argument("--files", default="", help="names, separated by commas; default: all")
    parser.add_argument("--modes", default=",".join(ALL))
    parser.add_argument("--runs", type=int, help="of each file in each mode")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, help="seconds, after which all runs are over")
    parser.add_argument("--native", help="file that keeps the outcomes without memprof")
    opts = parser.parse_args()
    names = [name for name in opts.files.split(",") if name]
    try:
        check(opts.folder, opts.memprof, opts.work, opts.gpus, names, opts.modes.split(","), opts.runs, opts.limit, opts.native, lambda line: print(line, flush=True))
    except Failed as failed:
        print(failed, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
