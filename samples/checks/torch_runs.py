"""Runs of PyTorch's tests: what each test came to, and files that keep it from one call to the next.

A run that is cut off has the tests that ended. A later call continues it: it runs the tests that are
lacking, and the run then has both. It keeps its name, by which the longest of several kept states counts.
"""

import collections
import glob
import json
import os
import uuid

Outcome = collections.namedtuple("Outcome", "kind message")  # kind: pass, fail or skip


class Run(dict):
    """The outcome of each test of a run, by "class::name"."""

    def __init__(self, found=(), seconds=0.0, cut=False, name=None):
        super().__init__(found)
        self.seconds = seconds
        self.cut = cut  # it was killed before it ended: the tests that it lacks may pass
        self.name = name or uuid.uuid4().hex

    def count(self):
        return sum(o.kind == "pass" for o in self.values())

    def passed(self):
        return "%d in %.0f s%s" % (self.count(), self.seconds, ", cut off" if self.cut else "")


def outcomes(base, cut=False):
    """The outcomes in the files that pytest_outcomes.py wrote; nothing if the run did not get so far."""
    found = {}
    for path in glob.glob(glob.escape(base) + "*.jsonl"):
        with open(path) as f:
            lines = f.read().split("\n")[:-1]  # the last one may be incomplete
        for test, kind, message in map(json.loads, lines):
            if found.get(test, Outcome("pass", "")).kind != "fail":  # an error at teardown is a line of its own
                found[test] = Outcome(kind, message)
    died = [test for test, outcome in found.items() if outcome.kind == "start"]
    for test in died:
        found[test] = Outcome("fail", "the process died in it")
        if cut:
            del found[test]
    return found


def write_seen(path, run):
    """Writes the tests of a run that another one continues, for pytest_outcomes.py to leave them out."""
    with open(path, "w") as f:
        f.writelines(json.dumps([test, *outcome]) + "\n" for test, outcome in run.items())


def complete(runs):
    return [run for run in runs if not run.cut]


def read_kept(paths):
    """The runs of files that write_kept wrote: {name: {mode: [run, ...]}}."""
    found = {}
    for path in filter(os.path.exists, paths):
        with open(path) as f:
            for name, by in json.load(f).items():
                for mode, runs in by.items():
                    for run in runs:
                        tests = {test: Outcome(*o) for test, o in run["tests"].items()}
                        add(found.setdefault(name, {}).setdefault(mode, []), Run(tests, run["seconds"], run.get("cut", False), run.get("name")))
    return found


def add(runs, run):
    """Adds a run, or what it came to later: of two states of a run the one with more tests counts."""
    for i, known in enumerate(runs):
        if known.name == run.name:
            runs[i] = max(known, run, key=lambda state: (not state.cut, len(state)))
            return
    runs.append(run)


def write_kept(path, found, known):
    """Writes the runs of `found` that are not of `known`. One without any test is none: pytest could not load the file."""
    old = {id(run) for by in known.values() for runs in by.values() for run in runs}
    kept = {}
    for name, by in found.items():
        for mode, runs in by.items():
            new = [{"name": run.name, "seconds": run.seconds, "cut": run.cut, "tests": run} for run in runs if run and id(run) not in old]
            if new:
                kept.setdefault(name, {})[mode] = new
    with open(path + ".part", "w") as f:
        json.dump(kept, f)
    os.replace(path + ".part", path)
