"""CUDA graphs: calls that are legal in a capture, private and shared pools, graphed callables, graph trees."""

import re

from checks.suite import Failed, case

LEGALITY = '''
import ctypes, threading, torch

class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]

class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]

x = torch.zeros(1000, device="cuda")
cu = ctypes.CDLL("libcuda.so.1")
size, word = ctypes.c_size_t, ctypes.c_uint64
granule = 2 << 20
properties, access = Properties(1, 1, Location(1, 0)), Access(Location(1, 0), 3)
finished, context = ctypes.c_void_p(), ctypes.c_void_p()
cu.cuEventCreate(ctypes.byref(finished), 2)
cu.cuEventRecord(finished, None)
torch.cuda.synchronize()
cu.cuCtxGetCurrent(ctypes.byref(context))

def map_and_unmap():
    addr, handle, fd = word(), word(), ctypes.c_int()
    return {
        "cuMemAddressReserve": cu.cuMemAddressReserve(ctypes.byref(addr), size(granule), size(0), word(0), word(0)),
        "cuMemCreate": cu.cuMemCreate(ctypes.byref(handle), size(granule), ctypes.byref(properties), word(0)),
        "cuMemMap": cu.cuMemMap(addr, size(granule), size(0), handle, word(0)),
        "cuMemSetAccess": cu.cuMemSetAccess(addr, size(granule), ctypes.byref(access), size(1)),
        "cuMemExportToShareableHandle": cu.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, word(0)),
        "cuMemUnmap": cu.cuMemUnmap(addr, size(granule)),
        "cuMemRelease": cu.cuMemRelease(handle),
        "cuMemAddressFree": cu.cuMemAddressFree(addr, size(granule)),
    }

def one(name, *arguments):
    """A probe of one call."""
    return lambda: {name.removesuffix("_v2"): getattr(cu, name)(*arguments)}

def stream_of():
    made = ctypes.c_void_p()
    cu.cuStreamCreate(ctypes.byref(made), 1)
    return made

def event_of():
    made = ctypes.c_void_p()
    cu.cuEventCreate(ctypes.byref(made), 2)
    return made

handle, number, total, pointer, old = ctypes.c_void_p(), ctypes.c_int(), size(), word(), torch.ones(1 << 20, device="cuda")
out, into, side, pool, host = ctypes.byref(handle), ctypes.byref(number), stream_of(), ctypes.c_void_p(), ctypes.c_void_p()
cu.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
cu.cuMemHostAlloc(ctypes.byref(host), size(4096), 0)
torch.cuda.synchronize()

def freed_event():
    return {"cuEventDestroy": cu.cuEventDestroy_v2(spare_events.pop())}
def freed_stream():
    return {"cuStreamDestroy": cu.cuStreamDestroy_v2(spare_streams.pop())}
def freed_host():
    return {"cuMemFreeHost": cu.cuMemFreeHost(spare_hosts.pop())}
def freed():
    return {"cuMemFree": cu.cuMemFree_v2(spare_blocks.pop())}
def pinned():
    made = ctypes.c_void_p()
    return {"cuMemHostAlloc": cu.cuMemHostAlloc(ctypes.byref(made), size(4096), 0)}
def pushed():
    return {"cuCtxPushCurrent": cu.cuCtxPushCurrent_v2(context), "cuCtxPopCurrent": cu.cuCtxPopCurrent_v2(out)}
def retained():
    return {"cuDevicePrimaryCtxRetain": cu.cuDevicePrimaryCtxRetain(out, 0)}

def spare(make, count=8):
    made = []
    for _ in range(count):
        made.append(make())
    return made
def host_of():
    made = ctypes.c_void_p()
    cu.cuMemHostAlloc(ctypes.byref(made), size(4096), 0)
    return made
def block_of():
    made = word()
    cu.cuMemAlloc_v2(ctypes.byref(made), size(granule))
    return made
spare_events, spare_streams, spare_hosts, spare_blocks = spare(event_of), spare(stream_of), spare(host_of), spare(block_of)

probes = [
    map_and_unmap, freed_event, freed_stream, freed_host, freed, pinned, pushed, retained,
    one("cuMemGetInfo_v2", ctypes.byref(total), ctypes.byref(size())),
    one("cuEventCreate", ctypes.byref(ctypes.c_void_p()), 2),
    one("cuEventRecord", finished, side),
    one("cuEventQuery", finished),
    one("cuEventSynchronize", finished),
    one("cuStreamCreate", ctypes.byref(ctypes.c_void_p()), 1),
    one("cuStreamQuery", side),
    one("cuStreamSynchronize", side),
    one("cuStreamGetCtx", side, out),
    one("cuStreamIsCapturing", side, into),
    one("cuMemAlloc_v2", ctypes.byref(word()), size(granule)),
    one("cuMemcpyDtoHAsync_v2", host, word(old.data_ptr()), size(4096), side),
    one("cuMemcpyHtoDAsync_v2", word(old.data_ptr()), host, size(4096), side),
    one("cuMemcpyDtoH_v2", host, word(old.data_ptr()), size(4096)),
    one("cuMemGetAllocationGranularity", ctypes.byref(total), ctypes.byref(properties), 0),
    one("cuDeviceGetDefaultMemPool", ctypes.byref(ctypes.c_void_p()), 0),
    one("cuMemPoolGetAttribute", pool, 5, ctypes.byref(pointer)),
    one("cuPointerGetAttribute", ctypes.byref(number), 9, word(old.data_ptr())),
    one("cuCtxGetCurrent", out),
    one("cuCtxGetDevice", into),
    one("cuDeviceGet", into, 0),
    one("cuDeviceGetAttribute", into, 75, 0),
    one("cuDevicePrimaryCtxGetState", 0, ctypes.byref(ctypes.c_uint()), into),
    one("cuDeviceCanAccessPeer", into, 0, 0),
    one("cuCtxSynchronize"),
]

def in_thread(probe):
    found = {}
    def run():
        cu.cuCtxSetCurrent(context)
        found.update(probe())
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found

for mode in ("global", "thread_local", "relaxed"):
    for thread in ("capturing", "other"):
        for probe in probes:
            graph, captured, found = torch.cuda.CUDAGraph(), "yes", {}
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    graph.capture_begin(capture_error_mode=mode)
                    x.add_(1)
                    found = probe() if thread == "capturing" else in_thread(probe)
                    graph.capture_end()
            except Exception:
                captured = "no"
            torch.cuda.synchronize()
            for call, code in found.items():
                print(f"legal {mode} {thread} {call} {code} {captured}")
'''


@case
def capture_legality(suite):
    """Which driver calls are legal while a stream is captured, in each mode, from each thread."""
    out = suite.run(suite.script("legality", LEGALITY)).stdout
    rows = re.findall(r"^legal (\S+) (\S+) (\S+) (\d+) (\S+)$", out, re.M)
    illegal = sorted({f"{call} ({mode}, {thread} thread)" for mode, thread, call, code, captured in rows if code != "0" or captured == "no"})
    suite.figure("capture: calls tried", str(len(rows)))
    suite.figure("capture: not legal", ", ".join(illegal) or "none")
    # What the hook calls whenever it serves a request or a free, or reads how much is in use.
    needed = {
        "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemGetInfo", "cuEventCreate", "cuEventRecord", "cuEventDestroy",
        "cuStreamGetCtx", "cuStreamIsCapturing", "cuCtxGetDevice", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuDevicePrimaryCtxGetState", "cuDeviceGet",
    }
    broken = [row for row in illegal if row.split()[0] in needed]
    if len(rows) != 6 * 41 or broken:
        raise Failed(f"growth in a capture needs {broken}\n{out[-2000:]}")


@case
def graph_pools(suite):
    """Graphs with private and shared pools, replayed after other allocations; reset releases memory."""
    directory, _ = suite.same(
        "graph_pools",
        """
import gc, torch
torch.manual_seed(0)
weights = [torch.randn(512, 512, device="cuda") / 23 for _ in range(4)]

def work(x):
    for w in weights:
        x = torch.relu(x @ w) + x * 0.5
        big = x.repeat(16, 1)  # made and freed in the capture
        x = x + big[:x.shape[0]] * 0.25
    return x

def capture(rows, pool=None):
    x = torch.zeros(rows, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        y = work(x)
    return graph, x, y

def check(graphs, what):
    for graph, x, y in graphs:
        torch.manual_seed(x.shape[0])
        data = torch.randn_like(x)
        noise = [torch.full((1 << k,), -7.0, device="cuda") for k in range(8, 24)]  # must not be the graphs' memory
        x.copy_(data)
        graph.replay()
        assert all(bool((n == -7).all()) for n in noise), what
        want = work(data)
        print("result", what, x.shape[0], float(y.double().sum()), bool(torch.equal(y, want)))

private = [capture(rows) for rows in (8, 64, 256)]
check(private, "private")
first = capture(256)
shared = [first] + [capture(rows, first[0].pool()) for rows in (128, 64, 16)]
check(shared[-1:], "shared")
check(private, "private again")
del shared[1:]
gc.collect()
check(private, "after a reset")
for graph, x, y in private:
    graph.reset()
first[0].reset()
before = torch.cuda.memory_reserved()
del private, first, shared, graph, x, y
gc.collect()
torch._C._cuda_clearCublasWorkspaces()  # made in the first capture, kept by its stream
torch.cuda.synchronize()
torch.cuda.empty_cache()
after = torch.cuda.memory_reserved()
assert after < before, (before, after)
""",
    )
    count = suite.count(directory, "pool_release")
    if count is not None and count < 4:
        raise Failed(f"{count} arenas of pools were released, at least 4 expected")


@case
def graphed_callables(suite):
    suite.same(
        "graphed_callables",
        """
import torch
torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
head = torch.nn.Linear(256, 10).cuda()
model = torch.cuda.make_graphed_callables(model, (torch.randn(64, 256, device="cuda"),))
optimizer = torch.optim.SGD(list(model.parameters()) + list(head.parameters()), lr=0.01)
for i in range(10):
    torch.manual_seed(i)
    x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
    loss = torch.nn.functional.cross_entropy(head(model(x)), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    garbage = [torch.empty(1 << k, device="cuda") for k in range(10, 24)]
    print("result", i, float(loss))
""",
    )


@case
def graph_trees(suite):
    """torch.compile(mode="reduce-overhead"): paths that diverge after a common start, training and inference."""
    directory, _ = suite.same(
        "graph_trees",
        """
import torch
torch.manual_seed(0)

@torch.compile(mode="reduce-overhead")
def start(x):
    return torch.relu(x @ x.t()) + 1

@torch.compile(mode="reduce-overhead")
def left(x):
    return (x @ x).sin() * 2

@torch.compile(mode="reduce-overhead")
def right(x):
    return torch.cat([x, x + 1]).cos()

def run(paths):
    for step, path in enumerate(paths):
        torch.compiler.cudagraph_mark_step_begin()
        torch.manual_seed(step)
        x = torch.randn(256, 256, device="cuda") / 16
        y = start(x)
        for letter in path:
            y = left(y) / 100 if letter == "l" else right(y)[:256]
        noise = torch.full((1 << 22,), 3.0, device="cuda")
        print("result", step, path, float(y.double().sum()))
        assert bool((noise == 3).all())

with torch.no_grad():
    run(["l", "l", "l", "r", "r", "r", "lr", "lr", "lr", "rl", "rl", "l", "r", "lrl", "lrl", "lrl", "l", "rr", "rr", "rr", "lr"])

model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.AdamW(model.parameters())
for i in range(8):
    torch.manual_seed(i)
    x, y = torch.randn(32, 128, device="cuda"), torch.randint(10, (32,), device="cuda")
    loss = torch.nn.functional.cross_entropy(compiled(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("result", "train", i, float(loss))
""",
    )
    count = suite.count(directory, "restore")
    if count is not None:
        suite.figure("graph trees: blocks restored from checkpoints", str(count))
        if count == 0:
            raise Failed("no restore in the trace: the paths never went back to a checkpoint")
