"""Tests of the acceptance suite itself; no GPU and no torch is needed.

What a case reads from memprof is checked against the binary: commands and flags against their help, metrics of gates
against the list, keys of JSON against the schemas of `memprof help json`. So a case that a change of memprof has made stale
is found here, not on the next GPU.
"""

import ast
import functools
import glob
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest

SAMPLES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(SAMPLES)
SUITE = os.path.join(SAMPLES, "gpu_check.py")
sys.path.insert(0, SAMPLES)

import checks  # noqa: E402
import gpu_check  # noqa: E402
from checks import basics, parts, suite  # noqa: E402

PLUGINS = "pytest_"


def sources():
    """The files of cases, parsed: [(name, tree)]."""
    for module in pkgutil.iter_modules(checks.__path__):
        if not module.name.startswith(PLUGINS):
            path = importlib.import_module("checks." + module.name).__file__
            with open(path) as f:
                yield os.path.basename(path), ast.parse(f.read())


def texts(nodes):
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def is_memprof(node):
    return isinstance(node, ast.Attribute) and node.attr == "memprof"


def commands(tree):
    """Lists that begin with the path of memprof, without it and what follows "--": ["report", "--json"]."""
    for node in ast.walk(tree):
        if isinstance(node, ast.List) and node.elts and is_memprof(node.elts[0]):
            words = texts(node.elts[1:])
            yield words[: words.index("--")] if "--" in words else words


def flags_of_record(tree):
    """Flags in calls of the suite's methods that run `memprof record`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("record", "same"):
            yield from (text for text in texts(node.args) if text.startswith("--"))


def read_keys(tree):
    """Strings that values are indexed with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            yield from texts([node.slice])


@functools.cache
def memprof():
    """The binary, built of this tree."""
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    subprocess.run(["go", "build", "-o", folder, "./cmd/memprof"], cwd=ROOT, check=True)
    return os.path.join(folder, "memprof")


@functools.cache
def printed(*arguments):
    done = subprocess.run([memprof(), *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


@unittest.skipUnless(shutil.which("go"), "no go here to build memprof with")
class Readings(unittest.TestCase):
    """What cases read exists."""

    def test_commands(self):
        seen = 0
        for name, tree in sources():
            for words in filter(None, commands(tree)):
                verbs = words[: next((k for k, word in enumerate(words) if word.startswith("-")), len(words))][:2]
                help_text = printed(*verbs, "--help") or printed(*verbs[:1], "--help")
                help_text += printed("record", "--help") if "--run" in words else ""
                self.assertRegex(help_text, r"memprof " + verbs[0], f"{name}: memprof {' '.join(words)}")
                for word in (word for word in words if word.startswith("-")):
                    seen += 1
                    self.assertRegex(help_text, rf"(?m)^ .*(?<![\w-]){word}\b", f"{name}: {word} of memprof {' '.join(verbs)}")
        self.assertGreater(seen, 30)

    def test_flags_of_record(self):
        flags = [(name, flag) for name, tree in sources() for flag in flags_of_record(tree)]
        for name, flag in flags:
            self.assertRegex(printed("record", "--help"), rf"(?m)^ .*{flag}\b", f"{name}: {flag} of memprof record")
        self.assertGreater(len(flags), 10)

    def test_metrics_of_gates(self):
        metrics = {line.split()[0] for line in printed("check", "--list").splitlines() if line}
        seen = 0
        for name, tree in sources():
            for node in ast.walk(tree):
                words = texts(node.elts) if isinstance(node, ast.List) else texts(node.args) if isinstance(node, ast.Call) else []
                for gate in (after for word, after in zip(words, words[1:]) if word == "--gate"):
                    seen += 1
                    self.assertIn(re.match(r"[\w.]+", gate).group(), metrics, f"{name}: gate {gate!r}")
        self.assertGreater(seen, 10)

    def test_sections(self):
        lists = [texts(node.elts) for _, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.List)]
        sections = [after for words in lists for word, after in zip(words, words[1:]) if word == "--section"]
        for section in sections:
            self.assertIn(section, re.findall(r"\w+", printed("report", "--section", "list")))
        self.assertTrue(sections)

    def test_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            printed("report", "--plots", folder, os.path.join(SAMPLES, "alexnet"))
            drawn = sorted(file.split("-", 2)[2] for file in os.listdir(folder))
        self.assertEqual(drawn, sorted(plot + ending for plot in basics.PLOTS for ending in (".png", ".svg")))

    def test_keys(self):
        known = set(re.findall(r"\w+", printed("report", "--table", "paper", "--json", os.path.join(SAMPLES, "zoo"))))
        for path in glob.glob(os.path.join(ROOT, "cmd", "memprof", "help", "schema", "*.txt")):
            with open(path) as f:
                known.update(re.findall(r"\w+", f.read()))
        self.assertIn("unexplained_share", known)
        jobs = [*glob.glob(os.path.join(SAMPLES, "jobs", "*.py")), *glob.glob(os.path.join(SAMPLES, "*.py"))]  # what these print
        others = ("analysis/snapshot", "cmd/memprof/internal/doctor")  # torch's snapshots, and the names of doctor's checks
        for path in [*jobs, *(path for folder in others for path in glob.glob(os.path.join(ROOT, folder, "*.go")))]:
            with open(path) as f:
                known.update(re.findall(r"\w+", f.read()))
        for name, tree in sources():
            keys = set(read_keys(tree))
            indexed = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
            said = {word for node in ast.walk(tree) if id(node) not in indexed for text in texts([node]) for word in re.findall(r"[\w-]+", text)}
            said |= {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
            for key in keys:
                words = said | known
                made = any(key[:k] in words and key[k:] in words for k in range(3, len(key) - 2))  # f"{name}_reserved"
                self.assertTrue(key in said or made or set(re.findall(r"\w+", key)) <= known, f"{name}: nothing writes the key {key!r}")


class Parts(unittest.TestCase):
    def test_each_case_is_in_one_part_of_one_gpu(self):
        dict(sources())  # imports all cases
        one_gpu = [name for part in parts.all_parts()[:-1] for name in parts.cases(part)]
        self.assertEqual(sorted(one_gpu), sorted(set(suite.CASES) - suite.TWO))
        self.assertTrue(suite.TWO <= set(parts.cases(len(parts.PARTS) + 1)))

    def run_of(self, folder, limit, **cases):
        """A run of cases that are given as functions, under a limit in seconds."""
        tool = os.path.join(folder, "memprof")
        with open(tool, "w") as f:
            f.write("#!/bin/sh\necho memprof version abc\n")
        os.chmod(tool, 0o755)
        suite.CASES.update(cases)
        self.addCleanup(lambda: [suite.CASES.pop(name) for name in cases])
        options = types.SimpleNamespace(memprof=tool, work=folder, keep=None, limit=limit, jobs=1)
        run = gpu_check.Run(options, "a card")
        self.assertFalse(run.run(list(cases)))
        return run

    def test_a_part_that_is_cut_off_says_what_it_had(self):
        def passes(suite):
            suite.figure("speed", "1.00x")

        def fails(_):
            raise suite.Failed("/tmp/w-1/run: too slow")

        def left(_):
            raise suite.LeftOut("no such library")

        with tempfile.TemporaryDirectory() as folder:
            run = self.run_of(folder, 2.4, passes=passes, fails=fails, left=left, waits=lambda s: s.run(["sleep", "60"]), late=passes)
            lines = run.summary(["passes", "fails", "left", "waits", "late"])
        self.assertEqual(lines[-5:], ["not run: left waits late", "", "failed: fails", "", "1 passed, 1 failed, 3 not run"])
        self.assertEqual(run.outcomes["fails"]["failure"], "run: too slow")
        self.assertIn("speed  1.00x", lines)
        self.assertEqual({name: (o["passed"], o["memprof"], o["device"]) for name, o in run.outcomes.items()}, {"passes": (True, "abc", "a card"), "fails": (False, "abc", "a card")})

    def test_a_signal_ends_a_part_with_what_it_had(self):
        script = f"""
import os, signal, sys, threading, time, types
sys.path.insert(0, {SAMPLES!r})
import gpu_check
from checks import suite
memprof = os.path.join(sys.argv[1], "memprof")
open(memprof, "w").write("#!/bin/sh\\necho memprof version abc\\n")
os.chmod(memprof, 0o755)
suite.CASES.update(quick=lambda s: None, waits=lambda s: (open(sys.argv[1] + "/begun", "w"), time.sleep(0.5), s.run(["sleep", "60"])))
run = gpu_check.Run(types.SimpleNamespace(memprof=memprof, work=sys.argv[1], keep=None, limit=None, jobs=1), "a card")
print(run.run(["quick", "waits"]), run.summary(["quick", "waits"])[-1], flush=True)
os._exit(0)
"""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True)
            while not os.path.exists(os.path.join(folder, "begun")):
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            process.terminate()
            output, _ = process.communicate(timeout=30)
        self.assertEqual(output.splitlines()[-1], "True 1 passed, 0 failed, 1 not run")

    def test_listing(self):
        lines = parts.listing({"pair_cost": {"passed": True, "seconds": 12.5, "memprof": "abc", "device": "a card"}})
        self.assertRegex(lines[0], r"^PART=1  basics: \d+ cases, 1 of them run, 12 s of cases$")
        self.assertIn("    pair_cost                        ok       12.5 s  memprof abc, a card", lines)


class Listing(unittest.TestCase):
    def test_without_pytest(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "pytest.py"), "w") as f:
                f.write("raise ImportError('there is no pytest')\n")
            environment = dict(os.environ, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run([sys.executable, SUITE, "--list"], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("pair_cost", done.stdout)


if __name__ == "__main__":
    unittest.main()
