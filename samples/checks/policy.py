"""Allocator policies: none changes what a job computes."""

import os
import statistics

from checks.suite import JOBS, Failed, alone, case, first_process, losses, number

COMPACT = ("--preset", "compact")

POLICIES = {
    "compact": COMPACT,
    "compact, trimmed": (*COMPACT, "--trim", "iteration"),
    "compact, large handles": (*COMPACT, "--handle", "32MiB"),
    "classic, trimmed": ("--trim", "iteration"),
    "idle": (*COMPACT, "--trim", "idle:5ms"),
}


def policies(suite, name, iterations):
    """Losses are bit-identical under every policy, and every recording verifies."""
    job = suite.job(name, "--iterations", str(iterations))
    expected = losses(suite.run(job).stdout)
    peaks = {}
    for policy, flags in POLICIES.items():
        directory, done = suite.record(f"{name}-{policy.replace(', ', '-').replace(' ', '-')}", job, *flags)
        found = losses(done.stdout)
        if len(found) != len(expected):
            raise Failed(f"{name} under {policy} ({' '.join(flags)}): {len(found)} iterations, unrecorded {len(expected)}")
        if found != expected:
            first = next(i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
            raise Failed(f"{name} under {policy} ({' '.join(flags)}): loss {found[first]} at iteration {first}, unrecorded {expected[first]}")
        suite.verified(directory)
        peaks[policy] = number(r"^memory peak \d+ allocated (\d+) reserved$", done.stdout) / 2**20
    suite.figure(f"{name}: reserved peak by policy, MiB", ", ".join(f"{policy} {peak:.0f}" for policy, peak in peaks.items()))


@case
def policies_resnet50(suite):
    policies(suite, "resnet50", 8)


@case
def policies_gpt2(suite):
    policies(suite, "gpt2", 8)


# Runs the job unchanged, and prints torch's counts of driver calls at each iteration.
PRINT_CALLS = """
import runpy, sys
sys.path.insert(0, {jobs!r})
import torch, training
peaks = training.peaks
def peaks_and_calls():
    stats = torch.cuda.memory_stats()
    print("driver", stats["num_device_alloc"], stats["num_device_free"], stats["num_sync_all_streams"])
    return peaks()
training.peaks = peaks_and_calls
runpy.run_path({job!r}, run_name="__main__")
"""


def own_idle(iterations):
    """1 - C_i/R_i of the first iteration, and the mean of the later ones."""
    shares = [1 - i["peak_provided"] / i["peak_reserved"] for i in iterations]
    return shares[0], statistics.mean(shares[1:])


def compare_presets(suite, name, bound):
    """Presets classic and compact: idle shares, steps in turns, and no waits in later iterations."""
    jobs = os.path.abspath(JOBS)
    job = suite.script(f"{name}-calls", PRINT_CALLS.format(jobs=jobs, job=os.path.join(jobs, name + ".py")))
    reserved, steady, idle, seen = {}, {}, {}, set()
    for policy, flags in (("classic", ()), ("compact", COMPACT)):
        directory, done = suite.record(f"{name}-{policy}", job, *flags)
        seen.add(tuple(losses(done.stdout)))
        device = first_process(suite.report(directory))["devices"][0]
        reserved[policy] = device["max_reserved"]
        steady[policy] = max(i["peak_reserved"] for i in device["iterations"][4:])
        idle[policy] = own_idle(device["iterations"])
    suite.verified(directory)
    if len(seen) != 1:
        raise Failed(f"{name}: the losses of classic and compact runs differ")
    calls = [[int(n) for n in line.split()[1:]] for line in done.stdout.splitlines() if line.startswith("driver ")]
    middle, last = calls[len(calls) // 2], calls[-1]
    allocs, frees, syncs = (b - a for a, b in zip(middle, last))
    for policy, (first, later) in idle.items():
        suite.figure(f"{name}: 1 - C/R of an iteration, {policy}: first, mean of later", f"{100 * first:.1f} %, {100 * later:.1f} %", "3 % compact")
    suite.figure(f"{name}: reserved peak, classic and compact, MiB", f"{reserved['classic'] / 2**20:.0f}, {reserved['compact'] / 2**20:.0f}")
    suite.figure(f"{name}: reserved from the fifth iteration on, classic and compact, MiB", f"{steady['classic'] / 2**20:.0f}, {steady['compact'] / 2**20:.0f}")
    # A page that moves counts as made and as released.
    suite.figure(f"{name}: pages made, released, waits in the last half of the iterations", f"{allocs}, {frees}, {syncs}", "no waits")
    first, later = idle["compact"]
    if first > 0.03 or later > bound:
        raise Failed(f"{name}: 1 - C/R is {first:.3f} in the first iteration (bound 0.03) and {later:.3f} in later ones (bound {bound})")
    if syncs > 0:
        raise Failed(f"{name}: {syncs} waits in iterations that repeat themselves")
    suite.steps(name, suite.job(name), {"classic": (), "compact": COMPACT}, "classic", reserved["classic"], "1.01", most=1.01)


@alone
def compact_alexnet(suite):
    compare_presets(suite, "alexnet", 0.06)


@alone
def compact_resnet50(suite):
    compare_presets(suite, "resnet50", 0.03)


@alone
def compact_gpt2(suite):
    compare_presets(suite, "gpt2", 0.045)


@alone
def trims_without_marks(suite):
    """8 GiB that are free are unmapped when the job is idle."""
    job = suite.script(
        "trims",
        """
import time, torch
G = 2**30
keep = torch.full((3 << 20,), 7, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
start = torch.cuda.mem_get_info()[0]
for _ in range(2):
    big = torch.ones(2 * G, dtype=torch.float32, device="cuda")
    assert float(big[-1]) == 1
    del big
    until = time.monotonic() + 4
    while torch.cuda.memory_reserved() > G and time.monotonic() < until:
        time.sleep(0.02)
    left = start - torch.cuda.mem_get_info()[0]
    assert torch.cuda.memory_reserved() < G // 8 and left < G // 8, (torch.cuda.memory_reserved(), left)
assert bool((keep == 7).all())
print("done")
""",
    )
    directory, done = suite.record("trims-idle", job, "--trim", "idle:200ms")
    if "done" not in done.stdout:
        raise Failed(f"idle: {done.stdout}")
    suite.verified(directory)


@alone
def trims_beside_graphs(suite):
    """Graphs are captured and replayed between trimmed iterations: the same results, and no capture is broken."""
    suite.same(
        "trimmed-graphs",
        """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 1024, device="cuda")
graphs = []
for i in range(12):
    rows = 256 if i % 4 else 256 * (1 + i)
    y = torch.randn(rows, 1024, device="cuda", generator=torch.Generator("cuda").manual_seed(i))
    loss = model(y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("result loss", i, loss.item().hex())
    if i % 3 == 2:
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(x)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = model(x)
        graphs.append((graph, out))
    for k, (graph, out) in enumerate(graphs):
        graph.replay()
        print("result graph", i, k, out.double().sum().item().hex())
""",
        *COMPACT, "--trim", "iteration",
    )
