"""PyTorch's own tests under memprof: each that passes without it passes with it.

    make gpu-check TORCH_TESTS=DIR
    cd samples && python3 -m checks.torch_tests DIR [--files test_cuda.py] [--modes classic] [--runs 1] [--limit 540]

DIR has a folder `test` of PyTorch's test files, and whatever they import. Every file runs without
memprof and in each mode, in a pytest of its own: tests of one file change settings of the process
that tests of another would find. A test that passed in every run without memprof and failed in one
with it is run twice more, alone on the card, both ways: tests that measure time or what is free on
the card fail now and then beside others. What fails then, too, is a difference. Differences are
allowed only to the tests of a table of samples/README.md, which says why.
"""

import argparse
import collections
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

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

# What runs of a file need: how often each mode runs it, which modes, how many GPUs, and pytest's arguments.
File = collections.namedtuple("File", "name runs modes gpus arguments")
ALL = tuple(MODES)
FILES = (
    File("test_cuda.py", 3, ALL, 1, ()),
    File("test_cuda_multigpu.py", 3, ALL, 1, ()),
    File("test_cuda_trace.py", 3, ALL, 1, ()),
    File("test_cuda_primary_ctx.py", 1, ALL, 1, ()),
    File("test_cuda_sanitizer.py", 1, ALL, 1, ()),
    File("test_dlpack.py", 1, ALL, 1, ()),
    File("test_multiprocessing.py", 1, ALL, 1, ()),
    File("test_multiprocessing_spawn.py", 1, ALL, 1, ()),
    File("inductor/test_cudagraph_trees.py", 1, ALL, 1, ()),
    File("test_dataloader.py", 1, ALL, 1, ("-k", "cuda")),
    File("distributed/test_c10d_nccl.py", 1, ("classic",), 2, ()),
)

Outcome = collections.namedtuple("Outcome", "kind message")  # kind: pass, fail or skip
Difference = collections.namedtuple("Difference", "test mode message")


def outcomes(path):
    """The outcome of each test of a JUnit file, by "class::name"; nothing if the run wrote none."""
    found = {}
    if not os.path.exists(path):
        return found
    for case in xml.parse(path).iter("testcase"):
        kind, message = "pass", ""
        for child in case:
            if child.tag in ("failure", "error"):
                kind, message = "fail", " ".join((child.get("message") or "").split())[:200]
            elif child.tag == "skipped":
                kind = "skip"
        name = "%s::%s" % ((case.get("classname") or "").split(".")[-1], case.get("name"))
        if found.get(name, Outcome("pass", "")).kind != "fail":  # an error at teardown is a case of its own
            found[name] = Outcome(kind, message)
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
        lines.append(f"| {name} | " + " | ".join(", ".join(str(n) for n in by[mode]) if mode in by else "" for mode in modes) + " |")
    lines += ["", "| test that differs | mode | allowed | how |", "|---|---|---|---|"]
    left = unexplained(differences, allowed)
    lines += [f"| {d.test} | {d.mode} | {'no' if d in left else 'yes'} | {d.message} |" for d in differences]
    return "\n".join(lines if differences else lines[: len(counts) + 2] + ["", "no test differs"])


class Runner:
    """Runs test files of a folder with pytest, with and without memprof."""

    def __init__(self, folder, memprof, work, workers=None, deadline=None):
        self.folder = os.path.abspath(folder)
        self.memprof = memprof
        self.work = work
        self.deadline = deadline or float("inf")
        has = lambda module: importlib.util.find_spec(module) is not None
        self.workers = (workers or min(8, (os.cpu_count() or 2) // 2)) if has("xdist") else 0
        self.timeouts = ("--timeout", "90") if has("pytest_timeout") else ()
        self.number = 0
        os.makedirs(work, exist_ok=True)

    def run(self, mode, arguments, workers, seconds=900):
        """The outcomes of a run, or None if there is no time left for it."""
        seconds = min(seconds, self.deadline - time.monotonic())
        if seconds < 20:
            return None
        self.number += 1
        at = os.path.join(self.work, "%03d-%s" % (self.number, mode))
        command = [PYTHON, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", *self.timeouts, "--junitxml", at + ".xml", *arguments]
        if workers > 1:
            command += ["-n", str(workers)]
        if mode != "without":
            target = () if mode == "no-trace" else ("-o", at)
            command = [self.memprof, *MODES[mode], *target, "--", *command]
        path = os.pathsep.join(p for p in (self.folder, os.environ.get("PYTHONPATH")) if p)
        with open(at + ".log", "w") as log:
            process = subprocess.Popen(command, cwd=os.path.join(self.folder, "test"), env=dict(os.environ, PYTHONPATH=path), stdout=log, stderr=log, start_new_session=True)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        shutil.rmtree(at, ignore_errors=True)  # the recording
        return outcomes(at + ".xml")

    def again(self, mode, file, tests):
        """Runs tests alone, each process one after the other. Returns the outcomes of two runs."""
        words = " or ".join(test.split("::")[1].split("[")[0] for test in tests)
        runs = [self.run(mode, [file.name, "-k", words], 0) for _ in range(2)]
        return [run for run in runs if run is not None]


def compare(runner, files, modes, runs=None, say=print):
    """Runs the files and returns (counts of passed tests by file and mode, differences)."""
    counts, differences = {}, []
    for file in files:
        times = runs or file.runs
        native = [runner.run("without", [file.name, *file.arguments], runner.workers) for _ in range(times)]
        native = [run for run in native if run is not None]
        if not native:
            say(f"{file.name}: no time left")
            continue
        counts[file.name] = {"without": [sum(o.kind == "pass" for o in run.values()) for run in native]}
        for mode in (mode for mode in modes if mode in file.modes):
            recorded = [runner.run(mode, [file.name, *file.arguments], runner.workers) for _ in range(times)]
            recorded = [run for run in recorded if run is not None]
            if not recorded:
                continue
            counts[file.name][mode] = [sum(o.kind == "pass" for o in run.values()) for run in recorded]
            found = suspects(native, recorded)
            say(f"{file.name} {mode}: {counts[file.name]['without']} pass without, {counts[file.name][mode]} with; {len(found)} to look at")
            for test, message in found.items():
                say(f"    {test}: {message}")
            if not found:
                continue
            before, after = runner.again("without", file, found), runner.again(mode, file, found)
            if not after:  # no time: what was seen counts
                differences += [Difference(test, mode, message) for test, message in found.items()]
                continue
            alone_too = suspects([run for run in before if run] or native, after)
            differences += [Difference(test, mode, alone_too[test]) for test in found if test in alone_too]
    return counts, differences


def chosen(folder, names, gpus):
    """The files to run: those that the folder has, and that the machine has GPUs for."""
    there = [file for file in FILES if os.path.exists(os.path.join(folder, "test", file.name)) and file.gpus <= gpus]
    return [file for file in there if not names or file.name in names or os.path.basename(file.name) in names]


def check(folder, memprof, work, gpus, names=(), modes=ALL, runs=None, limit=None, say=print):
    with open(README) as f:
        allowed = exceptions(f.read())
    files = chosen(folder, names, gpus)
    if not files:
        raise Failed(f"{folder}/test has none of the files {', '.join(file.name for file in FILES)}")
    runner = Runner(folder, os.path.abspath(memprof), work, deadline=time.monotonic() + limit if limit else None)
    counts, differences = compare(runner, files, modes, runs, say)
    say("\n" + table(counts, differences, allowed))
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
    parser.add_argument("--limit", type=float, help="seconds, after which no further run begins")
    opts = parser.parse_args()
    names = [name for name in opts.files.split(",") if name]
    try:
        check(opts.folder, opts.memprof, opts.work, opts.gpus, names, opts.modes.split(","), opts.runs, opts.limit, lambda line: print(line, flush=True))
    except Failed as failed:
        print(failed, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
