"""Tests of the comparison of predicted with real peaks, with a memprof and jobs that only print; no GPU and no torch is needed."""

import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import predicted_peaks

MIB = 1 << 20


def row(setting, peak, least=None, greatest=None):
    band = {"least": (least or peak) * MIB, "greatest": (greatest or peak) * MIB}
    return {"allocator": "torch", "setting": setting, "peak_reserved": peak * MIB, "peak_reserved_band": band}


class Verdict(unittest.TestCase):
    def test_right(self):
        for real, predicted, right in (
            (1000, row("", 1000), True),
            (10000, row("", 10010), True),  # 0.1 %
            (1000, row("", 1002), False),
            (1000, row("", 1020, 990, 1020), True),
            (1000, row("", 1020, 1010, 1030), False),
        ):
            text, found = predicted_peaks.verdict(real * MIB, predicted)
            self.assertEqual(found, right, f"{real} and {predicted}: {text}")


class Whole(unittest.TestCase):
    """Two jobs: torch reserves 100 MiB natively, and 90 with expandable segments."""

    def run_with(self, predicted):
        with tempfile.TemporaryDirectory() as folder:
            memprof, job = os.path.join(folder, "memprof"), os.path.join(folder, "jobs", "zoo.py")
            os.mkdir(os.path.dirname(job))
            with open(memprof, "w") as f:
                f.write(f"#!/bin/sh\ncase $1 in record) while [ $1 != -- ]; do shift; done; shift; exec \"$@\";; fit) echo '{json.dumps({'rows': predicted})}';; esac\n")
            os.chmod(memprof, os.stat(memprof).st_mode | stat.S_IXUSR)
            with open(job, "w") as f:
                f.write("import os, sys\nif sys.argv[2] == 'fails': sys.exit('no memory')\n")
                f.write(f"print('memory peak 1 allocated', (90 if os.environ.get('PYTORCH_CUDA_ALLOC_CONF') else 100) * {MIB}, 'reserved')\n")
            out = io.StringIO()
            arguments = ["predicted_peaks.py", "-o", os.path.join(folder, "out"), "--memprof", memprof, "zoo:moe", *self.more]
            with mock.patch.object(predicted_peaks, "HERE", folder), mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(out):
                return predicted_peaks.main(), out.getvalue()

    def test_zoo_run(self):
        with tempfile.TemporaryDirectory() as folder:
            memprof = os.path.join(folder, "memprof")
            with open(memprof, "w") as f:
                f.write(f"#!/bin/sh\n[ $3 = {folder}/classic/moe ] && echo '{json.dumps({'rows': [row('native', 100), row('expandable_segments:True', 90)]})}'\n")
            os.chmod(memprof, os.stat(memprof).st_mode | stat.S_IXUSR)
            memory = {"native": 100, "expandable": 91, "classic": 128}
            runs = [{"model": "moe", "mode": mode, "exit": 0, "memory": [[1, 1, 50 * MIB], [1, 1, peak * MIB]]} for mode, peak in memory.items()]
            runs[2]["recording"] = "classic/moe"
            runs.append({"model": "bert", "mode": "native", "exit": 1, "memory": []})
            with open(os.path.join(folder, "results.json"), "w") as f:
                json.dump({"runs": runs}, f)
            out = io.StringIO()
            with mock.patch.object(sys, "argv", ["predicted_peaks.py", "--memprof", memprof, "--zoo-run", folder]), contextlib.redirect_stdout(out):
                self.assertEqual(predicted_peaks.main(), 1)
            self.assertIn("| moe | native | 100 | 100 |  | equal |", out.getvalue())
            self.assertIn("| moe | expandable_segments:True | 91 | 90 |  | **-1.10%** |", out.getvalue())
            self.assertNotIn("bert", out.getvalue())

    def test_equal(self):
        self.more = []
        code, printed = self.run_with([row("native", 100), row("expandable_segments:True", 90)])
        self.assertEqual(code, 0, printed)
        self.assertIn("| zoo:moe | native | 100 | 100 |  | equal |", printed)
        self.assertIn("| zoo:moe | expandable_segments:True | 90 | 90 |  | equal |", printed)

    def test_wrong(self):
        self.more = []
        code, printed = self.run_with([row("native", 104), row("expandable_segments:True", 90)])
        self.assertEqual(code, 1, printed)
        self.assertIn("**+4.00%**", printed)

    def test_failed_job(self):
        self.more = ["zoo:fails"]
        code, printed = self.run_with([row("native", 100), row("expandable_segments:True", 90)])
        self.assertEqual(code, 1, printed)
        self.assertIn("wrong: zoo:fails native: exit 1: no memory", printed)


if __name__ == "__main__":
    unittest.main()
