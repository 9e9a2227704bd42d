"""The cost of each level of attribution, compared with torch's own memory history."""

import math
import re

from checks.suite import Failed, alone

# Steps of two processes, or of two seconds on a shared machine, differ by more than a level
# costs. So each process switches the level off and on, in blocks of a few steps, and the median
# of the differences between neighbouring blocks counts.
ALTERNATE = """
import os, statistics, sys, time
import torch
from torch import nn

def alternate(name, switch, work, count, blocks):
    without, differences = [], []
    for block in range(blocks):
        took = {}
        for on in ((True, False), (False, True))[block % 2]:
            switch(on)
            work(2)  # the interpreter's inline caches fill again after the switch
            took[on] = work(count)
        without.append(took[False])
        differences.append(took[True] - took[False])
    median = statistics.median(differences)
    spread = statistics.median(abs(d - median) for d in differences)
    error = 1.25 * 1.48 * spread / len(differences) ** 0.5  # of the median, one standard deviation
    print(f"cost {name} {median:.1f} {error:.1f} {statistics.median(without):.1f}", flush=True)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-4:])
torch.manual_seed(0)
net = nn.Sequential(*[Block() for _ in range(24)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(8, 64, device="cuda")

def steps(count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e9

def closed_over(function, name):
    return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents

def wrappers():
    graph, step = torch.autograd.graph, type(optimizer).step
    backward = graph._engine_run_backward
    found = [(nn.Module, "__call__", nn.Module.__call__.__wrapped__), (type(optimizer), "step", closed_over(step, "step"))]
    found += [(graph, "_engine_run_backward", backward.__wrapped__), (torch.autograd, "_engine_run_backward", backward.__wrapped__)]
    return [(owner, name, getattr(owner, name), plain) for owner, name, plain in found]

def pairs(count):
    return pairs.library.nanoseconds_a_pair(1000, count, 1)

steps(30)
level = sys.argv[1]
if level == "history":
    def switch(on):
        torch.cuda.memory._record_memory_history(enabled="all" if on else None, stacks="python", max_entries=1_000_000)
else:
    import memprof
    places = wrappers()
    def switch(on):
        for owner, name, wrapped, plain in places:
            setattr(owner, name, wrapped if on else plain)
        if level in ("stacks", "stacks of pairs"):
            memprof.stacks(on)
if level != "stacks of pairs":
    alternate("step", switch, steps, 10, 60)
if level in ("history", "stacks", "stacks of pairs"):
    sys.path.insert(0, sys.argv[2])
    import pair
    pairs.library = pair.compiled()
    alternate("pair", switch, pairs, 200_000, 20 if level == "stacks of pairs" else 10)
"""

LEVELS = {
    "phases": ("--attribution", "phases"),
    "modules": ("--attribution", "modules"),
    "stacks": ("--attribution", "modules", "--stacks", "python"),
}


def costs(output):
    """For each kind of work: the added time, its standard error, and the time without it, in ns."""
    return {name: tuple(float(v) for v in values) for name, *values in re.findall(r"^cost (\S+) (\S+) (\S+) (\S+)$", output, re.M)}


@alone
def attribution_cost(suite):
    """The cost of each level, on a step of many small operations and on bare allocations: at most a third of what torch's history adds, or two errors more."""
    job, jobs = suite.script("alternate", ALTERNATE), suite.jobs()
    theirs = costs(suite.run([*job, "history", jobs]).stdout)
    slow = []
    for work, unit, scale in (("step", "us", 1000), ("pair", "ns", 1)):
        added, error, base = (value / scale for value in theirs[work])
        suite.figure(f"{work}: torch's own history adds", f"{added:.0f} ± {error:.0f} {unit} to {base:.0f}")
    for level, flags in LEVELS.items():
        directory, done = suite.record("cost_" + level, [*job, level, jobs], *flags)
        for work, (added, error, base) in costs(done.stdout).items():
            unit, scale = ("us", 1000) if work == "step" else ("ns", 1)
            share, off = added / theirs[work][0], math.hypot(error, added * theirs[work][1] / theirs[work][0]) / theirs[work][0]
            suite.figure(f"{work}: {level} add", f"{added / scale:.0f} ± {error / scale:.0f} {unit} to {base / scale:.0f}, {share:.2f} ± {off:.2f} of torch's", "a third")
            slow += [f"{level} on a {work}: {share:.2f} ± {off:.2f} of torch's"] if share - 2 * off > 1 / 3 else []
        suite.verified(directory)
    if slow:
        raise Failed("more than a third: " + ", ".join(slow))
