"""PyTorch's own tests under memprof: each that passes without it passes with it.

    make gpu-check TORCH_TESTS=DIR
    cd samples && python3 -m checks.torch_tests DIR [--files test_cuda.py] [--modes without,classic] [--runs 1] [--limit 540]

DIR has a folder `test` of PyTorch's test files, and whatever they import. Every file runs without
memprof and in each mode, in processes of its own: tests of one file change settings of the process
that tests of another would find. Which process runs which tests is always the same (pytest_shards.py).
Files that do not ask what is free on the card run side by side. A test that passed in every run without
memprof and failed in one with it is run twice more, alone on the card, and if it fails there, twice
without memprof, too: tests that measure time or what is free on the card fail now and then beside
others. Each recording of a run that was not cut off is verified. What fails then, too, is a difference. Differences are allowed only to the tests of a table
of samples/results/torch-tests.md, which says why.

With --limit every file gets some of the time: a run that takes too much of it is killed with all
processes that it started. Its tests that ended are compared; those that it did not reach count as
cut off, not as failed. --keep FILE keeps the outcomes of this call's runs, and --kept FILE,... counts
those of earlier calls and continues what was cut off, so that the runs can be made in several parts;
with --limit 0 nothing is run and the table is printed.
"""

import argparse
import collections
import concurrent.futures
import importlib.util
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from checks.pytest_shards import pass_gate
from checks.suite import HERE, PYTHON, Failed, Suite
from checks.suite import alone as in_suite_alone
from checks.torch_runs import Outcome, Run, add, complete, outcomes, read_kept, write_kept, write_seen

MODES = {
    "classic": ("record", "-q", "--force"),
    "compact": ("record", "-q", "--force", "--preset", "compact"),
    "native": ("record", "-q", "--force", "--allocator", "native"),
    "no-trace": ("record", "-q", "--no-trace"),
    "watch": None,  # without record: MEMPROF_WATCH in the environment
}
ALLOWED = os.path.join(HERE, "results", "torch-tests.md")
HEADING = "# PyTorch's own tests"
MOST_EXCEPTIONS = 6

WITHOUT = "without"

# What runs of a file need: how often each mode runs it, which modes, how many GPUs, whether it runs beside
# other files, how many processes share its tests, how many of its runs, of any modes, are made at the same time,
# and pytest's arguments. What follows a comma in the name tells two rows of one file apart.
File = collections.namedtuple("File", "name runs modes gpus beside workers together arguments")
ALL = tuple(mode for mode, flags in MODES.items() if flags)
# Classes of test_c10d_nccl.py that want three to eight GPUs: on two they start as many processes, only to be skipped.
MORE_GPUS = ("NcclErrorHandlingTest", "NcclUserBufferRegistrationTest", "LargeCommTest", "ProcessGroupNCCLLargerScaleTest")
FILES = (
    File("test_multiprocessing.py", 1, ALL, 1, True, 5, 1, ()),
    File("inductor/test_cudagraph_trees.py", 1, ALL, 1, True, 6, 1, ()),
    File("test_multiprocessing_spawn.py", 1, ALL, 1, True, 3, 1, ()),
    File("test_dataloader.py", 1, ALL, 1, True, 2, 1, ("-k", "cuda")),
    File("test_cuda_sanitizer.py", 1, ALL, 1, True, 1, 1, ()),
    File("test_dlpack.py", 1, ALL, 1, True, 1, 1, ()),
    File("test_cuda_primary_ctx.py", 1, ALL, 1, True, 1, 1, ()),
    File("test_cuda.py", 3, (*ALL, "watch"), 1, False, 12, 1, ()),  # three at a time took more than three times as long
    File("test_cuda_trace.py", 3, ALL, 1, False, 1, 3, ()),
    File("test_cuda_multigpu.py", 3, ALL, 1, False, 3, 5, ()),
    File("test_cuda.py, captures", 20, ("classic",), 1, False, 4, 4, ("-k", "graph")),
    # Thirty of its tests at a time, 60 ranks, wait for each other's kernels: most run into the limit of 90 s, without memprof too.
    File("distributed/test_c10d_nccl.py", 1, ALL, 2, False, 3, 5, ("-k", "not (" + " or ".join(MORE_GPUS) + ")")),
)
LEAST = 25  # seconds that each file's first run in a mode is left, if there are so many
WORTH = 10  # seconds below which no run is begun

Difference = collections.namedtuple("Difference", "test mode message")


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
    """The rows of the table of allowed differences in samples/results/torch-tests.md: {test: (modes, reason)}."""
    section = text.split(HEADING + "\n", 1)[-1].split("\n## ", 1)[0] if HEADING + "\n" in text else ""
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", section, re.M)
    found = {test: (tuple(re.split(r",\s*", modes.strip())), reason.strip()) for test, modes, reason in rows}
    if len(found) > MOST_EXCEPTIONS:
        raise Failed(f"{ALLOWED} allows {len(found)} tests to differ, at most {MOST_EXCEPTIONS} are meant to")
    return found


def unexplained(differences, allowed):
    """The differences that no row of the table allows."""
    return [d for d in differences if not ({d.mode, "all"} & set(allowed.get(d.test, ((),))[0]))]


def cell(runs):
    """What runs of a file have passed; many of them in a few words."""
    if len(runs) <= 3:
        return "; ".join(run.passed() for run in runs)
    spread = lambda numbers: "%d to %d" % (min(numbers), max(numbers)) if min(numbers) != max(numbers) else str(min(numbers))
    return f"{len(runs)} runs: {spread([run.count() for run in runs])} in {spread([round(run.seconds) for run in runs])} s"


def table(counts, differences, allowed):
    """The result as Markdown: passed tests for each file and mode, and each difference."""
    modes = [mode for mode in (WITHOUT, *MODES) if any(mode in by for by in counts.values())]
    lines = ["| file | " + " | ".join(modes) + " |", "|---|" + "---|" * len(modes)]
    for name, by in counts.items():
        lines.append(f"| {name} | " + " | ".join(cell(by.get(mode, ())) for mode in modes) + " |")
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
        self.deadline = float("inf") if limit is None else time.monotonic() + limit
        self.timeouts = ("--timeout", "90") if importlib.util.find_spec("pytest_timeout") is not None else ()
        self.numbers = itertools.count(1)
        self.wrong = []  # what verify says of recordings
        self.most_workers = max(1, len(os.sched_getaffinity(0)) * 3 // 4)
        os.makedirs(work, exist_ok=True)
        for name in ("pytest_outcomes.py", "pytest_shards.py"):
            shutil.copy(os.path.join(HERE, "checks", name), work)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, mode, name, arguments, workers, seconds=900, gate=None, runs=1, begun=None):
        """A run of a file, or the rest of one that was begun, or None if there is no time for it. Runs that are made at the
        same time have a gate in common."""
        seconds = min(seconds, self.left())
        if seconds < WORTH:
            return None
        path = name.split(",")[0]
        at = os.path.join(self.work, "%03d-%s-%s" % (next(self.numbers), mode, os.path.basename(path)))
        command = [PYTHON, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "-p", "pytest_outcomes", "--durations", "8", *self.timeouts, path, *arguments]
        if workers > 1:
            gate = gate or self.new_gate()
            command = [PYTHON, os.path.join(self.work, "pytest_shards.py"), str(min(workers, self.most_workers)), at, gate, str(runs), *command]
        if mode == "watch":
            command += ["-p", "memprof._start"]  # as the package's .pth file imports it
        elif mode != WITHOUT:
            target = () if mode == "no-trace" else ("-o", at)
            command = [self.memprof, *MODES[mode], *target, "--", *command]
        search = os.pathsep.join(p for p in (self.work, self.folder, os.environ.get("PYTHONPATH")) if p)
        env = dict(os.environ, PYTHONPATH=search, PYTEST_OUTCOMES=at + ".jsonl", PYTEST_SEEN=at + ".seen")
        if mode == "watch":
            hooks = subprocess.run([self.memprof, "doctor", "hooks", "path"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
            env.update(MEMPROF=os.path.abspath(self.memprof), MEMPROF_WATCH=os.path.abspath(at), PYTHONPATH=env["PYTHONPATH"] + os.pathsep + os.path.join(hooks, "python"))
        begun = Run() if begun is None else begun
        write_seen(env["PYTEST_SEEN"], begun)
        began = time.monotonic()
        cut = False
        with open(at + ".log", "w") as log:
            process = subprocess.Popen(command, cwd=os.path.join(self.folder, "test"), env=env, stdout=log, stderr=log, start_new_session=True)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                cut = True
                end_session(process)
        if not cut and os.path.isdir(at):
            self.verify(mode, path, at)
        shutil.rmtree(at, ignore_errors=True)  # the recording
        if workers > 1:
            pass_gate(gate, at)  # if it did not get so far, the others would wait for it
        return Run({**begun, **outcomes(at, cut)}, begun.seconds + time.monotonic() - began, cut, begun.name)

    def verify(self, mode, path, recording):
        """Keeps what is wrong in a recording. One with nothing to replay, as of tests that use no GPU, is right."""
        done = subprocess.run([self.memprof, "verify", recording], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode not in (0, 2):
            self.wrong.append(f"{path} {mode}: verify: exit {done.returncode}: " + "; ".join(re.findall(r"^WRONG.*$", done.stdout, re.M) or [done.stdout[-300:].strip()]))

    def new_gate(self):
        """A folder of pytest_shards.py."""
        gate = os.path.join(self.work, "gate-%03d" % next(self.numbers))
        os.mkdir(gate)
        return gate

    def beside(self, step, seconds):
        """Makes the runs of a step, [(mode, file, what was begun of it or None), ...], at the same time: [(mode, file, run), ...]."""
        gate, sharing = self.new_gate(), sum(file.workers > 1 for _, file, _ in step)
        with concurrent.futures.ThreadPoolExecutor(len(step)) as threads:
            runs = [threads.submit(self.run, mode, file.name, file.arguments, file.workers, seconds, gate, sharing, begun) for mode, file, begun in step]
            return [(mode, file, run.result()) for (mode, file, _), run in zip(step, runs)]

    def again(self, mode, file, tests):
        """Runs tests alone, each process one after the other. Returns two runs."""
        words = " or ".join(sorted({test.split("::")[1].split("[")[0] for test in tests}))
        runs = [self.run(mode, file.name, ["-k", words], 0) for _ in range(2)]
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


def wanted_runs(file, mode, runs):
    """How many runs of a file a mode has; without memprof one suffices, since what differs is run again."""
    if mode == WITHOUT:
        return 1
    return (runs or file.runs) if mode in file.modes else 0


def next_steps(group, modes, lacking):
    """The steps of a group of files in a round, which makes the next run of each mode; the runs of several modes at the
    same time, and later ones too where there is room for them. Takes them from `lacking`."""
    if len(group) > 1:
        return [step for step in ([(mode, file) for file in group if take(lacking, file, mode)] for mode in modes) if step]
    file = group[0]
    step = [(mode, file) for mode in modes if take(lacking, file, mode)]
    while len(step) % file.together and any(lacking[file.name, mode] for mode in modes):
        for mode in modes:
            if len(step) % file.together and take(lacking, file, mode):
                step.append((mode, file))
    return [step[i : i + file.together] for i in range(0, len(step), file.together)]


def take(lacking, file, mode):
    """Whether a run of the file in the mode was lacking, which it is no longer."""
    if lacking[file.name, mode] == 0:
        return False
    lacking[file.name, mode] -= 1
    return True


def rounds(files, modes, runs, found):
    """What is left to run, in rounds: a first run of everything, a second one, and so on. A round is a list of
    steps, and a step a list of (mode, file), which run at the same time."""
    lacking = {(file.name, mode): max(0, wanted_runs(file, mode, runs) - len(complete(found[file.name].get(mode, ())))) for file in files for mode in modes}
    plan = []
    while any(lacking.values()):
        plan.append([step for group in groups(files) for step in next_steps(group, modes, lacking)])
    return plan


def expected(found, step):
    """The seconds that a step takes at least, by earlier runs of the files; a run that was begun takes what is left for it."""
    anew = [file for _, file, begun in step if begun is None]
    return max((run.seconds for file in anew for runs in found[file.name].values() for run in complete(runs)), default=WORTH)


def continued(found, step):
    """The step with the runs that were cut off and that it continues: [(mode, file, run or None), ...]."""
    begun = {(mode, file.name): [run for run in found[file.name].get(mode, ()) if run.cut] for mode, file in step}
    return [(mode, file, begun[mode, file.name].pop(0) if begun[mode, file.name] else None) for mode, file in step]


def run_steps(runner, steps, found, say):
    """Makes the runs of a round, each with some of the time that is left."""
    for i, step in enumerate(steps):
        later = len(steps) - i - 1
        left = runner.left()
        step = continued(found, step)
        if left < expected(found, step):
            say("; ".join(dict.fromkeys(f"{file.name} {mode}" for mode, file, _ in step)) + ": no time left")
            continue
        for mode, file, run in runner.beside(step, max(left - LEAST * later, left / (later + 1))):
            if run is not None:
                add(found[file.name].setdefault(mode, []), run)
                say(f"{file.name} {mode}: {run.passed()}")


def alone(found, file, mode):
    """The runs of single tests of a file, alone on the card, in a mode."""
    return found[file.name].setdefault("alone " + mode, [])


def run_alone(runner, found, file, mode, tests):
    """Runs those of the tests alone that were not twice yet, and returns which of them failed: {test: message}."""
    runs = alone(found, file, mode)
    lacking = lambda: [test for test in tests if sum(test in run for run in runs) < 2]
    if lacking():
        runs += runner.again(mode, file, lacking())
    failed = {test: "not run again: " + tests[test] for test in lacking()}
    for run in runs:
        failed.update({test: run[test].message or "it was skipped" for test in tests if test in run and run[test].kind != "pass"})
    return failed


def looked_into(runner, found, file, mode, tests):
    """The tests that fail in a mode when they run alone, too, and do not without memprof: {test: message}."""
    failed = run_alone(runner, found, file, mode, tests)
    without = run_alone(runner, found, file, WITHOUT, failed) if failed else {}
    return {test: message for test, message in failed.items() if without.get(test, "not run again").startswith("not run again")}


def compare(runner, files, modes, runs=None, found=None, allowed=None, say=print, keep=lambda: None):
    """Runs the files and returns (runs by file and mode, differences). Begins with what differs in runs of earlier calls.
    Tests that are allowed to differ are not run again: what a failed test leaves behind can fail the next one."""
    found = found if found is not None else {}
    for file in files:
        found.setdefault(file.name, {})
    said = set()

    def say_once(line):
        if line not in said:
            said.add(line)
            say(line)

    for steps in [[], *rounds(files, modes, runs, found)]:
        run_steps(runner, steps, found, say)
        keep()
        differences = []
        for file, mode in itertools.product(files, modes):
            differences += differing(runner, found, file, mode, allowed or {}, say_once)
        keep()
    return found, differences


def differing(runner, found, file, mode, allowed, say):
    """The differences of a file in a mode, after tests that failed beside others were run alone."""
    looked_at = suspects(found[file.name].get(WITHOUT, []), found[file.name].get(mode, [])) if mode != WITHOUT else {}
    for test, message in looked_at.items():
        say(f"{file.name} {mode}, to look at: {test}: {message}")
    seen = [Difference(test, mode, message) for test, message in looked_at.items()]
    left = unexplained(seen, allowed)
    found_alone = looked_into(runner, found, file, mode, {d.test: d.message for d in left}) if left else {}
    return [d for d in seen if d not in left] + [Difference(test, mode, message) for test, message in found_alone.items()]


def chosen(folder, names, gpus):
    """The files to run: those that the folder has, and that the machine has GPUs for."""
    there = [file for file in FILES if os.path.exists(os.path.join(folder, "test", file.name.split(",")[0])) and file.gpus <= gpus]
    return [file for file in there if not names or file.name in names or os.path.basename(file.name) in names]


def check(folder, memprof, work, gpus, names=(), modes=(WITHOUT, *ALL), runs=None, limit=None, kept=(), keep=None, say=print):
    with open(ALLOWED) as f:
        allowed = exceptions(f.read())
    files = chosen(folder, names, gpus)
    if not files:
        raise Failed(f"{folder}/test has none of the files {', '.join(file.name for file in FILES)}")
    known = read_kept(kept)
    found = {name: {mode: list(done) for mode, done in by.items()} for name, by in known.items()}
    keeper = (lambda: write_kept(keep, found, known)) if keep else (lambda: None)
    runner = Runner(folder, os.path.abspath(memprof), work, limit)
    found, differences = compare(runner, files, modes, runs, found, allowed, say, keeper)
    say("\n" + table({file.name: found[file.name] for file in files}, differences, allowed))
    left = unexplained(differences, allowed)
    if runner.wrong:
        raise Failed("; ".join(runner.wrong))
    if left:
        raise Failed(f"{len(left)} tests pass without memprof and fail with it: " + ", ".join(f"{d.test} ({d.mode})" for d in left))


FOLDER = os.environ.get("TORCH_TESTS")
if FOLDER:

    @in_suite_alone
    def torch_tests(suite: Suite):
        """PyTorch's own tests, in every mode."""
        check(FOLDER, suite.memprof, suite.work, suite.gpus(), say=suite.lines.append)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--memprof", default=os.path.join(os.path.dirname(HERE), "bin", "memprof"))
    parser.add_argument("--work", default="/tmp/memprof-torch-tests-%d" % os.getpid())
    parser.add_argument("--files", default="", help="names, separated by semicolons; default: all")
    parser.add_argument("--modes", default=",".join((WITHOUT, *ALL)))
    parser.add_argument("--runs", type=int, help="of each file in each mode")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, help="seconds, after which all runs are over")
    parser.add_argument("--kept", default="", help="files of earlier calls' --keep, separated by commas")
    parser.add_argument("--keep", help="file for the outcomes of this call's runs")
    opts = parser.parse_args()
    names = [name for name in opts.files.split(";") if name]
    kept = [path for path in opts.kept.split(",") if path]
    try:
        check(opts.folder, opts.memprof, opts.work, opts.gpus, names, opts.modes.split(","), opts.runs, opts.limit, kept, opts.keep, lambda line: print(line, flush=True))
    except Failed as failed:
        print(failed, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
