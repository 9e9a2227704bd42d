"""Recordings that a process begins itself: memprof.watch, MEMPROF_WATCH, memprof attach; and lines of code with torch's own allocator.

Nothing here runs `memprof record` but the cases that measure costs. The recordings are compared with torch's own statistics, and `verify`
follows them from where they begin.
"""

import os
import re
import shutil
import subprocess
import time

from checks.attribution_cost import ALTERNATE, costs
from checks.native import CHURN, GRAPHS, TELL, agree, observed, statistics_of
from checks.suite import HERE, PYTHON, Failed, alone, case, first_process, number

WATCH = "import os, memprof\nRUN = os.environ['RUN']\n"


def unlaunched(suite, name, text, command=None, expect=0, said="", **more):
    """Runs a script that records itself into $RUN, with the package on its path. Returns $RUN and what it printed. memprof says nothing, or `said`."""
    directory = os.path.join(suite.work, name)
    for path in (directory, directory + "-snapshot", directory + "-2"):
        shutil.rmtree(path, ignore_errors=True)
    script = suite.script(name, text)
    command = [*command, script[1]] if command else script
    values = {"RUN": directory, "MEMPROF": os.path.abspath(suite.memprof), "PYTHONPATH": os.path.join(suite.hooks, "python"), **more}
    command[0] = shutil.which(command[0]) or command[0]  # $PATH may have no Python
    done = suite.run(["env", *(f"{key}={value}" for key, value in values.items()), *command], expect=expect)
    lines = re.findall(r"^memprof: .*", done.stderr, re.M)
    if said not in "".join(lines) or len(lines) != bool(said):
        raise Failed(f"{name}: {done.stderr[-2000:]}")
    return directory, done


def modeled(suite, directory, done, shared=False):
    """The device of a recording that verify follows from its first event. Its end agrees with torch's statistics."""
    device, stats = observed(suite, directory, shared), statistics_of(done)
    if not device["native"]["modeled"]:
        raise Failed(f"the model does not follow it: {device['native']}")
    last = device["iterations"][-1]
    found = {"requested": last["end_requested"], "provided": last["end_provided"], "reserved": device["final"]["reserved"]}
    wrong = {key: (value, stats[key]) for key, value in found.items() if value != stats[key]}
    if wrong:
        raise Failed(f"recorded, and what torch says: {wrong}; sums read: {device['native']}")
    return device


@case
def watch_from_the_start(suite):
    """memprof.watch before torch's first use of CUDA has what `record --allocator native` has."""
    text = TELL + WATCH + "memprof.watch(RUN)\n" + CHURN + "\nprint_statistics()\nmemprof.stop()\n"
    directory, done = unlaunched(suite, "watch_start", text)
    agree(suite, directory, done)


@case
def watch_from_the_middle(suite):
    """What is live by then is read from torch's snapshot, and verify holds from there on: both kinds of segments."""
    for name, settings in (("watch_middle", {}), ("watch_middle_pages", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})):
        text = TELL + WATCH + CHURN + "\nmemprof.watch(RUN)\n" + CHURN.replace("live = []", "more = live; live = []") + "\nprint_statistics()\nmemprof.stop()\n"
        directory, done = unlaunched(suite, name, text, **settings)
        device = modeled(suite, directory, done)
        if not 1000 < device["allocs"] < 3000:
            raise Failed(f"{name}: {device['allocs']} allocations: those of the second half, and what was live, were expected")


@case
def watch_without_a_compiler(suite):
    """Torch's own history in place of the shim: from the start, from the middle, and more entries between marks than torch keeps."""
    cache = os.path.join(suite.work, "no_shims")
    shutil.rmtree(cache, ignore_errors=True)
    bare = {"PATH": "/nonexistent", "CXX": "", "MEMPROF_SHIM": "", "MEMPROF_SHIM_CACHE": cache, "said": "no C++ compiler found"}
    text = TELL + WATCH + "memprof.watch(RUN)\n" + CHURN + "\nprint_statistics()\nmemprof.stop()\n"
    agree(suite, *unlaunched(suite, "history_start", text, **bare))
    for settings in ("", "expandable_segments:True"):
        text = TELL + WATCH + CHURN + "\nmemprof.watch(RUN, stacks=True)\n" + LINES + "\nprint_statistics()\nmemprof.stop()\n"
        directory, done = unlaunched(suite, "history_middle", text, PYTORCH_CUDA_ALLOC_CONF=settings, **bare)
        modeled(suite, directory, done, shared=True)
        lines_named(suite, directory, "weights", "forward")
    text = TELL + WATCH + "import torch\nmemprof.watch(RUN)\nfor i in range(300_000): torch.empty(1 << 10, device='cuda')\nprint_statistics()\nmemprof.stop()\n"
    directory, done = unlaunched(suite, "history_much", text, **bare)
    device, stats = observed(suite, directory), statistics_of(done)
    said = re.search(r"torch's history: (\d+) allocations are not in it", suite.run([suite.memprof, "report", directory]).stderr)
    lost = int(said.group(1)) if said else 0
    suite.figure("torch's history, read while the job allocates: allocations that are not in it", f"{lost} of {stats['allocs']}", "1 %, and said")
    if device["allocs"] + lost != stats["allocs"] or lost > 3000 or device["final"]["requested"] != stats["requested"]:
        raise Failed(f"{device['allocs']} allocations and {lost} lost; torch says {stats['allocs']}")
    built = [name for name in os.listdir(cache) if name.endswith(".so")]
    if built:
        raise Failed(f"a shim was built: {built}")


@case
def watch_a_model_from_the_middle(suite):
    """A training job that runs already: its modules and iterations are in the recording from there on."""
    text = TELL + WATCH + """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad()
    model(torch.randn(256, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
for _ in range(5): step()
memprof.watch(RUN)
for _ in range(10): step()
print_statistics()
memprof.stop()
"""
    directory, done = unlaunched(suite, "watch_model", text)
    device = modeled(suite, directory, done)
    if len(device["iterations"]) < 10:
        raise Failed(f"{len(device['iterations'])} iterations, 10 expected at least")


@case
def watch_beside_graphs(suite):
    """Private pools of graphs that were captured before the recording began."""
    text = TELL + WATCH + GRAPHS + "\nmemprof.watch(RUN)\nfor i in range(50):\n    first.replay()\n    keep = torch.empty(1 << (10 + i % 10), device='cuda')\nprint_statistics()\nmemprof.stop()\n"
    directory, done = unlaunched(suite, "watch_graphs", text)
    device = observed(suite, directory, shared=True)
    stats = statistics_of(done)
    if device["iterations"][-1]["end_requested"] != stats["requested"] or device["final"]["reserved"] != stats["reserved"]:
        raise Failed(f"{device['iterations'][-1]}, {device['final']}; torch says {stats}")


@case
def watch_threads(suite):
    """The recording begins and ends while eight threads allocate."""
    text = TELL + WATCH + """
import random, threading, time, torch
torch.cuda.init()
ended = False
def work(number):
    draw, kept = random.Random(number), []
    with torch.cuda.stream(torch.cuda.Stream()):
        while not ended:
            if kept and (len(kept) > 50 or draw.random() < 0.5): kept.pop(draw.randrange(len(kept)))
            else: kept.append(torch.empty(1 + draw.randrange(1 << 20), dtype=torch.uint8, device="cuda"))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
time.sleep(1)
for i in range(3):
    memprof.watch(RUN + str(i), stacks=i == 2)
    time.sleep(1)
    memprof.stop()
ended = True
for t in threads: t.join()
"""
    directory, _ = unlaunched(suite, "watch_threads", text)
    for i in range(3):
        device = observed(suite, directory + str(i), shared=True)
        if not device["native"]["modeled"] or device["allocs"] < 1000:
            raise Failed(f"recording {i}: {device['allocs']} allocations, {device['native']}")
        shutil.rmtree(directory + str(i))


def installed(suite):
    """A folder as pip leaves it: the package, and the .pth file that site executes."""
    folder = os.path.join(suite.work, "site")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(suite.hooks, "python", "memprof"), os.path.join(folder, "memprof"))
    shutil.copy(os.path.join(HERE, "..", "hooks", "python", "memprof.pth"), folder)
    return folder


@case
def watch_by_the_environment(suite):
    """MEMPROF_WATCH alone: the ranks of torchrun each have a process in one recording."""
    text = f"import site\nsite.addsitedir({installed(suite)!r})\n" + TELL + """
import os, torch
rank = int(os.environ["RANK"])
keep = torch.empty(1_000_000 * (1 + rank), dtype=torch.uint8, device="cuda")
print_statistics()
import time; time.sleep(1)
"""
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    directory = os.path.join(suite.work, "watch_environment")
    unlaunched(suite, "watch_environment", text, launcher, MEMPROF_WATCH=directory, PYTHONPATH="")
    for _ in range(100):  # the collector completes it when the last rank has ended
        if not any(os.path.exists(os.path.join(directory, name)) for name in ("spool", "spool-finished")):
            break
        time.sleep(0.1)
    processes = {p["process"]: p for p in suite.report(directory)["processes"] if p["devices"]}
    for rank in (0, 1):
        device = processes[f"rank{rank}"]["devices"][0]
        if device["iterations"][-1]["end_requested"] != 1_000_000 * (1 + rank):
            raise Failed(f"rank {rank}: {device['iterations'][-1]}")
    suite.run([suite.memprof, "verify", directory])


@case
def start_of_python(suite):
    """The .pth file costs less than a millisecond in a process without MEMPROF_WATCH, and imports nothing."""
    text = f"""
import sys, time
line = open({os.path.join(installed(suite), "memprof.pth")!r}).read()
before = set(sys.modules)
begun = time.perf_counter()
for _ in range(1000): exec(line)
print("microseconds", (time.perf_counter() - begun) * 1000, len(set(sys.modules) - before))
"""
    done = suite.run(suite.script("start_of_python", text))
    microseconds, modules = (float(v) for v in re.search(r"^microseconds (\S+) (\S+)$", done.stdout, re.M).groups())
    suite.figure("start of Python: the .pth file", f"{microseconds:.1f} us", "1000 us")
    if microseconds > 1000 or modules:
        raise Failed(done.stdout)


LINES = """
import torch
def weights():
    return torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
class Model:
    def forward(self, x):
        return x.float().repeat(4)
kept = [weights() for _ in range(4)]
for _ in range(20):
    out = Model().forward(kept[0])
layer = torch.nn.Linear(2048, 2048, device="cuda")
layer(torch.randn(512, 2048, device="cuda")).sum().backward()
"""


def lines_named(suite, directory, *functions):
    groups = first_process(suite.report(directory))["devices"][0]["held_at_peak"]["stacks"]["groups"]
    frames = [frame for group in groups for frame in group.get("frames") or []]
    for function in functions:
        if not any(re.match(rf"(\w+\.)*{function} \(.*:\d+\)", frame) for frame in frames):
            raise Failed(f"no stack goes through {function}: {groups}")


@case
def native_stacks(suite):
    """--stacks python with torch's allocator names the lines, by record and by watch."""
    directory, done = suite.record("native_stacks", suite.script("native_stacks", LINES), "--allocator", "native", "--stacks", "python")
    if "stacks are not" in done.stderr:
        raise Failed(done.stderr)
    lines_named(suite, directory, "weights", "forward")
    directory, _ = unlaunched(suite, "watch_stacks", WATCH + "memprof.watch(RUN, stacks=True)\n" + LINES + "\nmemprof.stop()\n")
    lines_named(suite, directory, "weights", "forward")
    suite.run([suite.memprof, "verify", directory])


EXTENSION = """
#include <ATen/ATen.h>
#include <torch/library.h>
namespace ours {
at::Tensor doubled(const at::Tensor &x) { return at::empty({2, x.numel()}, x.options()); }
at::Tensor inner(const at::Tensor &x) { return at::cat({x, x, x}); }
at::Tensor outer(const at::Tensor &x) { return inner(x).clone(); }
}
TORCH_LIBRARY(ours, m) {
  m.def("doubled", &ours::doubled);
  m.def("outer", &ours::outer);
}
"""


@case
def extension_functions(suite):
    """The functions of an extension that allocate are named, though one line of Python calls them all, with both allocators."""
    source, library = (os.path.abspath(os.path.join(suite.work, name)) for name in ("ours.cpp", "ours.so"))
    with open(source, "w") as f:
        f.write(EXTENSION)
    text = "import torch, torch.utils.cpp_extension as e; print(*e.include_paths()); print(*e.library_paths()); print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"
    includes, libraries, abi = suite.run([PYTHON, "-c", text]).stdout.splitlines()[-3:]
    command = ["c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fno-optimize-sibling-calls", "-fno-inline", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    command += ["-I" + path for path in includes.split()] + [source, "-o", library] + ["-L" + path for path in libraries.split()]
    suite.run([*command, "-Wl,--no-as-needed", "-lc10", "-ltorch_cpu"])
    text = f"""
import torch
torch.ops.load_library({library!r})
x = torch.ones(1 << 20, device="cuda")
kept = [getattr(torch.ops.ours, name)(x) for name in ("doubled", "outer", "doubled", "outer")]
y = torch.ones(1 << 21, device="cuda")
"""
    for allocator in ("bfc", "native"):
        directory, _ = suite.record("extension_" + allocator, suite.script("extension", text), "--allocator", allocator, "--stacks", "python")
        groups = first_process(suite.report(directory))["devices"][0]["held_at_peak"]["stacks"]["groups"]
        found = {(group.get("frames") or [""])[0] for group in groups}
        if not {"ours::doubled (ours.so)", "ours::outer (ours.so)"} <= found:  # at the peak, outer's inner() has ended
            raise Failed(f"{allocator}: innermost frames are {sorted(found)}")
        if not any(frame.startswith("<module> (") for frame in found):
            raise Failed(f"{allocator}: what Python allocates has another innermost frame: {sorted(found)}")


@case
def native_stacks_threads(suite):
    """Frames that are new in many threads at a time, while others hold the interpreter's lock: nothing hangs."""
    text = """
import threading, torch
torch.cuda.init()
def work(number):
    for i in range(400):
        scope = {"torch": torch}
        exec(f"def made_{number}_{i}(): return torch.empty(1 << 12, device='cuda')", scope)
        kept = [scope[f"made_{number}_{i}"]() for _ in range(5)]
        torch.cuda.memory_stats()
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print("through")
"""
    directory, done = suite.record("stacks_threads", suite.script("stacks_threads", text), "--allocator", "native", "--stacks", "python")
    if "through" not in done.stdout:
        raise Failed(done.stdout)
    observed(suite, directory, shared=True)


@case
def ring_names_lines(suite):
    """A ring in the process: a failed request has a snapshot written, whose stacks name the line; memprof.snapshot() writes another."""
    text = WATCH + """
import torch
memprof.watch(RUN, stacks=True, ring="32MiB")
def weights():
    return torch.empty(torch.cuda.mem_get_info()[0] // 2, dtype=torch.uint8, device="cuda")
def churn(n):
    for _ in range(n): torch.empty(1000, device="cuda")
kept = weights()
churn(400_000)  # more than the ring holds
print("snapshot", memprof.snapshot(RUN + "-2"))
try:
    torch.empty(torch.cuda.mem_get_info()[1], dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("caught")
churn(1000)
memprof.stop()
"""
    directory, done = unlaunched(suite, "watch_ring", text)
    if "caught" not in done.stdout:
        raise Failed(done.stdout)
    for run, ooms in ((directory + "-2", 0), (directory + "-snapshot", 1), (directory, 1)):
        device = first_process(suite.report(run))["devices"][0]
        if len(device["ooms"]) != ooms:
            raise Failed(f"{run}: {len(device['ooms'])} failed requests, {ooms} expected")
        lines_named(suite, run, "weights")
    page = suite.run([suite.memprof, "report", directory + "-snapshot"]).stdout
    if "watch_ring.py:" not in page:
        raise Failed("the first screen names no line:\n" + page)


@case
def attach_to_a_process(suite):
    """memprof attach starts, snapshots and stops the recording of a process that runs."""
    text = "import memprof, sys, time, torch\n" + TELL + CHURN + """
print("ready", flush=True)
end = time.monotonic() + 60
while sys.stdin.readline().strip() != "end":
    live.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
    print("more", flush=True)
"""
    run = os.path.join(suite.work, "attached")
    for path in (run, run + "-now"):
        shutil.rmtree(path, ignore_errors=True)
    env = dict(os.environ, MEMPROF=os.path.abspath(suite.memprof), PYTHONPATH=os.path.join(suite.hooks, "python"))
    process = subprocess.Popen(suite.script("attached", text), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    try:
        def more():
            process.stdin.write("more\n")
            process.stdin.flush()
            process.stdout.readline()

        process.stdout.readline()
        attach = [suite.memprof, "attach", str(process.pid)]
        suite.run([*attach, "stop"])
        suite.run([*attach, "start", run])
        more()
        suite.run([*attach, "snapshot", run + "-now"])
        more()
        suite.run([*attach, "stop"])
        more()
        suite.run([*attach, "snapshot", run + "-then"], expect=2)
        process.communicate("end\n", timeout=60)
    finally:
        process.kill()
        process.wait()
    found = [first_process(suite.report(directory))["devices"][0]["allocs"] for directory in (run + "-now", run)]
    if found[1] != found[0] + 1:
        raise Failed(f"{found} allocations: the recording has one more than the snapshot")
    suite.run([suite.memprof, "verify", run])
    suite.run([suite.memprof, "attach", str(os.getpid())], expect=2)


STACK_BUDGET = 33  # ns a pair


@alone
def native_stacks_cost(suite):
    """What Python stacks add to a pair under torch's own allocator and under ours, switched on and off in one process.

    Under torch's it is at most the budget, or what it is under ours where the machine is slower.
    """
    job, found = suite.script("alternate_native", ALTERNATE), {}
    for kind, flags in (("memprof", ()), ("native", ("--allocator", "native"))):
        _, done = suite.record("cost_stacks_" + kind, [*job, "stacks of pairs", suite.jobs()], *flags, "--stacks", "python", "--ring", "64MiB")
        found[kind] = costs(done.stdout)["pair"]
        added, error, base = found[kind]
        suite.figure(f"pair: {kind}, stacks add", f"{added:.0f} ± {error:.0f} ns to {base:.0f}", f"{STACK_BUDGET} ns" if kind == "native" else "")
    added, error, _ = found["native"]
    ours, error_of_ours, _ = found["memprof"]
    if added - 2 * error > max(STACK_BUDGET, ours + 2 * error_of_ours):
        raise Failed(f"stacks add {added:.0f} ± {error:.0f} ns to a pair, {ours:.0f} ± {error_of_ours:.0f} under memprof's own allocator")


RING = ("--allocator", "native", "--stacks", "python", "--ring", "64MiB")


RING_JOBS = {
    "gpt2": ("gpt2",),
    "resnet50": ("resnet50",),
    "squeezenet": ("zoo", "--model", "squeezenet1_1", "--batch", "80"),  # 12 ms a step on an H200
}


def ring_step_of(name, job):
    """Makes the case of a job."""

    def cost(suite):
        command = suite.job(*job)
        peak = number(r"^memory peak \d+ allocated (\d+) reserved$", suite.run(command).stdout)
        suite.steps(f"ring_{name}", command, {"native": None, "ring": RING}, "native", peak, "1.01", 1.01)

    cost.__name__ = f"ring_step_of_{name}"
    cost.__doc__ = f"A ring with stacks, as it would always be on, takes at most 1 % of a step of {name}."
    return alone(cost)


for _name, _job in RING_JOBS.items():
    ring_step_of(_name, _job)
