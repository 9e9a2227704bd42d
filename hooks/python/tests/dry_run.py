"""What tests of dry runs share.

Where torch is not installed they are left out: `make torch-test` has one for the CPU.
"""

import csv
import functools
import importlib.util
import os
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


class Together:
    """Scripts of tests that share one dry run, as torch takes seconds to import. Each test has the events of its own script."""

    def __init__(self):
        self.texts, self.parts = [], None

    def script(self, text):
        """Decorates a test, which gets the events."""
        at = len(self.texts)
        self.texts.append(textwrap.dedent(text))

        def decorate(test):
            @functools.wraps(test)
            def run(case):
                if self.parts is None:
                    self.parts = self.run(case)
                test(case, self.parts[at])

            return run

        return decorate

    def run(self, case):
        plan, _ = case.script(f"for text in {self.texts!r}:\n    exec(text, {{'torch': torch}})\n    torch.empty({MARK}, dtype=torch.uint8, device='cuda')")
        parts = [[]]
        for event in case.events(plan):
            if event["requested"] != str(MARK):
                parts[-1].append(event)
            elif event["kind"] == "alloc":
                parts.append([])
        case.assertEqual(len(parts), len(self.texts) + 1)
        return parts


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

    def peak(self, plan, until=None):
        """The greatest T, of all, or until the first request of so many bytes has been served."""
        live, now, most = {}, 0, 0
        for e in self.events(plan):
            if e["kind"] == "alloc":
                live[e["addr"]] = int(e["requested"])
                now += live[e["addr"]]
                most = max(most, now)
                if live[e["addr"]] == until:
                    return now
            elif e["kind"] == "free":
                now -= live.pop(e["addr"])
        return most

    def same_peak(self, recording, *command):
        plan, _ = self.record(*command)
        self.assertEqual(self.peak(plan), self.peak(os.path.join(ROOT, "samples", recording)))
