"""The pytest plugin with torch's own operators, in dry runs: what tests of a small model request."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

from dry_run import MEMPROF, DryRunCase

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 2**20

TESTS = """
import os
import pytest, torch
from torch import nn
kept, more = [], float(os.environ.get("MORE", 1))

def requested(share):
    return torch.empty(int(share * 100 * 2**20), dtype=torch.uint8, device="cuda")

@pytest.fixture(scope="module")
def model():
    return nn.Linear(512, 512).cuda()

@pytest.fixture
def batch():
    return torch.zeros(64, 512, device="cuda")

def test_forward(model, batch):
    with torch.no_grad():
        model(batch)

@pytest.mark.parametrize("width", range(1, 7))
def test_train(width):
    model = nn.Sequential(nn.Linear(256, 256 * width), nn.ReLU(), nn.Linear(256 * width, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(32, 256, device="cuda")).square().mean().backward()
        optimizer.step()

def test_planted():
    requested(more)

@pytest.mark.gpu_memory("100 MiB", leak=0)
def test_marked():
    requested(1)
    if os.environ.get("LEAK"):
        kept.append(requested(0.01))

def test_value():
    assert torch.ones(3, device="cuda").sum().item() == 3
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed: its plugin is left out")
class DryRunPytestTest(DryRunCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        os.mkdir(os.path.join(self.dir, "site"))
        os.symlink(os.path.join(PACKAGE, "memprof"), os.path.join(self.dir, "site", "memprof"))
        with open(os.path.join(self.dir, "test_job.py"), "w") as file:
            file.write(TESTS)

    def pytest(self, *arguments, status=0, **environment):
        environment = dict(os.environ, PYTHONPATH=os.path.join(self.dir, "site"), MEMPROF=MEMPROF, **environment)
        command = [sys.executable, "-m", "pytest", "-p", "memprof.pytest_plugin", "-p", "no:cacheprovider", "--memprof-dry-run", "--memprof-baseline", "gpu.json"]
        done = subprocess.run(command + list(arguments), cwd=self.dir, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def baseline(self):
        with open(os.path.join(self.dir, "gpu.json")) as file:
            return {name.partition("::")[2]: (test["peak"], test["left"]) for name, test in json.load(file)["tests"].items()}

    def test_repeated(self):
        text = self.pytest()
        self.assertIn("9 passed, 1 skipped", text)  # a dry run has no values to assert
        first = self.baseline()
        self.assertEqual(len(first), 9)
        self.assertEqual(first["test_planted"], (100 * MIB, 0))
        # The batch of the test's own fixture, the layer's result, and cuBLAS' and cuBLASLt's workspaces. The model is of no test.
        self.assertEqual(first["test_forward"], (2 * 64 * 512 * 4 + 32 * MIB + MIB, 0))
        self.assertGreater(first["test_train[6]"][0], first["test_train[5]"][0])
        self.assertEqual({left for _, left in first.values()}, {0})
        self.pytest("--memprof-update")
        self.assertEqual(self.baseline(), first)
        if importlib.util.find_spec("xdist"):
            self.pytest("-n", "2")

    def test_planted(self):
        self.pytest("-k", "planted or marked")
        text = self.pytest("-k", "planted or marked", status=1, MORE="1.03", LEAK="1")
        self.assertIn("the peak of requested bytes is 103 MiB, 100 MiB in the baseline: +3.0 %", text)
        self.assertIn("FAILED test_job.py::test_planted", text)
        self.assertIn("ERROR test_job.py::test_marked", text)
        self.assertIn("GPU memory: 1 MiB left behind, 0 B allowed", text)


if __name__ == "__main__":
    unittest.main()
