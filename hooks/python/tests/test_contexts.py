"""Contexts are written by the grammar of trace/context.go: its list of known contexts is the judge."""

import json
import os
import sys
import unittest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(REPOSITORY, "hooks", "python"))

import memprof  # noqa: E402
from memprof import _hook  # noqa: E402


class Contexts(unittest.TestCase):
    def test_known_contexts(self):
        with open(os.path.join(REPOSITORY, "trace", "testdata", "contexts.json"), encoding="utf-8") as f:
            known = [c for c in json.load(f) if c["writer"].startswith("python:")]
        self.assertGreater(len(known), 3)
        for c in known:
            fields = dict(c["fields"])
            if c["kind"] == "phase_begin":
                written = memprof._phase_text(c["name"], fields.get("uses", "").split(" ") if fields else ())
            else:
                written = _hook.fields(fields)
            self.assertEqual(written.decode(), c["context"], c["writer"])

    def test_separators_in_values(self):
        self.assertEqual(_hook.fields({"name": "a\tb\n c", "none": "", "zero": 0, "n": 3}), b"name=a b c\tn=3")
        self.assertEqual(memprof._phase_text("a\tuses=b", ()), b"a uses=b")
        self.assertEqual(memprof._phase_text("a\tb", ["c d", "e"]), b"a b\tuses=c_d e")


if __name__ == "__main__":
    unittest.main()
