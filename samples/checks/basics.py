"""The basics of a recording: the sample jobs and their budgets, torch's statistics, out of memory."""

import os
import shutil
import time

from checks.suite import Failed, alone, case, first_process, losses, number, parquet_bytes


PLOTS = ("timeline",)  # of `report --plots`


def sample(suite, name):
    """One sample, unrecorded and recorded: same losses, verified, gated, budgets."""
    native = suite.run(suite.job(name))
    directory, ours = suite.record(name, suite.job(name))
    if losses(native.stdout) != losses(ours.stdout):
        raise Failed(f"{name}: losses differ: {losses(native.stdout)} and {losses(ours.stdout)}")
    verdict = suite.verified(directory)
    events = sum(p["events"] for p in verdict["processes"])
    suite.figure(f"{name}: trace", f"{parquet_bytes(directory) / events:.2f} bytes an event, {events} events", "4")
    native_peak = number(r"^memory peak \d+ allocated (\d+) reserved$", native.stdout)
    our_peak = number(r"^memory peak \d+ allocated (\d+) reserved$", ours.stdout)
    suite.figure(f"{name}: reserved peak, bfc / native", f"{our_peak / native_peak:.2f} ({our_peak / 2**20:.0f} / {native_peak / 2**20:.0f} MiB)")
    suite.steps(name, suite.job(name), {"native": None, "recorded": ()}, "native", max(our_peak, native_peak), "1.00 within noise")
    plots = os.path.join(suite.work, "plots-" + name)
    suite.run([suite.memprof, "report", "--plots", plots, directory])
    for plot in PLOTS:
        for ending in (".png", ".svg"):
            if not any(plot in f and f.endswith(ending) for f in os.listdir(plots)):
                raise Failed(f"{name}: no {plot} plot as {ending} in {sorted(os.listdir(plots))}")
    suite.run([suite.memprof, "check", directory, "--gate", "reserved.peak < 40GiB"])
    suite.run([suite.memprof, "check", directory, "--gate", "reserved.peak < 1MiB"], expect=1)
    if suite.keep:
        target = os.path.join(suite.keep, name)
        os.makedirs(target, exist_ok=True)
        for file in os.listdir(directory):
            if file.endswith((".parquet", ".json")):
                shutil.copy(os.path.join(directory, file), target)


@alone
def sample_alexnet(suite):
    sample(suite, "alexnet")


@alone
def sample_resnet50(suite):
    sample(suite, "resnet50")


@alone
def sample_gpt2(suite):
    sample(suite, "gpt2")


@alone
def steps_that_wait_for_the_host(suite):
    """A job of many small kernels, where any time that recording adds to a launch or an allocation shows."""
    job = suite.job("zoo", "--model", "googlenet")
    suite.steps("googlenet", job, {"native": None, "recorded": (), "observed": ("--allocator", "native")}, "native", 5 << 30, "1.00 within noise", most=1.05)


@case
def readme_commands(suite):
    """The README's record, report, verify and check on ResNet-50."""
    directory, _ = suite.record("gates", suite.job("resnet50", "--iterations", "20"))
    suite.run([suite.memprof, "report", directory])
    suite.run([suite.memprof, "verify", directory])
    gates = ["--gate", "waste.external < 5%", "--gate", "reserved.peak < 40GiB"]
    suite.run([suite.memprof, "check", directory, *gates])


@alone
def pair_cost(suite):
    """The cost of a malloc and free, in alternating runs."""
    native = [number(r"^pair (\S+) ns", suite.run(suite.job("pair")).stdout)]
    directory, ours = suite.record("pair", suite.job("pair"), "--force")
    recorded = [number(r"^pair (\S+) ns", ours.stdout)]
    native.append(number(r"^pair (\S+) ns", suite.run(suite.job("pair")).stdout))
    history = number(r"^pair (\S+) ns", suite.run(suite.job("pair", "--history", "--pairs", "200000")).stdout)
    suite.figure("pair: native, unrecorded", f"{min(native):.0f} ns")
    suite.figure("pair: native with torch's history (Python stacks)", f"{history:.0f} ns")
    suite.figure("pair: bfc, recorded", f"{recorded[0]:.0f} ns")
    suite.figure("pair: bfc recorded / native unrecorded", f"{recorded[0] / min(native):.2f}", "0.35")
    suite.verified(directory)
    start = time.monotonic()
    suite.run([suite.memprof, "report", directory])
    took = time.monotonic() - start
    events = sum(p["events"] for p in suite.verified(directory)["processes"])
    suite.figure("report: events a second, start to end", f"{events / took / 1e6:.1f} M ({events} in {took:.2f} s)", "8 M on two cores")


@alone
def out_of_memory(suite):
    """A real torch.OutOfMemoryError, caught; a smaller request then succeeds."""
    job = suite.script(
        "oom",
        """
import torch
total = torch.cuda.mem_get_info()[1]
keep = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
try:
    torch.empty(total * 3 // 4, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("caught", str(error).splitlines()[0])
else:
    raise SystemExit("no error")
x = torch.ones(total // 8, dtype=torch.uint8, device="cuda")
assert int(x[-1]) == 1
""",
    )
    directory, done = suite.record("oom", job)
    if "caught" not in done.stdout:
        raise Failed(done.stdout)
    suite.verified(directory)
    device = first_process(suite.report(directory))["devices"][0]
    if len(device["ooms"]) != 1:
        raise Failed(f"one out-of-memory expected, found {device['ooms']}")


@alone
def memory_statistics(suite):
    """torch.cuda's memory functions answer from the hook's counters."""
    job = suite.script(
        "statistics",
        """
import torch
M = 2**20
x = torch.empty(3 * M, dtype=torch.uint8, device="cuda")
y = torch.empty(1000, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
assert stats["requested_bytes.all.current"] == 3 * M + 1000, stats
assert stats["allocation.all.current"] == 2
allocated = torch.cuda.memory_allocated()
assert 3 * M + 1000 <= allocated <= 8 * M, allocated
assert torch.cuda.memory_reserved() >= allocated
assert torch.cuda.memory_reserved() % (2 * M) == 0
del x
assert torch.cuda.max_memory_allocated() == allocated
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() < allocated
torch.cuda.reset_accumulated_memory_stats()
assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
before = torch.cuda.memory_reserved()
del y
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
z = torch.ones(4 * M, dtype=torch.uint8, device="cuda")  # on pages that were unmapped and mapped again
assert int(z.sum()) == 4 * M
torch.cuda.memory_summary()
assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() > 0
""",
    )
    directory, _ = suite.record("statistics", job)
    suite.verified(directory)


@case
def cudnn_benchmark(suite):
    directory, _ = suite.record("benchmark", suite.job("resnet50", "--iterations", "3", "--benchmark"))
    suite.verified(directory)


@alone
def ninety_percent(suite):
    """A single request for 90 % of the card, under preset classic."""
    job = suite.script(
        "ninety",
        """
import torch
free, total = torch.cuda.mem_get_info()
small = torch.zeros(1000, device="cuda")
x = torch.empty(int(free * 0.9), dtype=torch.uint8, device="cuda")
x[-1] = 7
assert int(x[-1]) == 7
print("done")
""",
    )
    suite.run(job)
    directory, _ = suite.record("ninety", job)
    suite.verified(directory)


@alone
def foreign_allocation(suite):
    """A cudaMalloc of another library that would succeed without memprof succeeds."""
    job = suite.script(
        "foreign",
        """
import ctypes, torch
x = torch.empty(2**30, dtype=torch.uint8, device="cuda")
y = torch.empty(int(torch.cuda.mem_get_info()[0] * 0.6), dtype=torch.uint8, device="cuda")
del y  # the allocator keeps its physical memory
free = torch.cuda.mem_get_info()[0]
program = ctypes.CDLL(None)
runtime = program if hasattr(program, "cudaMalloc") else ctypes.CDLL("libcudart.so.13")
pointer = ctypes.c_void_p()
code = runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(int(free * 1.5)))
assert code == 0, code
print("done")
""",
    )
    directory, _ = suite.record("foreign", job)
    suite.verified(directory)


@case
def side_streams(suite):
    """record_stream keeps memory from reuse until the other stream has finished with it."""
    job = suite.script(
        "streams",
        """
import torch
side = torch.cuda.Stream()
for i in range(200):
    x = torch.full((1 << 20,), float(i), device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000)
        y = x.sum()
    x.record_stream(side)
    del x
    z = torch.full((1 << 20,), -1.0, device="cuda")  # must not be x's memory yet
    side.synchronize()
    assert float(y) == float(i) * (1 << 20), (i, float(y))
""",
    )
    directory, _ = suite.record("streams", job)
    suite.verified(directory)


@case
def killed_job(suite):
    """SIGKILL in the middle: the trace ends there and verifies."""
    job = suite.script(
        "killed",
        """
import os, signal, torch
for i in range(1000):
    keep = [torch.empty(1000 * (1 + j), device="cuda") for j in range(20)]
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    directory, _ = suite.record("killed", job, expect=137)
    events = sum(p["events"] for p in suite.verified(directory)["processes"])
    if events < 2 * 999 * 20:
        raise Failed(f"{events} events, at least {2 * 999 * 20} expected")


@alone
def startup(suite):
    """The time that memprof adds to the import of torch, with the shim cached."""
    job = suite.script(
        "startup",
        """
import sys, time
from memprof import _inject
finder = next(f for f in sys.meta_path if getattr(f, "_then", None) is _inject._on_torch)
def timed(torch):
    start = time.perf_counter()
    _inject._on_torch(torch)
    print(f"injection {(time.perf_counter() - start) * 1e3:.1f} ms")
finder._then = timed
import torch
torch.zeros(1, device="cuda")
""",
    )
    suite.record("startup", job)
    figures = [number(r"^injection (\S+) ms", suite.record("startup", job)[1].stdout) for _ in range(3)]
    suite.figure("start-up: injection with a warm cache", f"{min(figures):.1f} ms", "50 ms")
    if min(figures) > 50:
        raise Failed(f"the injection took {figures} ms")
