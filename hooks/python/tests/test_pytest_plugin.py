"""The pytest plugin, behind a made-up torch that counts what tests request."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
import xml.etree.ElementTree

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 2**20

# A block lives as long as its object. Three devices, the last of which no test uses; `late` is a block that another stream still uses until
# the next synchronization.
TORCH = """
    from types import SimpleNamespace
    _now, _peak, _all, _late, workspaces = [0] * 3, [0] * 3, [0] * 3, [], []
    class Block:
        def __init__(self, size, device=0, late=False):
            self.size, self.device, self.late = size, device, late
            _now[device] += size
            _all[device] += size
            _peak[device] = max(_now[device], _peak[device])
        def __del__(self):
            if self.late: _late.append((self.size, self.device))
            else: _now[self.device] -= self.size
    def empty(size, device="cuda:0"): return Block(size, int(device[-1]))
    def synchronize(device):
        assert _all[device], "a context is made on a device that is not in use"
        for size, of in [l for l in _late if l[1] == device]: _now[of] -= size
        _late[:] = [l for l in _late if l[1] != device]
    def product():
        if not workspaces: workspaces.append(Block(8 << 20))
    def reset(device): _peak[device] = _now[device]
    import os
    counts = "other" if os.environ.get("ASYNC") else "requested"
    def stats(device): return {counts + "_bytes.all." + name: of[device] for name, of in (("current", _now), ("peak", _peak), ("allocated", _all))}
    there = not os.environ.get("NO_GPU")
    cuda = SimpleNamespace(is_available=lambda: there, is_initialized=lambda: there, device_count=lambda: 3, synchronize=synchronize,
                           memory_stats=stats, reset_peak_memory_stats=reset)
    _C = SimpleNamespace(_cuda_clearCublasWorkspaces=workspaces.clear)
"""

TESTS = """
    import os, pytest, torch
    MIB = 2**20
    kept, more = [], float(os.environ.get("MORE", 1))
    @pytest.fixture(scope="module")
    def model(): yield torch.Block(100 * MIB)
    @pytest.fixture
    def batch(): return torch.Block(3 * MIB)
    def test_fixtures(model, batch):
        product, other = torch.product(), torch.Block(int(10 * MIB * more))
    def test_late(): torch.Block(5 * MIB, 1, late=True)
    def test_both():
        one, other = torch.Block(2 * MIB), torch.Block(4 * MIB, 1)
    @pytest.mark.gpu_memory("6 MiB", leak="1 KiB")
    def test_limit(): torch.Block(int(6 * MIB * more))
    @pytest.mark.gpu_memory(leak=None if os.environ.get("UNMARKED") else 0)
    def test_leak():
        cycle = [torch.Block(MIB)]
        cycle.append(cycle)
        if os.environ.get("LEAK"): kept.append(torch.Block(MIB))
    def test_none(): pass
"""


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed: its plugin is left out")
class PytestPluginTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        self.write("site/torch.py", TORCH)
        os.symlink(os.path.join(PACKAGE, "memprof"), os.path.join(self.dir, "site", "memprof"))
        self.write("test_job.py", TESTS)

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))

    def pytest(self, *arguments, status=0, **environment):
        environment = dict(os.environ, PYTHONPATH=os.path.join(self.dir, "site"), PYTHONDONTWRITEBYTECODE="1", **environment)
        for name in ("GITHUB_ACTIONS", "MEMPROF_SPOOL", "MEMPROF_DRY_RUN"):
            if environment.get(name) != "true":
                environment.pop(name, None)
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "memprof.pytest_plugin", "-p", "no:cacheprovider", *arguments],
                              cwd=self.dir, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def rows(self, text):
        """Peak and rest of each test that is printed."""
        found = {}
        for line in text.splitlines():
            name = line.rpartition("test_job.py::")[2]
            if line[:10].endswith("B") and name != line:
                found[name] = [column.strip() for column in (line[:10], line[10:22])]
        return found

    MEASURED = {
        "test_fixtures": ["21 MiB", "0 B"],  # the batch, cuBLAS' workspace and 10 MiB; the module's fixture is of no test
        "test_late": ["5 MiB", "0 B"],
        "test_both": ["4 MiB", "0 B"],  # the device that grew most
        "test_limit": ["6 MiB", "0 B"],
        "test_leak": ["1 MiB", "0 B"],
        "test_none": ["0 B", "0 B"],
    }

    def test_measured(self):
        text = self.pytest("--memprof")
        self.assertEqual(self.rows(text), self.MEASURED, text)

    def test_off(self):
        self.assertNotIn("GPU memory", self.pytest(MORE="2", LEAK="1"))

    def test_workers(self):
        if not importlib.util.find_spec("xdist"):
            self.skipTest("pytest-xdist is not installed")
        text = self.pytest("--memprof", "-n", "2")
        self.assertEqual(self.rows(text), self.MEASURED, text)
        text = self.pytest("--memprof", "-n", "2", status=1, LEAK="1")
        self.assertIn("ERROR test_job.py::test_leak", text)

    def test_marks(self):
        text = self.pytest("--memprof", status=1, MORE="1.03", LEAK="1", GITHUB_ACTIONS="true")
        self.assertIn("GPU memory: the peak of requested bytes is 6.18 MiB, 184.3 KiB above the limit of 6 MiB", text)
        self.assertIn("GPU memory: 1 MiB left behind, 0 B allowed", text)
        self.assertIn("1 failed, 5 passed, 1 error", text)
        self.assertEqual(self.rows(text)["test_limit"], ["6.18 MiB", "0 B"])  # no traceback holds what it had
        self.assertRegex(text, "::error file=test_job.py,line=1[45],title=memprof%3A test_job.py%3A%3Atest_limit::the peak of", text)

    def test_baseline(self):
        file = os.path.join(self.dir, "gpu.json")
        self.assertIn("wrote the baseline", self.pytest("--memprof", "--memprof-baseline", file))
        with open(file) as written:
            tests = json.load(written)["tests"]
        self.assertEqual(tests["test_job.py::test_fixtures"], {"peak": 21 * MIB, "left": 0})
        self.pytest("--memprof", "--memprof-baseline", file)
        self.pytest("--memprof", "--memprof-baseline", file, "--deselect", "test_job.py::test_limit", MORE="1.04")  # 1.9 % of 21 MiB
        text = self.pytest("--memprof", "--memprof-baseline", file, "--deselect", "test_job.py::test_limit", status=1, MORE="1.0631", LEAK="1")
        self.assertIn("GPU memory: the peak of requested bytes is 21.63 MiB, 21 MiB in the baseline: +3.0 %", text)
        self.assertIn("1 MiB left behind, 0 B in the baseline", self.pytest("--memprof", "--memprof-baseline", file, "--memprof-tolerance", "100%", "-k", "leak", status=1, LEAK="1", UNMARKED="1"))
        self.pytest("--memprof", "--memprof-baseline", file, "--memprof-tolerance", "4%", "-k", "fixtures", MORE="1.0631")
        self.pytest("--memprof", "--memprof-baseline", file, "--memprof-update", "-k", "fixtures", MORE="1.5")
        with open(file) as written:
            self.assertEqual({name: test["peak"] for name, test in json.load(written)["tests"].items() if "late" in name or "fixtures" in name},
                             {"test_job.py::test_fixtures": 26 * MIB, "test_job.py::test_late": 5 * MIB})

    def test_bad_baseline(self):
        for text in ("", "[]", '{"tests": {"a": {}}}', '{"tests": {"a": {"peak": "1", "left": 0}}}'):
            self.write("bad.json", text)
            self.assertIn("no baseline of this plugin", self.pytest("--memprof", "--memprof-baseline", "bad.json", status=4))
        self.assertIn("need --memprof", self.pytest("--memprof-update", status=4))
        self.assertIn("want a share like 2%", self.pytest("--memprof", "--memprof-tolerance", "2", status=4))

    def test_junit(self):
        self.pytest("--memprof", "--junit-xml", "junit.xml")
        cases = xml.etree.ElementTree.parse(os.path.join(self.dir, "junit.xml")).iter("testcase")
        found = {case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")} for case in cases}
        self.assertEqual(found["test_both"], {"gpu_memory.peak": str(4 * MIB), "gpu_memory.left": "0"})

    def test_without_gpu(self):
        for missing in ({"NO_GPU": "1"}, {"ASYNC": "1"}):  # ASYNC: torch's backend:cudaMallocAsync counts other bytes
            text = self.pytest("--memprof", MORE="2", LEAK="1", **missing)
            self.assertEqual([line for line in text.splitlines() if "memprof" in line.lower() and "rootdir" not in line],
                             ["memprof: no GPU here whose requested bytes torch counts, so nothing is measured (--memprof-dry-run needs none)"])

    def test_many(self):
        self.write("test_many.py", "import pytest, torch\n@pytest.mark.parametrize('n', range(130))\ndef test_many(n): pass\n")
        self.assertIn("and 30 tests more: -v prints all", self.pytest("--memprof", "test_many.py"))
        self.assertNotIn("tests more", self.pytest("--memprof", "-v", "test_many.py"))

    def test_sizes(self):
        for size, fails in (("1 MiB", False), ("1048575", True), ("1.1MB", False), ("1mb", True), ("0.5 GiB", False), (MIB, False)):
            self.write("test_size.py", "import pytest, torch\n@pytest.mark.gpu_memory(%r)\ndef test_size(): torch.Block(2**20)\n" % (size,))
            self.pytest("--memprof", "test_size.py", status=int(fails))
        self.write("test_size.py", "import pytest, torch\n@pytest.mark.gpu_memory('many')\ndef test_size(): torch.Block(2**20)\n")
        self.assertIn("gpu_memory('many'): want bytes, or a size like 2 GiB", self.pytest("--memprof", "test_size.py", status=4))


if __name__ == "__main__":
    unittest.main()
