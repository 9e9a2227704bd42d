"""What tests of dry runs share.

Where torch is not installed they are left out: `make torch-test` has one for the CPU.
"""

import csv
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MEMPROF = os.path.join(ROOT, "bin", "memprof")
MIB = 2**20
MARK = 7654321  # bytes of a request between scripts that share a dry run


def requests_of(events):
    return [int(e["requested"]) for e in events if e["kind"] == "alloc"]


def peak_of(events, until=None):
    """The greatest T, of all, or until the first request of so many bytes has been served."""
    live, now, most = {}, 0, 0
    for e in events:
        if e["kind"] == "alloc":
            live[e["addr"]] = int(e["requested"])
            now += live[e["addr"]]
            most = max(most, now)
            if live[e["addr"]] == until:
                return now
        elif e["kind"] == "free":
            now -= live.pop(e["addr"])
    return most


# Runs scripts. Nothing that one leaves behind is seen by the next, but what a dry run assumes, which it says once: neither tensors in
# cycles nor cuBLAS' workspaces. A refusal ends the script, not the process.
ONE_AFTER_THE_OTHER = """
import gc
from memprof import _dryrun
class Refusal(BaseException):
    pass
def refuse(text):
    raise Refusal(text)
_dryrun.refuse = refuse
for at, text in enumerate(texts):
    try:
        exec(text, {"torch": torch})
    except Refusal as refusal:
        print("script %d is refused: %s" % (at, refusal))
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.empty(mark, dtype=torch.uint8, device="cuda")
"""


class Together:
    """Scripts of tests that share one dry run, as torch takes seconds to import, and what each has made."""

    def __init__(self):
        self.texts, self.parts, self.printed = [], None, ""

    def add(self, text):
        self.texts.append(textwrap.dedent(text))
        return len(self.texts) - 1

    def events(self, case, at):
        """Those of the script that add has returned this number of, which was not refused."""
        self.run(case)
        case.assertNotIn("script %d is refused" % at, self.printed)
        return self.parts[at]

    def refusal(self, case, at):
        self.run(case)
        found = re.search(r"^script %d is refused: (.*)" % at, self.printed, re.MULTILINE)
        case.assertTrue(found, self.texts[at])
        return found.group(1)

    def script(self, text):
        """Decorates a test, which gets the events of the script."""
        return self.given(self.events, text)

    def refused(self, text):
        """Decorates a test, which gets why the script is refused."""
        return self.given(self.refusal, text)

    def given(self, of, text):
        at = self.add(text)

        def decorate(test):
            @functools.wraps(test)
            def run(case):
                test(case, of(case, at))

            return run

        return decorate

    def run(self, case):
        if self.parts is not None:
            case.assertTrue(self.parts, "the dry run that tests share has failed before")
            return
        self.parts = []
        plan, self.printed = case.script("texts, mark = %r, %d" % (self.texts, MARK) + ONE_AFTER_THE_OTHER, flags=("--iterations", "0"))
        parts = [[]]
        for event in case.events(plan):
            if event["requested"] != str(MARK):
                parts[-1].append(event)
            elif event["kind"] == "alloc":
                parts.append([])
        case.assertEqual(len(parts), len(self.texts) + 1)
        self.parts = parts


together = Together()


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed: dry runs are left out; make torch-test")
@unittest.skipUnless(os.path.exists(MEMPROF), "bin/memprof is not built: dry runs are left out; make build")
class DryRunCase(unittest.TestCase):
    def record(self, *command, flags=(), status=0):
        """The folder of a dry run, and what it printed."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        plan = os.path.join(folder.name, "plan")
        done = subprocess.run([MEMPROF, "record", "--dry-run", *flags, "-o", plan, "--", sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, status, done.stdout)
        return plan, done.stdout

    def script(self, text, arguments=(), **more):
        return self.record("-c", "import torch\n" + textwrap.dedent(text), *arguments, **more)

    def events(self, plan):
        exported = subprocess.run([MEMPROF, "export", "csv", plan], stdout=subprocess.PIPE, text=True, check=True).stdout
        return list(csv.DictReader(exported.splitlines()))

    def requests(self, plan):
        return requests_of(self.events(plan))

    def peak(self, plan):
        return peak_of(self.events(plan))

    def same_peak(self, recording, *command):
        plan, _ = self.record(*command)
        self.assertEqual(self.peak(plan), self.peak(os.path.join(ROOT, "samples", recording)))
