"""Tests of the comparison of PyTorch's tests with and without memprof; no GPU and no torch is needed."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import torch_tests
from checks.suite import Failed
from checks.torch_tests import Difference, File, Outcome

PASS, FAIL, SKIP = Outcome("pass", ""), Outcome("fail", "wrong"), Outcome("skip", "")


class Outcomes(unittest.TestCase):
    def read(self, body):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as f:
            f.write(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
            f.flush()
            return torch_tests.outcomes(f.name)

    def test_kinds(self):
        found = self.read(
            '<testcase classname="test_cuda.TestCuda" name="a"/>'
            '<testcase classname="test_cuda.TestCuda" name="b"><failure message="one&#10; two"/></testcase>'
            '<testcase classname="test_cuda.TestCuda" name="c"><skipped/></testcase>'
            '<testcase classname="test_cuda.TestCuda" name="d"><error message="teardown"/></testcase>'
        )
        self.assertEqual(found, {"TestCuda::a": PASS, "TestCuda::b": Outcome("fail", "one two"), "TestCuda::c": SKIP, "TestCuda::d": Outcome("fail", "teardown")})

    def test_a_failure_is_not_hidden_by_a_second_case_of_the_test(self):
        for order in ("<testcase classname='T' name='a'/>{}", "{}<testcase classname='T' name='a'/>"):
            self.assertEqual(self.read(order.format("<testcase classname='T' name='a'><error message='wrong'/></testcase>")), {"T::a": FAIL})

    def test_a_run_that_wrote_nothing(self):
        self.assertEqual(torch_tests.outcomes("/nonexistent.xml"), {})


class Suspects(unittest.TestCase):
    def test_only_what_passes_in_every_native_run(self):
        native = [{"a": PASS, "b": PASS, "c": FAIL, "d": SKIP}, {"a": PASS, "b": FAIL, "c": FAIL, "d": SKIP}]
        self.assertEqual(torch_tests.suspects(native, [{"a": FAIL, "b": FAIL, "c": FAIL, "d": FAIL}]), {"a": "wrong"})

    def test_one_failure_in_three_runs(self):
        self.assertEqual(torch_tests.suspects([{"a": PASS}], [{"a": PASS}, {"a": FAIL}, {"a": PASS}]), {"a": "wrong"})

    def test_a_test_that_is_missing_or_skipped(self):
        found = torch_tests.suspects([{"a": PASS, "b": PASS}], [{"b": SKIP}])
        self.assertEqual(found, {"a": "it was not run: the process ended before it", "b": "it was skipped"})


class Pretend:
    """A runner with given answers; each is used once, in order, by mode."""

    workers = 8

    def __init__(self, **answers):
        self.answers = {mode.replace("_", "-"): list(runs) for mode, runs in answers.items()}

    def run(self, mode, arguments, workers):
        return self.answers[mode].pop(0) if self.answers[mode] else None

    def again(self, mode, file, tests):
        return [run for run in (self.run(mode, [], 0), self.run(mode, [], 0)) if run is not None]


class Compare(unittest.TestCase):
    FILE = File("test_cuda.py", 1, torch_tests.ALL, 1, ())

    def compare(self, **answers):
        return torch_tests.compare(Pretend(**answers), [self.FILE], ["classic"], say=lambda line: None)

    def test_no_difference(self):
        self.assertEqual(self.compare(without=[{"a": PASS}], classic=[{"a": PASS}]), ({"test_cuda.py": {"without": [1], "classic": [1]}}, []))

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
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])


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
        counts = {"test_cuda.py": {"without": [3, 3], "classic": [3, 2]}}
        text = torch_tests.table(counts, [Difference("T::a", "classic", "how")], {"T::a": (("all",), "why")})
        self.assertIn("| test_cuda.py | 3, 3 | 3, 2 |", text)
        self.assertIn("| T::a | classic | yes | how |", text)
        self.assertTrue(torch_tests.table(counts, [], {}).endswith("no test differs"))


if __name__ == "__main__":
    unittest.main()
