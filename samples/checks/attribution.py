"""Iterations, phases, modules, labels and stacks: correct, and without effect on the job."""

import json
import re

from checks.suite import Failed, case, first_process, losses

MODEL = """
import torch
from torch import nn

def model(layers=3, width=256):
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*parts, nn.Linear(width, 10)).cuda()

def batch(i, size=64, width=256):
    torch.manual_seed(i)
    return torch.randn(size, width, device="cuda"), torch.randint(10, (size,), device="cuda")

loss_of = nn.functional.cross_entropy
"""

# Scripts and the iterations that they have.
ITERATIONS = {
    "accumulation": (
        5,
        """
net = model()
optimizer = torch.optim.AdamW(net.parameters())
for i in range(20):
    x, y = batch(i)
    loss_of(net(x), y).backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
""",
    ),
    "skipped_steps": (
        9,
        """
net = model()
optimizer, scaler, skipped = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cuda"), 0
for i in range(9):
    x, y = batch(i)
    if i in (3, 4):
        x = x * float("inf")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(net(x), y)
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < before
    optimizer.zero_grad()
assert skipped == 2, skipped
""",
    ),
    "skipped_steps_fused": (
        6,
        """
net = model()
optimizer, scaler = torch.optim.AdamW(net.parameters(), fused=True), torch.amp.GradScaler("cuda")
for i in range(6):
    x, y = batch(i)
    if i == 2:
        x = x * float("inf")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
    ),
    "two_optimizers": (
        7,
        """
generator, critic = model(), model()
of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
for i in range(7):
    x, y = batch(i)
    loss_of(critic(x), y).backward()
    of_critic.step()
    of_critic.zero_grad()
    loss_of(generator(x), y).backward()
    of_generator.step()
    of_generator.zero_grad()
""",
    ),
    "evaluation_inside_training": (
        4,
        """
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    x, y = batch(i)
    loss_of(net(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        for j in range(3): net(batch(j)[0])
    net.train()
""",
    ),
    "inference": (
        11,
        """
net, loss = model(), nn.CrossEntropyLoss()
with torch.inference_mode():
    for i in range(11):
        x, y = batch(i)
        loss(net(x), y)
""",
    ),
    "inference_with_gradients_on": (
        8,
        """
net = model().eval()
for i in range(8): net(batch(i)[0])
""",
    ),
    "by_hand": (
        3,
        """
import memprof
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(9):
    x, y = batch(i)
    if i % 3 == 0: memprof.iteration("epoch")
    loss_of(net(x), y).backward()
    optimizer.step()
""",
    ),
    "compiled_training": (
        6,
        """
net = model()
optimizer = torch.optim.AdamW(net.parameters())
compiled = torch.compile(net)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for i in range(6):
    x, y = batch(i)
    loss_of(compiled(x), y).backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
""",
    ),
}


@case
def attribution_iterations(suite):
    """Exact counts of iterations, however the script steps."""
    for name, (expected, text) in ITERATIONS.items():
        directory, done = suite.record("iterations_" + name, suite.script("iterations_" + name, MODEL + text))
        if "attribution:" in done.stderr:
            raise Failed(f"{name}: {done.stderr}")
        suite.verified(directory)
        found = len(first_process(suite.report(directory))["devices"][0]["iterations"])
        if found != expected:
            raise Failed(f"{name}: {found} iterations, the script has {expected}")


def held_names(device, breakdown):
    return {group.get("name", "") for group in device["held_at_peak"][breakdown]["groups"]}


@case
def attribution_modules(suite):
    """Phases, modules and categories of a real model; its losses are those of the unrecorded run."""
    job = suite.job("resnet50", "--iterations", "4")
    plain = losses(suite.run(job).stdout)
    for flags in ((), ("--attribution", "phases"), ("--attribution", "none"), ("--stacks", "python")):
        directory, done = suite.record("modules", job, *flags)
        if losses(done.stdout) != plain:
            raise Failed(f"{flags}: losses {losses(done.stdout)}, unrecorded {plain}")
        if "attribution:" in done.stderr or "stacks are not" in done.stderr:
            raise Failed(f"{flags}: {done.stderr}")
        suite.verified(directory)
        device = first_process(suite.report(directory))["devices"][0]
        phases = {p["phase"] for p in device["phases"]}
        wanted = set() if "none" in flags else {"forward", "backward", "optimizer"}
        if not wanted <= phases:
            raise Failed(f"{flags}: phases {sorted(phases)}, expected {sorted(wanted)}")
        if len(device["iterations"]) != 4:
            raise Failed(f"{flags}: {len(device['iterations'])} iterations, expected 4")
        if "none" in flags or "phases" in flags:
            continue
        missing = {"weights", "gradients", "optimizer", "activations", "inputs"} - held_names(device, "categories")
        # At the peak, in the first backward or later, every category exists, except perhaps gradients.
        if missing - {"gradients", "optimizer"}:
            raise Failed(f"{flags}: nothing at the peak is {sorted(missing)}; there are {sorted(held_names(device, 'categories'))}")
        modules = held_names(device, "modules")
        if not any(re.fullmatch(r"layer\d\.\d\.(conv|bn)\d", m) for m in modules):
            raise Failed(f"{flags}: no module of ResNet-50 among {sorted(modules)}")
        stacks = device["held_at_peak"]["stacks"]["groups"]
        if flags and not any("resnet" in frame for stack in stacks for frame in stack.get("frames") or []):
            raise Failed(f"no stack goes through torchvision's resnet: {json.dumps(stacks)[:1500]}")


COMPILED = """
import os, sys, tempfile, warnings
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()  # cached graphs would not warn again
os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"  # kernels chosen by measurement add in different orders
warned = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, *rest: warned.append(f"{category.__name__}: {str(message).splitlines()[0]}")

class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = model(), nn.Linear(10, 10).cuda()
    def forward(self, x):
        x = self.first(x)
        if broken:
            torch._dynamo.graph_break()
        return self.second(x)

for broken in (False, True):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = Blocks()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(net, mode=MODE, fullgraph=not broken)
    for i in range(6):
        x, y = batch(i)
        loss = loss_of(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("result", broken, i, float(loss).hex())
    counters = torch._dynamo.utils.counters
    for name in ("graph_break", "frames", "stats"):
        print("result", broken, name, sorted((str(k).splitlines()[0], v) for k, v in counters[name].items() if k != "time_spent"))
@torch.compile(mode=MODE)
def function(x):
    return net(x).square().sum()
for i in range(4): print("result function", float(function(batch(i)[0])).hex())
for line in sorted(set(warned)):
    print("result warning", line)
"""


@case
def attribution_compile(suite):
    """torch.compile: the same graphs, breaks and frames, and no further warnings."""
    for mode in ("default", "reduce-overhead"):
        directory, done = suite.same("compile_" + mode, MODEL + COMPILED.replace("MODE", repr(mode)))
        if re.search(r"^result warning .*hook", done.stdout, re.M):
            raise Failed(f"{mode}: a warning of hooks: {done.stdout}")
        device = first_process(suite.report(directory))["devices"][0]
        phases = {p["phase"] for p in device["phases"]}
        if not {"forward", "backward", "optimizer"} <= phases:
            raise Failed(f"{mode}: phases {sorted(phases)}")
        if len(device["iterations"]) != 12:
            raise Failed(f"{mode}: {len(device['iterations'])} iterations, the script has 12")


LIFETIMES = """
import gc, weakref
gc.collect()
gc.disable()
gone = []
def watch(tensor, name):
    weakref.finalize(tensor, gone.append, name)
    return tensor

class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model(4, 1024)
    def forward(self, x):
        x = watch(x * 2, "doubled")
        x = watch(self.inner(x), "inner")
        return x + 1

net = Kept()
optimizer = torch.optim.AdamW(net.parameters())
for i in range(4):
    x, y = batch(i, 512, 1024)
    out = watch(net(watch(x, "input")), "output")
    loss = watch(loss_of(out, y), "loss")
    del x, y, out
    print("result", i, "after forward", gone)
    loss.backward()
    for p in net.parameters(): watch(p.grad, "gradient")
    del loss, p
    print("result", i, "after backward", gone)
    optimizer.step()
    optimizer.zero_grad()
    print("result", i, "after step", gone)
    del gone[:]
    print("result", i, "peak", torch.cuda.max_memory_allocated() if RECORDED else "", torch.cuda.memory_stats()["allocation.all.allocated"])
try:
    net(torch.zeros(3, 3, device="cuda"))
except RuntimeError:
    pass
state = weakref.ref(next(iter(optimizer.state.values()))["exp_avg"])
weight = weakref.ref(net.inner[0].weight)
del net, optimizer
gc.collect()
print("result live", state() is None, weight() is None, torch.cuda.memory_stats()["allocation.all.current"])
"""


@case
def attribution_lifetimes(suite):
    """Every tensor is freed at the same moment as without memprof, and peaks do not depend on the level."""
    suite.same("lifetimes", MODEL + LIFETIMES.replace("RECORDED", "False"))
    found = {}
    for level in ("none", "phases", "modules"):
        job = suite.script("lifetimes_peak", MODEL + LIFETIMES.replace("RECORDED", "True"))
        _, done = suite.record("lifetimes_" + level, job, "--attribution", level)
        found[level] = re.findall(r"^result .*$", done.stdout, re.M)
    _, done = suite.record("lifetimes_stacks", job, "--stacks", "python")
    found["stacks"] = re.findall(r"^result .*$", done.stdout, re.M)
    for level, results in found.items():
        if results != found["none"]:
            raise Failed(f"with {level}: {results}\nwithout attribution: {found['none']}")
