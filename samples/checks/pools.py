"""Memory pools, torch's statistics and snapshots, and pools with an allocator of their own."""

from checks.suite import case


# Makes `allocator`, NCCL's own, of `backend`: torch's, or the same calls through a plug-in where it was built without.
NCCL_ALLOCATOR = """
try:
    allocator = backend.mem_allocator
except RuntimeError:
    import glob, subprocess, tempfile
    source = '''
#include <dlfcn.h>
#include <stddef.h>
static void *find(const char *name) { void *nccl = dlopen("libnccl.so.2", RTLD_NOLOAD | RTLD_NOW); return nccl ? dlsym(nccl, name) : nullptr; }
extern "C" void *take(size_t size, int, void *) { auto f = (int (*)(void **, size_t))find("ncclMemAlloc"); void *p = nullptr; return f && f(&p, size) == 0 ? p : nullptr; }
extern "C" void give(void *p, size_t, int, void *) { auto f = (int (*)(void *))find("ncclMemFree"); if (f) f(p); }
'''
    folder = tempfile.mkdtemp()
    open(folder + "/nccl.cpp", "w").write(source)
    subprocess.run(["c++", "-shared", "-fPIC", folder + "/nccl.cpp", "-o", folder + "/nccl.so", "-ldl"], check=True)
    plug = torch.cuda.memory.CUDAPluggableAllocator(folder + "/nccl.so", "take", "give")
    allocator = plug.allocator()
"""


@case
def memory_pools(suite):
    """torch.cuda.MemPool and use_mem_pool, with and without an allocator of its own."""
    suite.same(
        "memory_pools",
        """
import os, subprocess, tempfile, torch
M = 2**20
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    a = torch.full((4 * M,), 1.0, device="cuda")
outside = torch.full((4 * M,), 2.0, device="cuda")
assert pool.use_count() >= 1
segments = pool.snapshot()
assert sum(s["allocated_size"] for s in segments) >= 16 * M, segments
starts = [(s["address"], s["address"] + s["total_size"]) for s in segments]
inside = lambda t: any(start <= t.data_ptr() < end for start, end in starts)
print("result", inside(a), inside(outside), float(a.sum()), float(outside.sum()))
address = a.data_ptr()
del a
other = torch.empty(4 * M, device="cuda")
print("result reused outside", other.data_ptr() == address)
with torch.cuda.use_mem_pool(pool):
    b = torch.empty(4 * M, device="cuda")
print("result reused inside", b.data_ptr() == address)
del b, pool
torch.cuda.empty_cache()

source = '''
#include <cuda_runtime_api.h>
#include <cstdio>
static int taken, returned;
extern "C" void *take(size_t size, int device, cudaStream_t stream) { void *p = nullptr; taken++; return cudaMalloc(&p, size) == cudaSuccess ? p : nullptr; }
extern "C" void give(void *p, size_t size, int device, cudaStream_t stream) { returned++; cudaFree(p); }
extern "C" int counts(int which) { return which ? returned : taken; }
'''
folder = tempfile.mkdtemp()
open(folder + "/own.cpp", "w").write(source)
import glob, ctypes
include = [f for f in ["/usr/local/cuda/include"] + glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "cu*", "include")) if os.path.exists(f + "/cuda_runtime_api.h")][0]
subprocess.run(["c++", "-shared", "-fPIC", "-I", include, folder + "/own.cpp", "-o", folder + "/own.so"], check=True)
own = torch.cuda.memory.CUDAPluggableAllocator(folder + "/own.so", "take", "give")
library = ctypes.CDLL(folder + "/own.so")
pool = torch.cuda.MemPool(own.allocator())
with torch.cuda.use_mem_pool(pool):
    c = torch.full((3 * M,), 5.0, device="cuda")
print("result own", float(c.sum()), library.counts(0) > 0)
del c, pool
torch.cuda.empty_cache()
torch.cuda.synchronize()
print("result returned", library.counts(0) == library.counts(1))
""",
    )


@case
def nccl_memory_pool(suite):
    """A pool of NCCL's own allocator, registered with it, and an all-reduce from it."""
    suite.same(
        "nccl_memory_pool",
        """
import os, torch, torch.distributed as dist
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29511")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
dist.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda", 0))
backend = dist.group.WORLD._get_backend(torch.device("cuda", 0))
"""
        + NCCL_ALLOCATOR
        + """
pool = torch.cuda.MemPool(allocator)
with torch.cuda.use_mem_pool(pool):
    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
backend.register_mem_pool(pool)
dist.all_reduce(x)
torch.cuda.synchronize()
print("result", float(x.double().sum()))
backend.deregister_mem_pool(pool)
del x, pool
dist.destroy_process_group()
""",
    )


@case
def torch_statistics(suite):
    """The statistics family, the memory fraction, snapshots and memory history."""
    suite.same(
        "torch_statistics",
        """
import pickle, tempfile, torch
M = 2**20
assert torch.cuda.get_per_process_memory_fraction() == 1.0
x = torch.empty(5 * M, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
nested = torch.cuda.memory_stats_as_nested_dict()
assert stats["requested_bytes.all.current"] == nested["requested_bytes"]["all"]["current"] == 5 * M
assert torch.cuda.memory_allocated() <= torch.cuda.max_memory_allocated() <= torch.cuda.max_memory_reserved()
print("result", stats["requested_bytes.all.peak"], stats["allocation.all.current"], stats["num_ooms"])
free, total = torch.cuda.mem_get_info()
assert 0 < free < total
assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
assert torch.accelerator.max_memory_reserved() == torch.cuda.max_memory_reserved()
torch.accelerator.reset_peak_memory_stats()
torch.accelerator.empty_cache()
assert torch.accelerator.memory_stats()["allocation.all.current"] == 1
for text in (torch.cuda.memory_summary(), torch.cuda.memory_summary(abbreviated=True)):
    assert "Allocated memory" in text

torch.cuda.memory._record_memory_history(max_entries=1000)
def inner():
    return torch.empty(7 * M, dtype=torch.uint8, device="cuda")
y = inner()
z = inner()
del z
snapshot = torch.cuda.memory._snapshot()
blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
live = [b for b in blocks if b["state"] == "active_allocated"]
assert sorted(b["requested_size"] for b in live) == [5 * M, 7 * M], live
for s in snapshot["segments"]:
    at = s["address"]
    for b in s["blocks"]:
        assert b["address"] == at
        at += b["size"]
    assert at == s["address"] + s["total_size"]
assert sum(s["total_size"] for s in snapshot["segments"]) == torch.cuda.memory_reserved()
frames = [b["frames"] for b in live if b["requested_size"] == 7 * M][0]
actions = [e["action"] for e in snapshot["device_traces"][0] if not e["action"].startswith("segment")]
print("result", any(f["name"] == "inner" for f in frames), [a for a in actions if a != "snapshot"])
path = tempfile.mktemp()
torch.cuda.memory._dump_snapshot(path)
assert pickle.load(open(path, "rb"))["segments"]
torch.cuda.memory._record_memory_history(None)
assert torch.cuda.memory_snapshot()
del x, y

torch.cuda.set_per_process_memory_fraction(0.01)
assert abs(torch.cuda.get_per_process_memory_fraction() - 0.01) < 1e-6
seen = []
torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: seen.append((device, size)))
try:
    torch.empty(int(total * 0.02), dtype=torch.uint8, device="cuda")
    print("result no error")
except torch.OutOfMemoryError:
    print("result error", [device for device, size in seen], all(size >= int(total * 0.02) for device, size in seen))
torch.cuda.set_per_process_memory_fraction(1.0)
torch.cuda.empty_cache()
print("result", torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
""",
    )


@case
def torch_answers(suite):
    """What torch's memory functions answer and announce, as its own allocator does."""
    suite.same(
        "torch_answers",
        """
import json, re, torch
from torch.cuda import _gpu_trace
M = 2**20
total = torch.cuda.get_device_properties(0).total_memory
print("result", torch.cuda.get_allocator_backend())

x = torch.empty(1, device="cuda")
y = torch.empty(513, dtype=torch.uint8, device="cuda")
stats = torch.cuda.memory_stats()
print("result bytes", torch.cuda.memory_allocated(), stats["active_bytes.all.current"], stats["requested_bytes.all.current"])
syncs = stats["num_sync_all_streams"]
torch.cuda.empty_cache()
torch.cuda.empty_cache()
print("result syncs", torch.cuda.memory_stats()["num_sync_all_streams"] - syncs)

for fraction in (0.0, 0.25, 1.0, 0.5):
    torch.cuda.set_per_process_memory_fraction(fraction)
    print("result fraction", torch.cuda.get_per_process_memory_fraction())
for size in (total // 2, 1 << 62):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        words = re.sub(r"[0-9.]+ (GiB|MiB) is free.*", "", str(error).splitlines()[0], flags=re.S)
        print("result error", type(error).__name__, words)
torch.cuda.set_per_process_memory_fraction(1.0)

torch.cuda.memory._record_memory_history(context="all", stacks="python")
def holds():
    return torch.empty(40 * M, dtype=torch.uint8, device="cuda")
with torch.profiler.record_function("a scope"):
    z = holds()
del z
torch.cuda.empty_cache()
snapshot = torch.cuda.memory._snapshot()
entries = snapshot["device_traces"][0]
print("result actions", [e["action"] for e in entries if not e["action"].startswith(("segment", "snapshot"))])
names = lambda *actions: {f["name"] for e in entries if e["action"] in actions for f in e["frames"]}
print("result stacks", "holds" in names("alloc"), "empty_cache" in names("segment_free", "segment_unmap"), "empty_cache" in names("alloc"))
print("result annotations", [(a["name"], a["stage"]) for a in snapshot["external_annotations"]])
torch.cuda.memory._record_memory_history(None)

# A segment's stack is that of the block that has all of it; a block that is cut from it leaves none.
for size in (48, 12 << 20):
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(context="state", stacks="python")
    u = torch.empty(size, dtype=torch.uint8, device="cuda")
    print("result stacks of segments", {f["name"] for s in torch.cuda.memory._snapshot()["segments"] for f in s["frames"]} != set())
    torch.cuda.memory._record_memory_history(None)
    del u

requested = torch.cuda.memory_stats()["requested_bytes.all.allocated"]
torch.cuda.caching_allocator_enable(False)
w = torch.full((M,), 7, dtype=torch.uint8, device="cuda")
print("result without caching", torch.cuda.memory_stats()["requested_bytes.all.allocated"] - requested, int((w == 7).all()))
del w
torch.cuda.caching_allocator_enable(True)

with torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
    v = torch.empty(3 * M, dtype=torch.uint8, device="cuda")
    del v
sizes = [event.self_device_memory_usage for event in profile.key_averages() if event.key in ("aten::empty", "[memory]")]
print("result profiler", sorted(sizes))

heard = []
torch._C._activate_gpu_trace()
_gpu_trace.register_callback_for_memory_allocation(lambda ptr: heard.append(("alloc", ptr)))
_gpu_trace.register_callback_for_memory_deallocation(lambda ptr: heard.append(("free", ptr)))
u = torch.empty(5, device="cuda")
ptr = u.data_ptr()
del u
print("result trace", [(what, at == ptr) for what, at in heard])
""",
    )
