"""Where the shim is not compiled for this torch: no compiler, or another torch's headers."""

import os
import re
import shlex
import shutil
import subprocess
import sys

from checks.suite import Failed, LeftOut, case

# What a plug-in allocator makes hard. Each part prints what it computed.
JOB = """
import hashlib, torch
def digest(t): return hashlib.sha256(t.detach().float().cpu().numpy().tobytes()).hexdigest()[:16]
def count(): return torch.cuda.memory_stats()["allocation.all.allocated"]
torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
C, N, F = torch.nn.Conv2d, torch.nn, torch.nn.functional
model = N.Sequential(C(3, 64, 7, 2, 3), N.BatchNorm2d(64), N.ReLU(), C(64, 128, 3, 2, 1), N.BatchNorm2d(128), N.ReLU(),
                     C(128, 256, 3, 2, 1), N.AdaptiveAvgPool2d(1), N.Flatten(), N.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
x, y = torch.randn(32, 3, 96, 96, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
for step in range(10):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
print("result training", digest(model[9].weight), torch.cuda.max_memory_allocated() > 0)

before = count()
torch.backends.cudnn.benchmark = True
print("result benchmark", torch.backends.cudnn.benchmark, bool(torch.isfinite(model(x)).all()))
torch.backends.cudnn.benchmark = False
benchmark = count() - before

layer = N.Sequential(N.Linear(512, 512), N.ReLU(), N.Linear(512, 10)).cuda()
x, y = torch.randn(128, 512, device="cuda"), torch.randint(0, 10, (128,), device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3): F.cross_entropy(layer(x), y).backward()
torch.cuda.current_stream().wait_stream(side)
graph, second, losses = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), []
layer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = F.cross_entropy(layer(x), y)
    loss.backward()
with torch.cuda.graph(second, pool=graph.pool()):
    z = layer(x).softmax(1)
for _ in range(20):
    x.normal_()
    graph.replay(); second.replay()
    other = torch.randn(1 << 20, device="cuda") * 2
    losses.append(loss.item())
print("result graph", digest(torch.tensor(losses)), digest(layer[0].weight.grad), digest(z))

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.arange(1 << 20, device="cuda")
outside = torch.arange(1 << 20, device="cuda")
live = sum(b["requested_size"] for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated")
print("result pool", int(inside.sum()), int(outside.sum()), live)

caught = []
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    caught.append(str(error).startswith("CUDA out of memory. Tried to allocate"))
print("result memory", caught, bool(torch.ones(10, device="cuda").sum() == 10))
print("count", count(), benchmark)
"""


def counted(output):
    """The allocations of a run of JOB, as torch counts them: all, and those of the part in which cuDNN may try several kernels."""
    found = re.search(r"^count (\d+) (\d+)$", output, re.M)
    if not found:
        raise Failed("the job did not count its allocations:\n" + output[-1000:])
    return int(found.group(1)), int(found.group(2))


@case
def without_compiler(suite):
    """No compiler on PATH and no home to write to: the job computes the same, and its recording says what is missing."""
    command = suite.script("without_compiler", JOB)
    plain = suite.run(command)
    directory, tools = os.path.join(suite.work, "without_compiler"), os.path.join(suite.work, "tools")
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(tools, exist_ok=True)
    for tool in ("env", "sh", "ldconfig"):
        target, link = shutil.which(tool), os.path.join(tools, tool)
        if target and not os.path.lexists(link):
            os.symlink(target, link)
    python = os.path.join(tools, "python3")
    with open(python, "w") as f:  # by a link, Python would not find the packages of its virtual environment
        f.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    os.chmod(python, 0o755)
    # Nobody, not even root, can make that home.
    bare = [shutil.which("env"), "-u", "CXX", "-u", "MEMPROF_CACHE", "-u", "XDG_CACHE_HOME", f"PATH={tools}", "HOME=/proc/self/home", f"TMPDIR={suite.work}"]
    recorded = suite.run([*bare, suite.memprof, "record", "-o", directory, "--", *command])
    expected, found = (re.findall(r"^result .*$", done.stdout, re.M) for done in (plain, recorded))
    if not expected or expected != found:
        raise Failed(f"unrecorded {expected}, recorded {found}\n{recorded.stderr[-2000:]}")
    if "recorded by torch's plug-in allocator, without" not in recorded.stderr or "tensors are not recorded" in recorded.stderr:
        raise Failed(f"record does not say what is missing:\n{recorded.stderr[-2000:]}")
    (native, native_benchmark), (counts, benchmark) = counted(plain.stdout), counted(recorded.stdout)
    allocations = sum(process["allocs"] for process in suite.verified(directory)["processes"])
    # A plug-in allocator switches cudnn.benchmark off, so that part alone may differ.
    if allocations != counts or counts - benchmark != native - native_benchmark:
        raise Failed(f"{allocations} allocations recorded; torch counted {counts}, {benchmark} in the benchmark; unrecorded {native}, {native_benchmark}")
    suite.lines.append(f"  {allocations:,} allocations, all that torch counted, unrecorded too ({native:,} with the benchmark)")


# Files that a build of torch makes, and its source has not.
GENERATED = ("c10/macros/cmake_macros.h", "c10/cuda/impl/cuda_cmake_macros.h")


@case
def headers_of_another_torch(suite):
    """The shim compiles against the headers of the torch whose tests TORCH_TESTS has, with this machine's CUDA."""
    headers = os.path.join(os.environ.get("TORCH_TESTS") or "", "headers")
    compiler = shutil.which("c++") or shutil.which("g++")
    if not os.path.isdir(headers) or not compiler:
        raise LeftOut("TORCH_TESTS has no headers, or there is no compiler")
    made = os.path.join(suite.work, "generated")
    for name in GENERATED:
        os.makedirs(os.path.dirname(os.path.join(made, name)), exist_ok=True)
        with open(os.path.join(made, name), "w") as f:
            f.write("#pragma once\n")
    sys.path.insert(0, os.path.join(suite.hooks, "python"))
    import torch
    from memprof import _shim

    folders = [made, headers, os.path.join(headers, "aten", "src"), _shim._cuda_include(os.path.dirname(torch.__file__))]
    flags = [flag for folder in folders for flag in ("-isystem", folder)] + ["-I", os.path.join(suite.hooks, "capture"), "-I", os.path.join(suite.hooks, "torch")]
    errors = ""
    for standard in _shim.STANDARDS:
        done = subprocess.run([compiler, "-std=" + standard, "-fsyntax-only", "-w", *flags, os.path.join(suite.hooks, "torch", "shim.cpp")], capture_output=True, text=True)
        if done.returncode == 0:
            return
        errors = errors or done.stderr
    raise Failed(f"the shim does not compile against {headers}:\n{errors[:2000]}")
