"""torch's own allocator, observed: `record --allocator native`.

The recording is compared with torch's own statistics, which the job reads. The scripts here end
with `print_statistics()`, which prints the statistics and marks the moment in the trace.
"""

import json
import os
import re
import shutil
import statistics

from checks.suite import PYTHON, Failed, alone, case, first_process, losses, number, parquet_bytes

TELL = """
def print_statistics():
    import json, memprof, torch
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # blocks that waited for other streams are given back now
    stats = torch.cuda.memory_stats()
    memprof.iteration("statistics")
    print("statistics", json.dumps({
        "requested": stats["requested_bytes.all.current"], "provided": stats["allocated_bytes.all.current"],
        "pending": stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"],
        "max_provided": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.current"],
        "max_reserved": torch.cuda.max_memory_reserved(), "allocs": stats["allocation.all.allocated"],
        "max_requested": stats["requested_bytes.all.peak"],
    }))
"""


def record(suite, name, command):
    directory, done = suite.record(name, command, "--allocator", "native")
    if "problem" in done.stderr:
        raise Failed(f"{name}: {done.stderr}")
    return directory, done


def observed(suite, directory, shared=False):
    """The device of a recording, after what holds for every one of them.

    `shared`: blocks were used on other streams. Torch counts what is pending as requested.
    """
    device = first_process(suite.report(directory))["devices"][0]
    if device.get("native", {}).get("allocator") != "native":
        raise Failed(f"the report has no observed allocator: {device.get('native')}")
    if not device["native"]["samples"]:
        raise Failed("the allocator's sums were never read")
    if device["native"]["odd"] and not shared:
        raise Failed(f"sums that do not fit the events: {device['native']}")
    if device["native"]["modeled"]:
        parts = sum(device["peak"][name] for name in ("requested", "rounding", "slack", "pending", "stranded", "reserve", "reusable", "external"))
        if parts != device["peak"]["reserved"]:
            raise Failed(f"the parts of the peak add up to {parts}: {device['peak']}")
    for book in ("peak", "end"):
        own = [x for x in ((device.get("accounting") or {}).get(book) or {}).get("libraries", []) if x["library"].startswith("libc10_cuda")]
        if own:
            raise Failed(f"the allocator's own segments are in the accounting twice: {own}")
    done = suite.run([suite.memprof, "verify", directory], expect=None)
    if done.returncode == 0 and "by its model" not in done.stdout or done.returncode == 2 and "only observed" not in done.stderr or done.returncode not in (0, 2):
        raise Failed(f"verify: exit {done.returncode}\n{done.stdout}{done.stderr}")
    if (done.returncode == 0) != device["native"]["modeled"]:
        raise Failed(f"verify ends with {done.returncode}, and the report was modeled: {device['native']}")
    return device


def statistics_of(done):
    match = re.search(r"^statistics (\{.*\})$", done.stdout, re.M)
    if not match:
        raise Failed("the job printed no statistics:\n" + done.stdout[-1000:] + done.stderr[-2000:])
    return json.loads(match.group(1))


def agree(suite, directory, done, shared=False):
    """The recording agrees with torch's own statistics."""
    device, stats = observed(suite, directory, shared), statistics_of(done)
    last = device["iterations"][-1]
    found = {
        "requested": last["end_requested"], "provided": last["end_provided"], "reserved": device["final"]["reserved"],
        "max_reserved": device["max_reserved"], "max_provided": device["max_provided"], "allocs": device["allocs"],
    }
    if stats["pending"]:
        raise Failed(f"{stats['pending']} bytes still pending: the case is wrong")
    if not shared:
        found["max_requested"] = device["max_requested"]
    wrong = {name: (value, stats[name]) for name, value in found.items() if value != stats[name]}
    if wrong:
        raise Failed(f"recorded, and what torch says: {wrong}; sums read: {device['native']}")
    return device


def script(suite, name, text):
    return record(suite, name, suite.script(name, TELL + text + "\nprint_statistics()\n"))


def sample(suite, name):
    """A sample job unrecorded and observed: the same losses, and torch's numbers."""
    plain, recorded = [], []
    wrapper = suite.script(
        f"native_{name}_job",
        TELL
        + f"""
import os, runpy, sys, torch
torch.cuda.reset_peak_memory_stats = lambda device=None: None  # the job's, between iterations; print_statistics() wants the whole run's
job = {os.path.abspath(suite.job(name)[1])!r}
sys.argv[0] = job
sys.path.insert(0, os.path.dirname(job))
runpy.run_path(job, run_name="__main__")
if os.environ.get("MEMPROF_SPOOL"):
    print_statistics()
""",
    )
    native = suite.run(wrapper)
    directory, ours = record(suite, f"native_{name}", wrapper)
    if losses(native.stdout) != losses(ours.stdout):
        raise Failed(f"{name}: losses differ: {losses(native.stdout)} and {losses(ours.stdout)}")
    agree(suite, directory, ours)
    native_peak, our_peak = (number(r"^memory peak \d+ allocated (\d+) reserved$", done.stdout) for done in (native, ours))
    if native_peak != our_peak:
        raise Failed(f"{name}: reserved peak {our_peak} observed, {native_peak} alone")
    suite.steps(f"native_{name}", suite.job(name), {"native": None, "observed": ("--allocator", "native")}, "native", native_peak)
    events = first_process(suite.report(directory))["events"]
    suite.figure(f"{name}: trace of the observed allocator", f"{parquet_bytes(directory) / events:.2f} bytes an event, {events} events", "4")
    suite.run([suite.memprof, "report", directory])
    suite.run([suite.memprof, "check", directory, "--gate", "reserved.peak < 40GiB"])
    suite.run([suite.memprof, "check", directory, "--gate", "reserved.peak < 1MiB"], expect=1)
    suite.run([suite.memprof, "check", directory, "--gate", "waste.external < 100%"])


@alone
def native_resnet50(suite):
    sample(suite, "resnet50")


@alone
def native_gpt2(suite):
    sample(suite, "gpt2")


BUDGET = "1.30"  # of the native pair; PyTorch's own telling takes 1.17 to 1.18 of it


@alone
def native_pair_cost(suite):
    """The time that observing adds to a malloc and free of torch's allocator.

    The same loop takes up to a fifth longer in one process than in another, so each process is also
    measured before it is observed. A second measurement differs from the first even with nothing
    attached, so the result is compared with that. The medians of five processes, in turns, count.
    """
    job, found = suite.job("pair", "--pairs", "300000"), {"again": [], "empty": [], "observed": []}
    for _ in range(5):
        found["again"].append(added(suite.run([*job, "--again"]).stdout))
        found["empty"].append(added(suite.run([*job, "--empty-tracker"]).stdout))
        directory, done = record(suite, "native_pair", [*job, "--observe-later"])
        found["observed"].append(added(done.stdout))
    device = observed(suite, directory)
    if device["allocs"] < 1_500_000:
        raise Failed(f"{device['allocs']} allocations recorded, 5 runs of 300,000 made")
    ratio = {}
    named = {"again": "once more", "empty": "a tracker that does nothing", "observed": "observed"}
    for name, what in named.items():
        ratios, before = (sorted(column) for column in zip(*found[name]))
        ratio[name] = statistics.median(ratios)
        suite.figure(f"pair: native, {what} / before", f"{ratio[name]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), of {statistics.median(before):.0f} ns")
    for name in "empty", "observed":
        suite.figure(f"pair: native, {named[name]} / once more", f"{ratio[name] / ratio['again']:.2f}", BUDGET if name == "observed" else "")
    if ratio["observed"] / ratio["again"] > float(BUDGET):
        raise Failed(f"over budget: {found}")


def added(output):
    """(ratio of the time of a pair at the end to that before, time before in ns), by medians of the runs."""
    before, after = (statistics.median(float(ns) for ns in re.search(rf"^{name} .* of (.*)$", output, re.M)[1].split()) for name in ("before", "pair"))
    return after / before, before


CHURN = """
import random
import torch
random.seed(1)
live = []
for i in range(3000):
    if live and (len(live) > 200 or random.random() < 0.45):
        live.pop(random.randrange(len(live)))
    else:
        live.append(torch.empty(int(2 ** random.uniform(0, 25)), dtype=torch.uint8, device="cuda"))
    if i % 1000 == 999:
        del live[::2]
        torch.cuda.empty_cache()
"""


@case
def native_churn(suite):
    """Random sizes with the cache emptied now and then."""
    device = agree(suite, *script(suite, "native_churn", CHURN))
    if device["growth_count"] < 3:
        raise Failed(f"{device['growth_count']} segments were recorded")


@case
def native_expandable(suite):
    """Expandable segments: mapped page by page, blocks span mappings."""
    text = 'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n' + CHURN
    directory, done = script(suite, "native_expandable", text)
    agree(suite, directory, done)
    arenas = first_process(suite.report(directory))["arenas"]
    if [a["options"]["coalesces"] for a in arenas] != ["1"]:
        raise Failed(f"one arena of joined memory expected: {arenas}")


@case
def native_both_manners(suite):
    """Expandable segments switched on while the job runs."""
    text = CHURN + '\ntorch.cuda.memory._set_allocator_settings("expandable_segments:True")\n' + CHURN.replace("live = []", "more = live; live = []")
    directory, done = script(suite, "native_both", text)
    agree(suite, directory, done)
    arenas = first_process(suite.report(directory))["arenas"]
    if sorted(a["options"]["coalesces"] for a in arenas) != ["0", "1"]:
        raise Failed(f"an arena of each manner expected: {arenas}")


@case
def native_streams(suite):
    """Blocks used on other streams are pending between the halves of their free."""
    text = """
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
    z = torch.full((1 << 20,), -1.0, device="cuda")
    if i % 10 == 9:
        side.synchronize()
        assert float(y) == float(i) * (1 << 20), (i, float(y))
"""
    directory, done = script(suite, "native_streams", text)
    agree(suite, directory, done, shared=True)
    for kind, least in (("stream_use", 100), ("free_done", 100)):
        number_of = suite.count(directory, kind)
        if number_of is not None and number_of < least:
            raise Failed(f"{number_of} {kind} events, at least {least} expected")
    if suite.count(directory, "stream_use") != suite.count(directory, "free_done"):
        raise Failed("a free that waited has no end, or the other way round")


@case
def native_mark_between(suite):
    """A mark while a free waits for another stream: the block is no longer requested."""
    text = """
import memprof, torch
side = torch.cuda.Stream()
keep = torch.empty(1000, dtype=torch.uint8, device="cuda")
x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    torch.cuda._sleep(200_000_000)
x.record_stream(side)
del x
memprof.iteration("between")
print("between")
"""
    directory, done = script(suite, "native_mark", text)
    device = agree(suite, directory, done, shared=True)
    if device["iterations"][0]["end_requested"] != 1000:
        raise Failed(f"at the mark {device['iterations'][0]['end_requested']} bytes are requested, not 1000")


GRAPHS = """
import torch
x = torch.zeros(1 << 20, device="cuda")
def work():
    y = x * 2
    return (y + x).sum(), y
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    work()
torch.cuda.current_stream().wait_stream(side)
first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(first):
    a, b = work()
with torch.cuda.graph(second, pool=first.pool()):
    c, d = work()
for i in range(20):
    x.fill_(float(i))
    first.replay()
    second.replay()
    keep = torch.empty(1 << (10 + i % 10), device="cuda")
assert float(a) == 3.0 * 19 * (1 << 20), float(a)
"""


@case
def native_graphs(suite):
    """Private pools of graphs: their memory has its own arena until the graphs are freed."""
    directory, done = script(suite, "native_graphs", GRAPHS + "\ndel a, b, c, d\nfirst.reset()\nsecond.reset()\ntorch.cuda.empty_cache()\n")
    agree(suite, directory, done, shared=True)
    pools = {a["options"]["pool"] for a in first_process(suite.report(directory))["arenas"]}
    if len(pools) < 2:
        raise Failed(f"a private pool expected: {pools}")


@case
def native_compiled(suite):
    """torch.compile with graph trees: restored checkpoints of pools appear as requests."""
    text = """
import torch
layer = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
compiled = torch.compile(layer, mode="reduce-overhead")
batch = torch.randn(64, 256, device="cuda")
for i in range(8):
    torch.compiler.cudagraph_mark_step_begin()
    loss = compiled(batch).sum()
    loss.backward()
    layer.zero_grad()
"""
    agree(suite, *script(suite, "native_compiled", text), shared=True)


@case
def native_mempool(suite):
    """A pool of the user's, and its end."""
    text = """
import torch
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = [torch.empty(1 << n, device="cuda") for n in range(10, 22)]
outside = torch.empty(1 << 20, device="cuda")
del inside
del pool
torch.cuda.empty_cache()
"""
    agree(suite, *script(suite, "native_mempool", text))


@alone
def native_out_of_memory(suite):
    """A caught torch.OutOfMemoryError is an event with a verdict, and the job continues."""
    text = """
import torch
total = torch.cuda.mem_get_info()[1]
keep = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
try:
    torch.empty(total * 3 // 4, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("caught")
else:
    raise SystemExit("no error")
x = torch.ones(total // 8, dtype=torch.uint8, device="cuda")
assert int(x[-1]) == 1
"""
    directory, done = script(suite, "native_oom", text)
    if "caught" not in done.stdout:
        raise Failed(done.stdout)
    device = agree(suite, directory, done)
    if len(device["ooms"]) != 1 or device["ooms"][0]["verdict"] != "capacity" or device["ooms"][0]["free"] is None:
        raise Failed(f"one out-of-memory for capacity expected, found {device['ooms']}")


@case
def native_threads(suite):
    """Eight threads allocate on streams of their own while another one marks."""
    text = """
import random, threading
import memprof, torch
torch.cuda.init()
kept = [[] for _ in range(8)]
def work(number):
    draw = random.Random(number)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(4000):
            if kept[number] and (len(kept[number]) > 50 or draw.random() < 0.5):
                block = kept[number].pop(draw.randrange(len(kept[number])))
                if draw.random() < 0.1:
                    block.record_stream(torch.cuda.default_stream())
                del block
            else:
                kept[number].append(torch.empty(1 + draw.randrange(1 << 20), dtype=torch.uint8, device="cuda"))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
while any(t.is_alive() for t in threads):
    memprof.iteration()
for t in threads: t.join()
"""
    agree(suite, *script(suite, "native_threads", text), shared=True)


@case
def native_memory_before(suite):
    """Blocks from before torch's lazy initialisation in Python are recorded."""
    text = """
import torch
torch._C._cuda_init()  # as code that is not Python does
early = [torch._C._cuda_cudaCachingAllocator_raw_alloc(size, 0) for size in (1000, 3_000_000, 700)]
torch._C._cuda_cudaCachingAllocator_raw_delete(early[1])
assert not torch.cuda.is_initialized()
later = torch.empty(5000, dtype=torch.uint8, device="cuda")
torch._C._cuda_cudaCachingAllocator_raw_delete(early[0])
"""
    directory, done = script(suite, "native_before", text)
    device, stats = observed(suite, directory), statistics_of(done)
    last = device["iterations"][-1]
    if last["end_requested"] != 5700 or stats["requested"] != 5700:
        raise Failed(f"{last['end_requested']} bytes recorded, torch says {stats['requested']}; 5700 were asked for")
    if device["final"]["reserved"] != stats["reserved"]:
        raise Failed(f"R is {device['final']['reserved']}, torch says {stats['reserved']}")


@case
def native_without_compiler(suite):
    """No compiler and no cached shim: torch's own history is recorded, and memprof says so."""
    directory = os.path.join(suite.work, "native_compiler")
    cache = os.path.join(suite.work, "native_compiler_cache")
    shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(cache, ignore_errors=True)
    command = suite.script("native_compiler", 'import torch\nprint("sum", int(torch.ones(10, device="cuda").sum()))\n')
    environment = ["env", f"MEMPROF_CACHE={cache}", "CXX=/nonexistent/c++"]
    done = suite.run(environment + [suite.memprof, "record", "-o", directory, "--allocator", "native", "--", *command])
    if "sum 10" not in done.stdout or "until then torch's own history is recorded" not in done.stderr:
        raise Failed(f"{done.stdout}\n{done.stderr}")
    allocations = sum(process["allocs"] for process in suite.verified(directory)["processes"])
    if allocations < 2:  # the ones, and their sum
        raise Failed(f"{allocations} allocations are recorded")


@case
def native_other_backend(suite):
    """An allocator without a tracker is left alone, and memprof says so."""
    text = 'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"\nimport torch\nprint("sum", int(torch.ones(10, device="cuda").sum()))\n'
    _, done = suite.record("native_backend", suite.script("native_backend", text), "--allocator", "native")
    if "sum 10" not in done.stdout or "recorded as calls of CUDA, without tensors" not in done.stderr:
        raise Failed(f"{done.stdout}\n{done.stderr}")


@case
def native_beside_history(suite):
    """torch's own memory history works while its allocator is observed."""
    text = """
import torch
torch.cuda.memory._record_memory_history(stacks="python", max_entries=10000)
keep = [torch.empty(1000 * n, device="cuda") for n in range(1, 50)]
snapshot = torch.cuda.memory._snapshot()
assert sum(e["action"] == "alloc" for e in snapshot["device_traces"][0]) >= 49
torch.cuda.memory._record_memory_history(enabled=None)
"""
    agree(suite, *script(suite, "native_history", text))


@case
def native_torchrun(suite):
    """Two ranks on one GPU each have a recording of their own."""
    text = TELL + """
import os, torch
rank = int(os.environ["RANK"])
torch.cuda.set_device(0)
keep = torch.empty(1_000_000 * (1 + rank), dtype=torch.uint8, device="cuda")
print_statistics()
"""
    command = suite.script("native_ranks", text)
    run = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", command[1]]
    directory, _ = record(suite, "native_ranks", run)
    processes = {p["process"]: p for p in suite.report(directory)["processes"] if p["devices"]}
    for rank in (0, 1):
        device = processes[f"rank{rank}"]["devices"][0]
        if device["iterations"][-1]["end_requested"] != 1_000_000 * (1 + rank):
            raise Failed(f"rank {rank}: {device['iterations'][-1]}")
