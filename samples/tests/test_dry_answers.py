"""Tests of the comparison of dry runs with recordings, with a memprof that only prints; no GPU and no torch is needed."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import dry_answers

GIB = 1 << 30


def row(setting, reserved, least, greatest=None):
    band = {"least": int(least * GIB), "greatest": int((greatest or least) * GIB)}
    return {"allocator": "torch", "setting": setting, "peak_reserved": int(reserved * GIB), "least_card": int(least * GIB), "least_card_band": band}


def document(least, greatest, *rows):
    return json.dumps({"compared": {"peak_requested_band": {"least": int(least * GIB), "greatest": int(greatest * GIB)}}, "rows": rows})


class DryAnswersTest(unittest.TestCase):
    def run_with(self, recording, plan):
        with tempfile.TemporaryDirectory() as folder:
            memprof = os.path.join(folder, "memprof")
            with open(memprof, "w") as f:
                f.write(f"#!/bin/sh\n[ $3 = recording ] && echo '{recording}' || echo '{plan}'\n")
            os.chmod(memprof, 0o755)
            out = io.StringIO()
            with mock.patch.object(sys, "argv", ["dry_answers.py", "--memprof", memprof, "recording,plan"]), contextlib.redirect_stdout(out):
                dry_answers.main()
            return out.getvalue()

    def test_equal(self):
        same = document(20, 20, row("native", 21, 22.1), row("expandable_segments:True", 20, 21.1))
        text = self.run_with(same, same)
        self.assertIn("| recording | 0.0%, inside | +0.00% | +0.00% | +0.00% | +0.00% | 14 of 14 |", text)
        self.assertIn("yes or no: 14 of 14 right, 0 within the band, 0 wrong", text)
        self.assertIn("1 of 1 at most 5 % wide, 1 with the recorded bytes inside", text)

    def test_apart(self):
        # An L4 has 22.03 GiB, within the native band. With expandable segments a card 3 % above the recorded 21 GiB is below the band: a wrong no.
        recording = document(20, 20, row("native", 20, 22), row("expandable_segments:True", 20, 21))
        plan = document(20.1, 21.9, row("native", 22, 22.02, 22.1), row("expandable_segments:True", 20, 21.7, 21.8))
        text = self.run_with(recording, plan)
        self.assertIn("| 9.0%, **outside** | +10.00% | +0.09% | +0.00% | +3.33% | 12 of 14, 1 within the band |", text)
        self.assertIn("yes or no: 12 of 14 right, 1 within the band, 1 wrong", text)
        self.assertIn("0 of 1 at most 5 % wide, 0 with the recorded bytes inside", text)


if __name__ == "__main__":
    unittest.main()
