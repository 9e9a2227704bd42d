"""Allocators of serving engines, unchanged: memory that they unmap while an engine sleeps, and map again.

MEMPROF_FOREIGN names a folder with their packages, built for this machine: vllm (of vLLM, at least
device_allocator.cumem and what it imports), torch_memory_saver and sglang (its torch_memory_saver_adapter),
kvcached; and the folder test of torch_memory_saver's repository.
"""

import json
import os
import re

from checks.side_by_side import MIB, PEAK, demand_library, foreign, has_foreign, side_by_side
from checks.suite import PYTHON, Failed, LeftOut, alone, two_gpus_only

ASLEEP = 580 * MIB  # weights, KV cache and what is kept, while the engines sleep: torch counts them all the same

# What every job here does with an allocator that puts weights and a KV cache to sleep.
START = """
import os, sys, time
sys.path.insert(0, os.environ["MEMPROF_FOREIGN"])
import torch
M = 2**20
torch.manual_seed(0)

def used():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free

def rests():
    torch.cuda.synchronize()
    time.sleep(0.4)  # used memory is read every 100 ms
"""

# The libraries free what is left in pools when the process ends, in an order that is not theirs.
END = """
rests()
sys.stdout.flush()
os._exit(0)
"""

ENGINE = """
def engine():
    return torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, device="cuda") for _ in range(16)])  # 256 MiB

def capture(model, cache):
    x = torch.zeros(64, 2048, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        y = model(x)
        cache[:64].copy_(y)
    return graph, x, y

def replay(graph, x, y, cache, seed):
    torch.manual_seed(seed)
    x.copy_(torch.randn(64, 2048, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    return float(y.double().sum()), float(cache[:64].double().sum())

def train():
    net = torch.nn.Linear(2048, 2048).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for i in range(3):
        net(torch.randn(4096, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(net.weight.double().sum())
"""


# What the driver may take without a call that the hook sees: kernels' local memory took 55 MiB here. What these jobs
# put to sleep is 256 MiB at least.
DRIVER = 96 * MIB


def demand_accounting(name, report):
    """Checks that the terms of the device accounting explain what is used, and no more, while an engine is asleep."""
    for process in report["processes"]:
        for device in process["devices"]:
            account = device["accounting"]
            if account["missing"] is not None or account["end"]["used"] is None:
                raise Failed(f"{name}: no reading of used memory at the end: {account}")
            for instant in ("peak", "end"):  # the peak may pass between two readings
                found = account[instant]
                if found["used"] is not None and not -8 * MIB <= found["rest"] <= DRIVER:
                    raise Failed(f"{name}: at the {instant} {found['used'] / MIB:.0f} MiB are used, {found['rest'] / MIB:.0f} of them in no term: {found}")


@alone
def vllm_sleep_mode(suite):
    """vLLM's cumem allocator: weights offloaded, the KV cache discarded, a CUDA graph replayed after the wake-up."""
    folder = foreign("vllm")
    report, _ = side_by_side(
        suite,
        "vllm_sleep_mode",
        START
        + ENGINE
        + """
from vllm.device_allocator.cumem import CuMemAllocator
allocator = CuMemAllocator.get_instance()
with allocator.use_memory_pool(tag="weights"):
    model = engine()
    passing = torch.ones(64 * M, device="cuda")  # as weights of a higher precision: freed before the pool closes
    print("result passing", float(passing.sum()))
    del passing
with allocator.use_memory_pool(tag="kv_cache"):
    cache = torch.zeros(64 * M, device="cuda").view(-1, 2048)  # 256 MiB
graph = capture(model, cache)
print("result awake", *replay(*graph, cache, 1))
print("usage", allocator.get_current_usage() // M)
for cycle in range(2):
    before = used()
    allocator.sleep(offload_tags=("weights",))
    print("result asleep, released at least", min((before - used()) // M, 512))
    rests()
    print("result trained", train())
    allocator.wake_up(tags=["weights"])
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.25)
    allocator.wake_up(tags=["kv_cache"])
    cache.zero_()
    print("result awake again", *replay(*graph, cache, 2 + cycle))
allocator.sleep(offload_tags=("weights",))
rests()
"""
        + PEAK
        + END,
        environment={"MEMPROF_FOREIGN": folder},
        alone=True,
        asleep=ASLEEP,
    )
    demand_accounting("vllm_sleep_mode", report)
    device = report["processes"][0]["devices"][0]
    pauses = [t for t in device["transitions"] if not t["resume"]]
    if {t["tag"] for t in device["transitions"]} != {"weights", "kv_cache"} or any((t["copied"] > 0) != (t["tag"] == "weights") for t in pauses):
        raise Failed(f"transitions by tag, of which the weights alone are copied, and not {device['transitions']}")


TABLES = 64 * MIB  # the driver's, on the device, for pinned memory that is allocated meanwhile


@alone
def engine_sleep(suite):
    """vLLM's sleep levels 1 and 2 and memprof's regions, timed in one run, or these alone: the same content, and as much memory."""
    rows = 4 if has_foreign("vllm") else 2
    directory, done = suite.record("engine_sleep", suite.job("engine_sleep"))
    suite.verified(directory)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in found:
        times = ", ".join(f"{name[:-3]} {row[name]:.1f} (first {row['first'][name]:.1f}) ms" for name in row["first"])
        suite.figure(f"level {row['level']}, {row['allocator']}: {row['weights'] >> 30} GiB of weights, {row['kv'] >> 30} of KV", times)
    if len(found) != rows or not all(row["same"] and row["released"] >= row["weights"] + row["kv"] - TABLES for row in found):
        raise Failed(f"{found}")


SAVER = (
    START
    + ENGINE
    + """
from torch_memory_saver import torch_memory_saver
from sglang.srt.torch_memory_saver_adapter import TorchMemorySaverAdapter
mode = sys.argv[1] if len(sys.argv) > 1 else "torch"
torch_memory_saver.hook_mode = mode
adapter = TorchMemorySaverAdapter.create(enable=True)
adapter.check_validity("case")
with adapter.region("weights"):
    model = engine()
with adapter.region("kv_cache"):
    cache = torch.zeros(64 * M, device="cuda").view(-1, 2048)
with torch_memory_saver.region(tag="kept", enable_cpu_backup=True):
    kept = torch.arange(16 * M, dtype=torch.float32, device="cuda")
graph = capture(model, cache)
addresses = [p.data_ptr() for p in model.parameters()]
print("result awake", *replay(*graph, cache, 1))
for cycle in range(2):
    before = used()
    adapter.pause("kv_cache")
    adapter.pause("weights")
    torch_memory_saver.pause("kept")
    print("result asleep, released at least", min((before - used()) // M, 512))
    rests()
    print("result trained", train())
    adapter.resume("weights")
    adapter.resume("kv_cache")
    torch_memory_saver.resume("kept")
    torch.manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, device="cuda") / 45)
    cache.zero_()
    print("result awake again", *replay(*graph, cache, 2 + cycle), float(kept.double().sum()), addresses == [p.data_ptr() for p in model.parameters()])
adapter.pause("kv_cache")
rests()
"""
    + PEAK
    + END
)


@alone
def sglang_memory_saver(suite):
    """torch_memory_saver under SGLang's adapter: as the allocator of memory pools."""
    folder = foreign("torch_memory_saver")
    report, _ = side_by_side(suite, "sglang_memory_saver", SAVER, environment={"MEMPROF_FOREIGN": folder}, alone=True, asleep=ASLEEP)
    demand_accounting("sglang_memory_saver", report)


@alone
def sglang_memory_saver_preloaded(suite):
    """The same, with the library's own cudaMalloc before CUDA's, which is what SGLang starts its workers with."""
    folder = foreign("torch_memory_saver")
    launcher = """
import os, subprocess, sys
sys.path.insert(0, os.environ["MEMPROF_FOREIGN"])
from torch_memory_saver import configure_subprocess
with configure_subprocess():
    sys.exit(subprocess.run([sys.executable, os.environ["ENGINE"], "preload"]).returncode)
"""
    engine = suite.script("preloaded_engine", SAVER)[-1]
    report, _ = side_by_side(suite, "sglang_memory_saver_preloaded", launcher, environment={"MEMPROF_FOREIGN": folder, "ENGINE": engine}, alone=True, asleep=ASLEEP)
    demand_accounting("sglang_memory_saver_preloaded", report)


@two_gpus_only
@alone
def memory_saver_on_two_devices(suite):
    """torch_memory_saver's own tests of two devices, over the package of that name that record gives."""
    folder = foreign(os.path.join("test", "examples"))
    if suite.gpus() < 2:
        raise LeftOut("one GPU")
    tests = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "multi_device", os.path.join(folder, "test", "test_examples.py")]
    for flags in ((), ("--no-trace",)):
        done = suite.run([suite.memprof, "record", "-q", *(flags or ("-o", os.path.join(suite.work, "saver"))), "--", *tests])
        if not re.search(r"^5 passed", done.stdout, re.M):
            raise Failed(f"five tests should pass: {done.stdout[-2000:]}")


@alone
def kvcached_pages(suite):
    """kvcached: a KV cache of reserved addresses, whose pages are mapped and unmapped as requests come and go."""
    folder = foreign("kvcached")
    report, _ = side_by_side(
        suite,
        "kvcached_pages",
        START
        + """
x = torch.ones(32 * M, device="cuda")  # torch's memory beside it, 128 MiB
from kvcached import vmm_ops
PAGE, LAYERS, PAGES = 2 * M, 8, 64
vmm_ops.init_kvcached("cuda:0", PAGE, False)
tensors = vmm_ops.create_kv_tensors(2 * PAGES * PAGE, 2, "cuda:0", LAYERS)  # keys and values, 2 GiB of addresses
print("result", len(tensors), [tuple(t.shape) for t in tensors][:1], tensors[0].dtype)
half = tensors[0].numel() // 2
def pages(ids):
    return [i * PAGE for i in ids]
def beside_torch():
    return round((used() - torch.cuda.memory_reserved()) / (64 * M))  # kernels are loaded meanwhile, too
before = beside_torch()
vmm_ops.map_to_kv_tensors(pages(range(0, 48)))
print("result mapped, in 64 MiB", beside_torch() - before)
for layer, t in enumerate(tensors):
    for page in range(0, 48):
        at = page * PAGE // 2
        t[at : at + 1000].fill_(layer + page)
        t[half + at : half + at + 1000].fill_(-page)
print("result", [float(t[: 48 * PAGE // 2 : PAGE // 2].double().sum()) for t in tensors])
vmm_ops.unmap_from_kv_tensors(pages(range(0, 48, 2)))
print("result unmapped, in 64 MiB", beside_torch() - before)
y = torch.full((64 * M,), 2.0, device="cuda")
vmm_ops.map_to_kv_tensors(pages(range(0, 24, 2)))
for t in tensors:
    t[: PAGE // 2].fill_(3)
print("result", [float(t[: PAGE // 2].double().sum() + t[PAGE // 2 : PAGE // 2 + 1000].double().sum()) for t in tensors], float(x.sum() + y.sum()))
rests()
"""
        + PEAK
        + END,
        environment={"MEMPROF_FOREIGN": folder},
        alone=True,
    )
    demand_library("kvcached_pages", report, "vmm_ops", 36 * 2 * 8 * 2 * MIB, "end")
    demand_accounting("kvcached_pages", report)
