"""Tests of the comparison of PyTorch's tests with and without memprof; no GPU and no torch is needed."""

import importlib.util
import os
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from checks import torch_runs, torch_tests
from checks.suite import Failed
from checks.torch_runs import Outcome, Run
from checks.torch_tests import Difference, File

PASS, FAIL, SKIP = Outcome("pass", ""), Outcome("fail", "wrong"), Outcome("skip", "")


class Outcomes(unittest.TestCase):
    def read(self, *files, cut=False):
        with tempfile.TemporaryDirectory() as folder:
            base = os.path.join(folder, "001-classic-test_x.py")
            for i, lines in enumerate(files):
                with open(f"{base}.{i}.jsonl", "w") as f:
                    f.write("".join(lines))
            return torch_runs.outcomes(base, cut)

    def test_kinds(self):
        found = self.read(['["T::a", "start", ""]\n', '["T::a", "pass", ""]\n', '["T::b", "fail", "one two"]\n'], ['["T::c", "skip", ""]\n', '["T::d", "pa'])
        self.assertEqual(found, {"T::a": PASS, "T::b": Outcome("fail", "one two"), "T::c": SKIP})

    def test_a_failure_is_not_hidden_by_a_second_line_of_the_test(self):
        lines = '["T::a", "pass", ""]\n', '["T::a", "fail", "wrong"]\n'
        for order in (lines, lines[::-1]):
            self.assertEqual(self.read(order), {"T::a": FAIL})

    def test_a_test_in_which_the_process_died(self):
        lines = '["T::a", "pass", ""]\n', '["T::b", "start", ""]\n'
        self.assertEqual(self.read(lines), {"T::a": PASS, "T::b": Outcome("fail", "the process died in it")})
        self.assertEqual(self.read(lines, cut=True), {"T::a": PASS})

    def test_a_run_that_wrote_nothing(self):
        self.assertEqual(torch_runs.outcomes("/nonexistent"), {})


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

    def beside(self, step, seconds):
        self.begun = getattr(self, "begun", []) + [begun for _, _, begun in step]
        return [(mode, file, self.run(mode)) for mode, file, _ in step]

    def again(self, mode, file, tests):
        return [run for run in (self.run(mode), self.run(mode)) if run is not None]


def file(name, runs=1, beside=False, together=1):
    return File(name, runs, torch_tests.ALL, 1, beside, 8, together, ())


class Compare(unittest.TestCase):
    def compare(self, found=None, **answers):
        self.runner = Pretend(**answers)
        found, differences = torch_tests.compare(self.runner, [file("test_cuda.py")], ["without", "classic"], found=found, say=lambda line: None)
        return found["test_cuda.py"], differences

    def test_no_difference(self):
        self.assertEqual(self.compare(without=[{"a": PASS}], classic=[{"a": PASS}]), ({"without": [{"a": PASS}], "classic": [{"a": PASS}]}, []))

    def test_a_failure_that_does_not_come_back_alone(self):
        _, differences = self.compare(without=[{"a": PASS}], classic=[{"a": FAIL}, {"a": PASS}, {"a": PASS}])
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

    def test_no_time_to_look_again_without_memprof(self):
        _, differences = self.compare(without=[{"a": PASS}], classic=[{"a": FAIL}] * 3)
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])

    def test_runs_of_earlier_calls_are_not_made_again(self):
        earlier = {"test_cuda.py": {"without": [Run({"a": PASS})], "classic": [Run({"a": FAIL})], "alone classic": [Run({"a": FAIL})] * 2}}
        found, differences = self.compare(found=earlier, without=[{"a": PASS}] * 2, classic=[])
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])
        self.assertEqual([len(runs) for runs in found.values()], [1, 1, 2, 2])

    def test_what_differs_in_runs_of_earlier_calls_comes_first(self):
        earlier = {"test_cuda.py": {"without": [Run({"a": PASS}), Run({"a": PASS})], "classic": [Run({"a": FAIL}, cut=True)]}}
        found, differences = self.compare(found=earlier, without=[{"a": PASS}] * 2, classic=[{"a": FAIL}, {"a": FAIL}, {"a": PASS}])
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])
        self.assertEqual(found["alone classic"], [{"a": FAIL}, {"a": FAIL}])

    def test_a_test_that_is_allowed_to_differ_is_not_run_again(self):
        runner = Pretend(without=[{"a": PASS, "b": PASS}], classic=[{"a": FAIL, "b": PASS}, {"a": PASS}])
        _, differences = torch_tests.compare(runner, [file("test_cuda.py")], ["without", "classic"], allowed={"a": (("all",), "why")}, say=lambda line: None)
        self.assertEqual(differences, [Difference("a", "classic", "wrong")])
        self.assertEqual(len(runner.answers["classic"]), 1)


class Plan(unittest.TestCase):
    def names(self, files, modes, runs=None, **done):
        found = {f.name: {mode: [Run()] * n for mode, n in done.get(f.name, {}).items()} for f in files}
        return [[[(mode, f.name) for mode, f in step] for step in steps] for steps in torch_tests.rounds(files, modes, runs, found)]

    def test_a_first_run_of_everything_before_a_second_one(self):
        files = [file("a", 2), file("b", beside=True), file("c", beside=True)]
        self.assertEqual(
            self.names(files, ["without", "classic"], c={"without": 1}),
            [[[("without", "b")], [("classic", "b"), ("classic", "c")], [("without", "a")], [("classic", "a")]], [[("classic", "a")]]],
        )

    def test_runs_at_the_same_time(self):
        self.assertEqual(self.names([file("a", 5, together=3)], ["classic"], a={"classic": 1}), [[[("classic", "a")] * 3], [[("classic", "a")]]])

    def test_runs_of_several_modes_at_the_same_time(self):
        names = self.names([file("a", 2, together=2)], ["without", "classic", "compact"], a={"without": 1, "compact": 1})
        self.assertEqual(names, [[[("classic", "a"), ("compact", "a")]], [[("classic", "a")]]])
        names = self.names([file("a", 3, together=2)], ["without", "classic", "compact"])
        self.assertEqual(names[0], [[("without", "a"), ("classic", "a")], [("compact", "a"), ("classic", "a")]])
        self.assertEqual(names[1:], [[[("classic", "a"), ("compact", "a")]], [[("compact", "a")]]])

    def test_runs_that_were_asked_for(self):
        self.assertEqual(self.names([file("a", 3)], ["native"], 1), [[[("native", "a")]]])

    def test_modes_that_a_file_has_not(self):
        self.assertEqual(self.names([file("a")._replace(modes=("classic",))], ["compact"]), [])

    def test_a_run_that_was_cut_off_is_continued(self):
        cut, f = Run({"t": PASS}, 300, cut=True), file("a", 2, together=2)
        found = {"a": {"classic": [Run({"t": PASS}, 50), cut], "without": [Run({"t": PASS}, 40)]}}
        self.assertEqual(torch_tests.rounds([f], ["without", "classic"], None, found), [[[("classic", f)]]])
        runner = Pretend(classic=[{"t": PASS, "u": PASS}])
        torch_tests.run_steps(runner, [[("classic", f)]], found, lambda line: None)
        self.assertIs(runner.begun[0], cut)

    def test_runs_at_the_same_time_continue_each_another_one(self):
        f, cut = file("a", 3, together=3), [Run(cut=True), Run(cut=True)]
        step = torch_tests.continued({"a": {"classic": [Run(), *cut]}}, [("classic", f)] * 3)
        self.assertEqual([None if begun is None else begun.name for _, _, begun in step], [cut[0].name, cut[1].name, None])

    def test_no_run_is_begun_that_takes_longer_than_what_is_left(self):
        said, found = [], {"a": {"classic": [Run(seconds=101)]}, "b": {"classic": [Run(seconds=99)]}}
        torch_tests.run_steps(Pretend(classic=[{"t": PASS}]), [[("classic", file("a"))], [("classic", file("b"))]], found, said.append)
        self.assertEqual(said, ["a classic: no time left", "b classic: 1 in 0 s"])


@unittest.skipIf(importlib.util.find_spec("pytest") is None, "there is no pytest")
class Running(unittest.TestCase):
    """Runs of pytest itself, in a folder with one file of tests."""

    def runner(self, text, workers):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.mkdir(os.path.join(self.folder.name, "test"))
        with open(self.path("test_x.py"), "w") as f:
            f.write(text)
        runner = torch_tests.Runner(self.folder.name, "memprof", os.path.join(self.folder.name, "work"))
        runner.timeouts, runner.most_workers = (), workers
        return runner

    def run_tests(self, text, workers, seconds=600):
        runner = self.runner(text, workers)
        with mock.patch.object(torch_tests, "WORTH", 0):
            return runner.run("without", "test_x.py, again", (), workers, seconds=seconds)

    def path(self, name):
        return os.path.join(self.folder.name, "test", name)

    def kinds(self, run):
        return {test.split("::")[-1]: o.kind for test, o in run.items()}

    def test_a_run_that_is_cut_off(self):
        text = (
            "import os, subprocess, time\ndef test_a(): pass\ndef test_b(): assert 1 == 2\ndef test_c():\n"
            "    open('child', 'w').write(str(subprocess.Popen(['sleep', '600'], process_group=0).pid))\n    time.sleep(600)\n"
        )
        for seconds in (4, 16, 64, 256):  # until a busy machine comes to the third test in them
            run = self.run_tests(text, workers=0, seconds=seconds)
            if os.path.exists(self.path("child")):
                break
        self.assertTrue(run.cut)
        self.assertEqual(self.kinds(run), {"test_a": "pass", "test_b": "fail"})
        with open(self.path("child")) as f:
            child = int(f.read())
        for _ in range(1200):  # a killed process takes a moment to end
            if not running(child):
                break
            time.sleep(0.05)
        self.assertFalse(running(child))

    def test_the_rest_of_a_run(self):
        text = "def test_a(): open('again', 'w')\ndef test_b(): pass\ndef test_c(): pass\ndef test_d(): open('again', 'w')\n"
        begun = Run({"test_x.py::test_a": PASS, "test_x.py::test_d": FAIL}, 500, True)
        for workers in (0, 2):
            runner = self.runner(text, workers)
            with mock.patch.object(torch_tests, "WORTH", 0):
                run = runner.run("without", "test_x.py", (), workers, begun=begun)
            self.assertEqual(self.kinds(run), {"test_a": "pass", "test_b": "pass", "test_c": "pass", "test_d": "fail"})
            self.assertEqual((run.name, run.cut, run.seconds > 500, os.path.exists(self.path("again"))), (begun.name, False, True, False))

    def test_each_process_runs_the_same_tests_in_order(self):
        text = "import os\ndef note(i): open('order', 'a').write('%d %d\\n' % (os.getpid(), i))\n"
        run = self.run_tests(text + "".join(f"def test_{i}(): note({i})\n" for i in range(7)), workers=3)
        self.assertEqual(set(self.kinds(run).values()), {"pass"})
        by_process = {}
        with open(self.path("order")) as f:
            for line in f:
                process, test = map(int, line.split())
                by_process.setdefault(process, []).append(test)
        self.assertEqual(sorted(by_process.values()), [[0, 3, 6], [1, 4], [2, 5]])

    def test_serial_tests_come_first_and_alone(self):
        text = (
            "import pytest, time\nserialTest = pytest.mark.serial\n"
            "def test_a(): assert open('done').read() == 'yes'\ndef test_b(): assert open('done').read() == 'yes'\n"
            "@serialTest\ndef test_c():\n    time.sleep(0.5)\n    open('done', 'w').write('yes')\n"
        )
        self.assertEqual(self.kinds(self.run_tests(text, workers=2)), {"test_a": "pass", "test_b": "pass", "test_c": "pass"})

    def test_runs_at_the_same_time_wait_for_all_serial_tests(self):
        text = (
            "import os, pytest, time\nserialTest = pytest.mark.serial\n"
            "def note(what):\n    with open('order', 'a') as f: f.write(what + '\\n')\n"
            "def test_a(): note('share')\ndef test_b(): note('share')\n"
            "@serialTest\ndef test_c():\n    note('begin')\n    time.sleep(0.3)\n    note('end')\n"
        )
        runner = self.runner(text, workers=2)
        with mock.patch.object(torch_tests, "WORTH", 0):
            runs = runner.beside([("without", file("test_x.py", together=3), None)] * 3, 60)
        for _, _, run in runs:
            self.assertEqual(self.kinds(run), {"test_a": "pass", "test_b": "pass", "test_c": "pass"})
        with open(self.path("order")) as f:
            self.assertEqual(f.read().split(), ["begin", "end"] * 3 + ["share"] * 6)

    def test_no_serial_test_sees_another_process_come_or_go(self):
        text = (
            "import atexit, glob, os, pytest, time\nserialTest = pytest.mark.serial\n"
            "def here(): return sorted(glob.glob('here-*'))\n"
            "if os.environ['PYTEST_SHARE'] != 'serial': time.sleep(0.5)\n"
            "open('here-%s-%d' % (os.environ['PYTEST_SHARE'][0], os.getpid()), 'w').close()\n"
            "atexit.register(lambda: (time.sleep(0.3), os.remove('here-%s-%d' % (os.environ['PYTEST_SHARE'][0], os.getpid()))))\n"
            "def test_a(): assert not glob.glob('here-s*')\ndef test_b(): assert not glob.glob('here-s*')\n"
            "@serialTest\ndef test_c():\n    before = here()\n    time.sleep(0.6)\n    assert len(before) in (6, 5) and here() == before\n"
        )
        runner = self.runner(text, workers=2)
        with mock.patch.object(torch_tests, "WORTH", 0):
            runs = runner.beside([("without", file("test_x.py", together=2), None)] * 2, 600)
        for _, _, run in runs:
            self.assertEqual(self.kinds(run), {"test_a": "pass", "test_b": "pass", "test_c": "pass"})

    def test_a_run_that_fails_to_start_does_not_hold_up_the_others(self):
        runner = self.runner("def test_a(): pass\n", workers=2)
        runner.memprof = "false"
        with mock.patch.object(torch_tests, "WORTH", 0):
            (_, _, run), (_, _, failed) = runner.beside([(mode, file("test_x.py", together=2), None) for mode in ("without", "classic")], 600)
        self.assertEqual((self.kinds(run), run.cut, failed, failed.cut), ({"test_a": "pass"}, False, {}, False))

    def test_each_recording_is_verified(self):
        runner = self.runner("def test_a(): pass\n", workers=0)
        runner.memprof = os.path.join(self.folder.name, "memprof")
        said = ("exit 0", "echo no GPU; exit 2", "echo 'WRONG  pid7: event 9'; exit 1", "echo no such file; exit 3")
        with open(runner.memprof, "w") as f:
            f.write('#!/bin/sh\nif [ "$1" = verify ]; then case $2 in *001-*) %s;; *002-*) %s;; *003-*) %s;; *) %s;; esac; fi\n' % said)
            f.write('while [ "$1" != -- ]; do [ "$1" != -o ] || mkdir "$2"; shift; done\nshift\nexec "$@"\n')
        os.chmod(runner.memprof, 0o755)
        for _ in said:
            self.assertEqual(self.kinds(runner.run("native", "test_x.py", (), 0)), {"test_a": "pass"})
        self.assertEqual(runner.wrong, ["test_x.py native: verify: exit 1: WRONG  pid7: event 9", "test_x.py native: verify: exit 3: no such file"])

    def test_what_a_failed_test_leaves_behind(self):
        text = (
            "import gc, unittest, weakref\nclass Tensor: pass\nleft = []\ngc.disable()\n"
            "class TestX(unittest.TestCase):\n"
            "    def test_a(self):\n        x = Tensor()\n        x.me = x\n        left.append(weakref.ref(x))\n        self.assertEqual(1, 2)\n"
            "    def test_b(self): self.assertIsNone(left[0]())\n"
        )
        self.assertEqual(self.kinds(self.run_tests(text, workers=0)), {"test_a": "fail", "test_b": "pass"})

    def test_tests_that_measure_the_card_are_serial(self):
        text = (
            "import pytest, unittest\nserialTest = pytest.mark.serial\n"
            "class TestCudaMultiGPU(unittest.TestCase):\n"
            "    def test_a(self): assert open('done').read() == 'yes'\n"
            "    def test_mem_get_info(self): open('done', 'w').write('yes')\n"
        )
        run = self.run_tests(text, workers=2)
        self.assertEqual(self.kinds(run), {"test_a": "pass", "test_mem_get_info": "pass"})
        self.assertEqual(len([name for name in os.listdir(os.path.join(self.folder.name, "work")) if "serial.jsonl" in name]), 1)

    def test_a_process_that_dies_is_started_again(self):
        text = "import os\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): os.abort()\ndef test_d(): pass\ndef test_e(): pass\n"
        run = self.run_tests(text, workers=2)
        self.assertEqual(self.kinds(run), {"test_a": "pass", "test_b": "pass", "test_c": "fail", "test_d": "pass", "test_e": "pass"})
        self.assertEqual(run["test_x.py::test_c"].message, "the process died in it")


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.first, self.second = (os.path.join(folder.name, name) for name in ("1.json", "2.json"))

    def test_runs_of_this_call(self):
        self.assertEqual(torch_runs.read_kept([self.first]), {})
        torch_runs.write_kept(self.first, {"a": {"without": [Run({"t": FAIL}, 3), Run({"u": PASS}, 4, cut=True), Run()], "alone classic": [Run({"t": PASS})]}}, {})
        known = torch_runs.read_kept([self.first])
        self.assertEqual(known, {"a": {"without": [{"t": FAIL}, {"u": PASS}], "alone classic": [{"t": PASS}]}})
        self.assertEqual([(run.seconds, run.cut) for run in known["a"]["without"]], [(3, False), (4, True)])
        torch_runs.write_kept(self.second, {"a": {"without": known["a"]["without"] + [Run({"t": PASS})]}}, known)
        self.assertEqual(torch_runs.read_kept([self.first, self.second])["a"]["without"], [{"t": FAIL}, {"u": PASS}, {"t": PASS}])

    def test_a_run_in_two_parts(self):
        cut = Run({"t": PASS}, 3, cut=True)
        whole = Run({"t": PASS, "u": FAIL}, 5, name=cut.name)
        torch_runs.write_kept(self.first, {"a": {"classic": [cut]}}, {})
        torch_runs.write_kept(self.second, {"a": {"classic": [whole]}}, {})
        for paths in ([self.first, self.second], [self.second, self.first]):
            (run,) = torch_runs.read_kept(paths)["a"]["classic"]
            self.assertEqual((run, run.seconds, run.cut), (whole, 5, False))

    def test_a_file_of_a_version_that_kept_complete_runs_only(self):
        with open(self.first, "w") as f:
            f.write('{"a": {"classic": [{"seconds": 1, "tests": {}}, {"seconds": 2, "tests": {"t": ["pass", ""]}}]}}')
        runs = torch_runs.read_kept([self.first])["a"]["classic"]
        self.assertEqual([(run.seconds, run.cut) for run in runs], [(1, False), (2, False)])


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

    def test_many_runs(self):
        self.assertEqual(torch_tests.cell([Run({"a": PASS}, 5), Run({"a": FAIL}, 7), Run({"a": PASS}, 6), Run({"a": PASS}, 6)]), "4 runs: 0 to 1 in 5 to 7 s")


if __name__ == "__main__":
    unittest.main()
