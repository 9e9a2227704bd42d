"""The pytest plugin on a GPU: tests that request the same each time, and growth that is found."""

import json
import os
import re

from checks.suite import PYTHON, Failed, LeftOut, case

TESTS = """
import os
import pytest, torch
from torch import nn
from torch.nn import functional as F
kept, more, leak = [], float(os.environ.get("MORE", 1)), os.environ.get("LEAK")

def rand(*shape, **options):
    return torch.randn(*shape, device="cuda", **options)

def train(model, *inputs, steps=3):
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(*inputs).float().square().mean().backward()
        optimizer.step()

@pytest.fixture(scope="module")
def shared():
    return nn.Linear(4096, 4096).cuda()

@pytest.mark.parametrize("n", [256, 1024, 3000])
def test_product(n):
    a = rand(n, n, requires_grad=True)
    (a @ a.t()).sum().backward()

@pytest.mark.parametrize("size", [32, 65, 128])
def test_convolution(size):
    train(nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.AdaptiveAvgPool2d(1)), rand(16, 3, size, size))

@pytest.mark.parametrize("width", [512, 1536, 4096])
def test_train(width):
    train(nn.Sequential(nn.Linear(512, width), nn.GELU(), nn.Linear(width, 512)), rand(256, 512))

@pytest.mark.parametrize("length", [128, 1000])
def test_attention(length):
    q, k, v = (rand(2, 8, length, 64, dtype=torch.float16, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

def test_shared(shared):
    with torch.no_grad():
        shared(rand(512, 4096))

def test_embedding():
    train(nn.Sequential(nn.Embedding(50000, 256), nn.LayerNorm(256), nn.Linear(256, 256)), torch.arange(4096, device="cuda"))

def test_autocast():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        train(nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)), rand(512, 1024))

def test_checkpoint():
    from torch.utils.checkpoint import checkpoint
    layers = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(4)).cuda()
    x = rand(2048, 2048, requires_grad=True)
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()

def test_sort():
    torch.sort(rand(5_000_000))

def test_unique():
    torch.unique(torch.arange(4_000_000, device="cuda") // 3)

def test_fft():
    torch.fft.rfft(rand(64, 1 << 16))

def test_cat():
    torch.cat([rand(1000, i) for i in range(1, 200)], 1)

def test_streams():
    side = torch.cuda.Stream()
    x = rand(4096, 4096)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x @ x
        x.record_stream(side)
    del x
    torch.cuda.current_stream().wait_stream(side)
    y.sum().item()

def test_graph():
    x, graph = rand(1024, 1024), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.relu(x * 2) + 1
    graph.replay()
    y.sum().item()

def test_cycle():
    held = [rand(1 << 20)]
    held.append(held)

@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two():
    (rand(1 << 20).to("cuda:1") + 1).sum().item()

def test_planted():
    torch.empty(int(100 * 2**20 * more), dtype=torch.uint8, device="cuda")

@pytest.mark.gpu_memory("64 MiB", leak=0)
def test_marked():
    x = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    if leak:
        kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
"""


class Tests:
    """Runs TESTS under the plugin, on PyTorch's own allocator or under `memprof record`."""

    def __init__(self, suite):
        self.suite = suite
        self.dir = os.path.join(suite.work, "memory_tests")
        os.makedirs(self.dir, exist_ok=True)
        with open(os.path.join(self.dir, "test_memory.py"), "w") as file:
            file.write(TESTS)

    def run(self, *arguments, expect=0, recorded=False, **environment):
        python = os.path.join(self.suite.hooks, "python")
        variables = [f"{name}={value}" for name, value in environment.items()] + ([] if recorded else ["PYTHONPATH=" + python])
        command = ["env", *variables, PYTHON, "-m", "pytest", "-p", "memprof.pytest_plugin", "-p", "no:cacheprovider", "--memprof",
                   "--rootdir", self.dir, *arguments, os.path.join(self.dir, "test_memory.py")]
        if recorded:
            _, done = self.suite.record("memory-tests-run", command, "--force", expect=expect)
            return done.stdout
        return self.suite.run(command, expect=expect).stdout

    def written(self, name, *arguments, **more):
        """The baseline that a run writes: {test: (peak, left)}."""
        path = os.path.join(self.dir, name + ".json")
        if os.path.exists(path):
            os.remove(path)
        self.run("--memprof-baseline", path, *arguments, **more)
        with open(path) as file:
            return {test.partition("::")[2]: (found["peak"], found["left"]) for test, found in json.load(file)["tests"].items()}


def apart(runs):
    """The greatest difference between the peaks of a test, as a share, and the test."""
    worst = (0, "")
    for test in runs[0]:
        peaks = [run[test][0] for run in runs]
        worst = max(worst, ((max(peaks) - min(peaks)) / max(max(peaks), 1), test))
    return worst


def has(module):
    return f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"


@case
def memory_tests(suite):
    """Five runs of some twenty tests: no peak differs by more than 1 %, and a planted 3 % and a planted leak of 1 MiB are found."""
    if suite.run([PYTHON, "-c", has("pytest")], expect=None).returncode:
        raise LeftOut("pytest is not installed")
    tests = Tests(suite)
    runs = [tests.written(f"run{i}") for i in range(5)]
    share, test = apart(runs)
    suite.figure(f"peaks of requested bytes of {len(runs[0])} tests in 5 runs, most apart", f"{100 * share:.3f} % {test}", "1 %")
    if share > 0.01 or len(runs[0]) < 20 or any(run.keys() != runs[0].keys() for run in runs):
        raise Failed(f"{test}: peaks differ by {100 * share:.2f} %, or of {len(runs[0])} tests not all passed each time")
    leaks = {test: left for run in runs for test, (_, left) in run.items() if left > 0}
    suite.figure("tests that leave bytes behind", ", ".join(sorted(leaks)) or "none")
    baseline = os.path.join(tests.dir, "run0.json")
    tests.run("--memprof-baseline", baseline)
    text = tests.run("--memprof-baseline", baseline, expect=1, MORE="1.03", LEAK="1")
    for wanted in ("103 MiB, 100 MiB in the baseline: +3.0 %", "1 MiB left behind, 0 B allowed"):
        if wanted not in text:
            raise Failed(f"not found: {wanted}\n{text[-2000:]}")
    found = set(re.findall(r"^(?:FAILED|ERROR) \S*::(\S+)", text, re.M))
    if found != {"test_planted", "test_marked"}:
        raise Failed(f"{sorted(found)} fail, want test_planted and test_marked\n{text[-2000:]}")
    share, test = apart([runs[0], tests.written("recorded", recorded=True)])
    suite.figure("the same recorded, memprof's allocator in PyTorch's place, most apart", f"{100 * share:.3f} % {test}", "1 %")
    if share > 0.01:
        raise Failed(f"{test}: recorded, the peak differs by {100 * share:.2f} %")
    if suite.run([PYTHON, "-c", has("xdist")], expect=None).returncode:
        suite.lines.append("  pytest-xdist is not installed here: workers are not tried")
        return
    share, test = apart([runs[0], tests.written("workers", "-n", "4")])
    suite.figure("the same in 4 workers, most apart", f"{100 * share:.3f} % {test}", "1 %")
    if share > 0.01:
        raise Failed(f"{test}: in workers, the peak differs by {100 * share:.2f} %")
