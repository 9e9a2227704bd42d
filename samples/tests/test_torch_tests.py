"""Tests of the comparison of PyTorch's tests with and without memprof; no GPU and no torch is needed."""

import importlib.util
import os
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import torch_tests
from checks.suite import Failed
from checks.torch_tests import Difference, File, Outcome, Run

PASS, FAIL, SKIP = Outcome("pass", ""), Outcome("fail", "wrong"), Outcome("skip", "")


class Outcomes(unittest.TestCase):
    def read(self, *lines):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.write("".join(lines))
            f.flush()
            return torch_tests.outcomes(f.name)

    def test_kinds(self):
        found = self.read('["T::a", "pass", ""]\n', '["T::b", "fail", "one two"]\n', '["T::c", "skip", ""]\n', '["T::d", "pa')
        self.assertEqual(found, {"T::a": PASS, "T::b": Outcome("fail", "one two"), "T::c": SKIP})

    def test_a_failure_is_not_hidden_by_a_second_line_of_the_test(self):
        lines = '["T::a", "pass", ""]\n', '["T::a", "fail", "wrong"]\n'
        for order in (lines, lines[::-1]):
            self.assertEqual(self.read(*order), {"T::a": FAIL})

    def test_a_run_that_wrote_nothing(self):
        self.assertEqual(torch_tests.outcomes("/nonexistent.jsonl"), {})


class Suspects(unittest.TestCase):
    def test_only_what_passes_in_every_native_run(self):
        native = [Run({"a": PASS, "b": PASS, "c": FAIL, "d": SKIP}), Run({"a": PASS, "b": FAIL, "c": FAIL, "d": SKIP})]
        self.assertEqual(torch_tests.suspects(native, [Run({"a": FAIL, "b": FAIL, "c": FAIL, "d": FAIL})]), {"a": "wrong"})

    def test_one_failure_in_three_runs(self):
        self.assertEqual(torch_tests.suspects([Run({"a": PASS})], [Run({"a": PASS}), Run({"a": FAIL}), Run({"a": PASS})]), {"a": "wrong"})

    def test_a_test_that_is_missing_or_skipped(self):
        found = torch_tests.suspects([Run({"a": PASS, "b": PASS})], [Run({"b": SKIP})])
        self.assertEqual(found, {"a": "it was not run: the process ended before it", "b": "it was skipped"})

    def test_a_run_that_was_cut_off(self):
        native = [Run({"a": PASS, "b": PASS})]
        self.assertEqual(torch_tests.suspects(native, [Run({"b": FAIL}, cut=True)]), {"b": "wrong"})
        self.assertEqual(torch_tests.suspects([Run({"a": PASS}, cut=True), *native], [Run({"a": PASS, "b": FAIL})]), {})


class Pretend:
    """A runner with given answers; each is used once, in order, by mode."""

    def __init__(self, **answers):
        self.answers = {mode.replace("_", "-"): list(runs) for mode, runs in answers.items()}

    def left(self):
        return 100

    def run(self, mode):
        return Run(self.answers[mode].pop(0)) if self.answers[mode] else None

    def beside(self, mode, files, seconds):
        return {file.name: self.run(mode) for file in files}

    def again(self, mode, file, tests):
        return [run for run in (self.run(mode), self.run(mode)) if run is not None]


def file(name, runs=1, beside=False):
    return File(name, runs, torch_tests.ALL, 1, beside, 8, ())


class Compare(unittest.TestCase):
    def compare(self, **answers):
        return torch_tests.compare(Pretend(**answers), [file("test_cuda.py")], ["classic"], say=lambda line: None)

    def test_no_difference(self):
        self.assertEqual(self.compare(without=[{"a": PASS}], classic=[{"a": PASS}]), ({"test_cuda.py": {"without": [{"a": PASS}], "classic": [{"a": PASS}]}}, []))

    def test_a_failure_that_does_not_come_back_alone(self):
        _, differences = self.compare(without=[{"a": PASS}] * 3, classic=[{"a": FAIL}, {"a": PASS}, {"a": PASS}])
        self.assertEqual(differences, [])

    def test_a_failure_in_one_of_two_runs_alone(self):
        _, differences = self.compare(without=[{"a": PASS}] * 3, classic=[{"a": FAIL}, {"a": PASS}, {"a": FAIL}])
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])

    def test_a_test_that_fails_alone_without_memprof_too(self):
        _, differences = self.compare(without=[{"a": PASS}, {"a": FAIL}, {"a": PASS}], classic=[{"a": FAIL}] * 3)
        self.assertEqual(differences, [])

    def test_no_time_to_look_again(self):
        _, differences = self.compare(without=[{"a": PASS}], classic=[{"a": FAIL}])
        self.assertEqual(differences, [Difference("a", "classic", "not run again: wrong")])


    def test_a_test_that_is_allowed_to_differ_is_not_run_again(self):
        runner = Pretend(without=[{"a": PASS, "b": PASS}], classic=[{"a": FAIL, "b": PASS}, {"a": PASS}])
        _, differences = torch_tests.compare(runner, [file("test_cuda.py")], ["classic"], allowed={"a": (("all",), "why")}, say=lambda line: None)
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])
        self.assertEqual(len(runner.answers["classic"]), 1)


class Plan(unittest.TestCase):
    def names(self, *args):
        return [(number, mode, [f.name for f in files]) for number, mode, files in torch_tests.steps(*args)]

    def test_a_first_run_of_everything_before_a_second_one(self):
        files = [file("a", 2), file("b", beside=True), file("c", beside=True)]
        self.assertEqual(
            self.names(files, ["classic"], None, {"c": []}),
            [(0, "without", ["b"]), (0, "classic", ["b", "c"]), (0, "without", ["a"]), (0, "classic", ["a"]), (1, "without", ["a"]), (1, "classic", ["a"])],
        )

    def test_runs_that_were_asked_for(self):
        self.assertEqual(self.names([file("a", 3)], ["native"], 1, {"a": []}), [(0, "native", ["a"])])


class Running(unittest.TestCase):
    """A run of pytest itself, in a folder with one file of tests."""

    TESTS = "import os, subprocess, time\ndef test_a(): pass\ndef test_b(): assert 1 == 2\ndef test_c():\n    open('child', 'w').write(str(subprocess.Popen(['sleep', '600'], process_group=0).pid))\n    time.sleep(600)\n"

    @unittest.skipIf(importlib.util.find_spec("pytest") is None, "there is no pytest")
    def test_a_run_that_is_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "test"))
            with open(os.path.join(folder, "test", "test_x.py"), "w") as f:
                f.write(self.TESTS)
            runner = torch_tests.Runner(folder, "memprof", os.path.join(folder, "work"))
            runner.timeouts = ()
            with mock.patch.object(torch_tests, "WORTH", 0):
                run = runner.run("without", ["test_x.py"], 0, seconds=4)
            self.assertTrue(run.cut)
            self.assertEqual({test.split("::")[-1]: o.kind for test, o in run.items()}, {"test_a": "pass", "test_b": "fail"})
            with open(os.path.join(folder, "test", "child")) as f:
                child = int(f.read())
            for _ in range(100):  # a killed process takes a moment to end
                if not running(child):
                    break
                time.sleep(0.05)
            self.assertFalse(running(child))


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Native(unittest.TestCase):
    def test_kept_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "native.json")
            self.assertEqual(torch_tests.read_native(path), {})
            torch_tests.write_native(path, {"a": {"without": [Run({"t": FAIL}), Run({"u": PASS}, cut=True)]}, "b": {"classic": [Run()]}})
            self.assertEqual(torch_tests.read_native(path), {"a": [{"t": FAIL}]})


class Table(unittest.TestCase):
    TEXT = "# Samples\n\n" + torch_tests.HEADING + "\n\n| test | mode | why |\n|---|---|---|\n| `T::a` | all | counts segments |\n| `T::b` | classic, compact | other |\n\n## Next\n\n| `T::c` | all | not of this table |\n"

    def test_rows(self):
        self.assertEqual(torch_tests.exceptions(self.TEXT), {"T::a": (("all",), "counts segments"), "T::b": (("classic", "compact"), "other")})
        self.assertEqual(torch_tests.exceptions("# Samples\n"), {})

    def test_too_many(self):
        rows = "".join(f"| `T::{i}` | all | why |\n" for i in range(torch_tests.MOST_EXCEPTIONS + 1))
        with self.assertRaises(Failed):
            torch_tests.exceptions(torch_tests.HEADING + "\n" + rows)

    def test_what_is_allowed(self):
        allowed = torch_tests.exceptions(self.TEXT)
        differences = [Difference("T::a", "native", ""), Difference("T::b", "classic", ""), Difference("T::b", "native", ""), Difference("T::c", "classic", "")]
        self.assertEqual(torch_tests.unexplained(differences, allowed), differences[2:])

    def test_the_printed_table(self):
        counts = {"test_cuda.py": {"without": [Run({"a": PASS}, 3), Run({"a": PASS}, 4)], "classic": [Run({"a": PASS}, 5, True), Run({"a": FAIL}, 6)]}}
        text = torch_tests.table(counts, [Difference("T::a", "classic", "how")], {"T::a": (("all",), "why")})
        self.assertIn("| test_cuda.py | 1 in 3 s; 1 in 4 s | 1 in 5 s, cut off; 0 in 6 s |", text)
        self.assertIn("| T::a | classic | yes | how |", text)
        self.assertTrue(torch_tests.table(counts, [], {}).endswith("no test differs"))


if __name__ == "__main__":
    unittest.main()
