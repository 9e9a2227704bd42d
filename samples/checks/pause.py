"""Memory that is paused and resumed at fixed addresses."""

from checks.suite import Failed, alone, number


@alone
def pause_and_resume(suite):
    """Addresses stay, all pages are released, content is kept, graphs replay."""
    job = suite.script(
        "pause",
        """
import torch, memprof
M = 2**20
free = lambda: torch.cuda.mem_get_info()[0]
with memprof.region("kv"):
    kv = torch.full((512 * M,), 3, dtype=torch.uint8, device="cuda")
with memprof.region("weights", backup="host"):
    weights = [torch.randn(1000 + 37 * i, 1000, device="cuda") for i in range(20)]
    model = torch.nn.Linear(512, 512).cuda()
want = [w.double().sum() for w in weights]
x = torch.randn(64, 512, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    model(x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    y = model(x) * kv[:512].float()
graph.replay()
torch.cuda.synchronize()
before_y, pointers = y.clone(), [kv.data_ptr()] + [w.data_ptr() for w in weights]
# The driver allocates tables on the device for the pinned memory of the first backup.
memprof.pause("weights")
memprof.resume("weights")
before = free()
memprof.pause("kv")
assert free() - before == 512 * M, free() - before
memprof.pause("weights")
paused = free() - before
usage = memprof.usage()
assert paused == usage["kv"]["paused"] + usage["weights"]["paused"], (paused, usage)
filler = torch.full((paused // 4,), -1.0, device="cuda")
del filler
torch.cuda.empty_cache()
memprof.resume("weights", "kv")
assert [kv.data_ptr()] + [w.data_ptr() for w in weights] == pointers
assert all(bool(w.double().sum() == s) for w, s in zip(weights, want))
kv.fill_(3)
y.zero_()
graph.replay()
assert bool(torch.equal(y, before_y))
for wrong in (lambda: memprof.resume("kv"), lambda: memprof.pause("nobody")):
    try:
        wrong()
    except memprof.PauseError as error:
        print("refused:", error)
    else:
        raise SystemExit("no error")
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    try:
        memprof.pause("kv")
    except memprof.PauseError as error:
        assert error.code == memprof.PauseError.IN_CAPTURE
    x + 1
with memprof.region("kv"):
    x = torch.randn(1000, 1000, device="cuda", requires_grad=True)
    (x * x).sum().backward()
live = memprof.usage()["kv"]["live"]
assert live >= 512 * M + 8_000_000, live  # the gradient was made on autograd's thread
print("done")
""",
    )
    directory, done = suite.record("pause", job)
    if "done" not in done.stdout:
        raise Failed(done.stdout)
    suite.verified(directory)
    transitions = suite.report(directory)["processes"][0]["devices"][0]["transitions"]
    if sum(not t["failed"] for t in transitions) < 4:
        raise Failed(f"transitions {transitions}")


@alone
def pause_cycles(suite):
    """A thousand random steps over four tags: content holds, and nothing leaks."""
    job = suite.script(
        "cycles",
        """
import random, resource, torch, memprof
random.seed(3)
tags = {name: {"paused": False, "blocks": []} for name in "abcd"}

def step(number):
    name = random.choice("abcd")
    tag = tags[name]
    action = random.random()
    if tag["paused"] and action < 0.4:
        memprof.resume(name)
        tag["paused"] = False
    elif not tag["paused"] and tag["blocks"] and action < 0.3:
        memprof.pause(name)
        tag["paused"] = True
    elif action < 0.65 and len(tag["blocks"]) < 12:
        with memprof.region(name, backup="host"):
            block = torch.full((random.randrange(1, 4 << 20),), number, dtype=torch.int32, device="cuda")
        # Allocated while its tag is paused, it lies in an arena of its own, resident until the next pause.
        tag["blocks"].append((block, number))
    elif tag["blocks"]:
        tag["blocks"].pop(random.randrange(len(tag["blocks"])))
    if not tag["paused"]:
        for block, value in tag["blocks"]:
            assert bool((block == value).all()), (number, name)

def clear():
    for name, tag in tags.items():
        if tag["paused"]:
            memprof.resume(name)
            tag["paused"] = False
        for block, value in tag["blocks"]:
            assert bool((block == value).all()), name
        tag["blocks"].clear()
    del block
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    mappings = sum(1 for line in open("/proc/self/maps"))
    return torch.cuda.mem_get_info()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, mappings

# Before counting begins, kernels are loaded and pinned memory for the largest backup is allocated.
for number in range(500): step(number)
start = clear()
for number in range(500, 1500): step(number)
end = clear()
print("device", start[0] - end[0] >> 20, "host", end[1] - start[1] >> 10, "mappings", end[2] - start[2], "reserved", torch.cuda.memory_reserved() >> 20)
assert start[0] - end[0] <= 4 << 20, (start, end)
assert end[2] - start[2] <= 16, (start, end)
assert torch.cuda.memory_reserved() == 0
""",
    )
    directory, done = suite.record("cycles", job)
    suite.figure("a thousand steps over four tags: growth of device and host memory in MiB, and of mappings", done.stdout.strip())
    suite.verified(directory)


@alone
def pause_in_pieces(suite):
    """Fragmented memory is backed up within the limit; a resume unmaps free memory elsewhere, and says what has the rest."""
    job = suite.script(
        "pieces",
        """
import torch, memprof
M = 2**20
with memprof.region("weights", backup="host"):
    parts = [torch.full((4 * M,), i, dtype=torch.uint8, device="cuda") for i in range(200)]
parts = parts[1::2]  # 400 MiB in 100 pieces
good = lambda: all(bool((part == 2 * i + 1).all()) for i, part in enumerate(parts))
memprof.pause("weights")
copied = memprof.usage()["weights"]["copied"]
assert 400 * M <= copied <= 500 * M, copied
memprof.resume("weights")
assert good()
memprof.pause("weights")
idle = torch.empty(torch.cuda.mem_get_info()[0] - 256 * M, dtype=torch.uint8, device="cuda")
try:
    memprof.resume("weights")
except memprof.PauseError as error:
    assert error.code == error.NO_MEMORY, error
    print("refused:", error)
else:
    raise SystemExit("resumed without memory")
del idle  # and is kept by the allocator
memprof.resume("weights")
assert good()
print("done")
""",
    )
    directory, done = suite.record("pieces", job, "--backup-limit", "1GiB")
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused:")]
    if "done" not in done.stdout or "requests of no tag" not in refused[0]:
        raise Failed(done.stdout)
    suite.verified(directory)


BARE = """
import ctypes, time, torch

class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location), ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]

class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]

torch.zeros(1, device="cuda")
cu = ctypes.CDLL("libcuda.so.1")
size, word = ctypes.c_size_t, ctypes.c_uint64
handle_bytes = 256 << 20
properties, access = Properties(1, 1, Location(1, 0)), Access(Location(1, 0), 3)

def demand(code):
    assert code == 0, code

def cycle(gib):
    total = gib << 30
    base, handles = word(), [word() for _ in range(total // handle_bytes)]
    demand(cu.cuMemAddressReserve(ctypes.byref(base), size(total), size(0), word(0), word(0)))
    start = time.perf_counter()
    for i, handle in enumerate(handles):
        demand(cu.cuMemCreate(ctypes.byref(handle), size(handle_bytes), ctypes.byref(properties), word(0)))
        demand(cu.cuMemMap(word(base.value + i * handle_bytes), size(handle_bytes), size(0), handle, word(0)))
    demand(cu.cuMemSetAccess(base, size(total), ctypes.byref(access), size(1)))
    resumed = time.perf_counter() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    torch.cuda.synchronize()
    for i in range(len(handles)):
        demand(cu.cuMemUnmap(word(base.value + i * handle_bytes), size(handle_bytes)))
    for handle in handles:
        demand(cu.cuMemRelease(handle))
    paused = time.perf_counter() - start
    demand(cu.cuMemAddressFree(base, size(total)))
    return paused, resumed

for gib in (4, 32):
    times = [cycle(gib) for _ in range(5)]
    print(f"bare {gib} GiB pause {min(t[0] for t in times) * 1e3:.3f} ms resume {min(t[1] for t in times) * 1e3:.3f} ms")
x = torch.ones(8 << 30, dtype=torch.uint8, device="cuda")
host = torch.empty(8 << 30, dtype=torch.uint8, pin_memory=True)
for name, copy in (("out", lambda: host.copy_(x, non_blocking=True)), ("in", lambda: x.copy_(host, non_blocking=True))):
    best = 1e9
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        copy()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    print(f"bare copy {name} {8 / best:.2f} GiB/s")
"""

OURS = """
import time, torch, memprof

def timed(call, *arguments):
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start

for gib in (4, 32):
    tag = f"t{gib}"
    with memprof.region(tag):
        x = torch.empty(gib << 30, dtype=torch.uint8, device="cuda")
    times = [(timed(memprof.pause, tag), timed(memprof.resume, tag)) for _ in range(6)]
    print(f"ours {gib} GiB pause {min(t[0] for t in times) * 1e3:.3f} ms resume {min(t[1] for t in times) * 1e3:.3f} ms")
    del x
    torch.cuda.empty_cache()
with memprof.region("kept", backup="host"):
    x = torch.ones(8 << 30, dtype=torch.uint8, device="cuda")
first = timed(memprof.pause, "kept"), timed(memprof.resume, "kept")
times = [(timed(memprof.pause, "kept"), timed(memprof.resume, "kept")) for _ in range(3)]
assert bool((x == 1).all())
print(f"ours copy out {8 / min(t[0] for t in times):.2f} GiB/s first {8 / first[0]:.2f} GiB/s")
print(f"ours copy in {8 / min(t[1] for t in times):.2f} GiB/s first {8 / first[1]:.2f} GiB/s")
"""


@alone
def pause_speed(suite):
    """Pause and resume compared with bare driver calls, copies compared with a bare pinned copy."""
    bare = suite.run(suite.script("bare_pause", BARE)).stdout
    _, done = suite.record("pause_speed", suite.script("our_pause", OURS))
    ours, slow = done.stdout, []
    for gib in (4, 32):
        for what in ("pause", "resume"):
            pattern = rf"{gib} GiB .*?{what} (\S+) ms"
            a, b = number("^ours " + pattern, ours), number("^bare " + pattern, bare)
            suite.figure(f"{what} of {gib} GiB, ours / bare driver calls on 256 MiB handles", f"{a / b:.2f} ({a:.2f} / {b:.2f} ms)", "1.3")
            slow += [f"{what} {gib}"] if a > 1.3 * b else []
    for way in ("out", "in"):
        a, b, first = (number(p, t) for p, t in ((rf"^ours copy {way} (\S+)", ours), (rf"^bare copy {way} (\S+)", bare), (rf"^ours copy {way} .* first (\S+)", ours)))
        suite.figure(f"backup, copy {way}, ours / bare pinned copy", f"{a / b:.2f} ({a:.1f} / {b:.1f} GiB/s; the first time {first:.1f})", "0.80")
        slow += ["copy " + way] if a < 0.8 * b else []
    if slow:
        raise Failed("over budget: " + ", ".join(slow))


@alone
def weights_to_another_process(suite):
    """15 GiB of weights handed to another process and copied into place there, without the host."""
    job = suite.script(
        "handover",
        """
import time, torch, memprof
import torch.multiprocessing as mp

def engine(inbox, outbox):
    torch.zeros(1, device="cuda")
    with memprof.region("weights"):
        mine = [torch.empty(256 << 20, dtype=torch.float32, device="cuda") for _ in range(15)]
    outbox.put("ready")
    start, shared, addresses = inbox.get()
    with memprof.attach(shared) as weights:
        for to, (address, shape) in zip(mine, addresses):
            to.copy_(torch.as_tensor(weights.array(address, shape, "<f4"), device="cuda"))
        torch.cuda.synchronize()
    outbox.put((time.monotonic() - start, [float(w[0]) for w in mine], [float(w[-1]) for w in mine]))

if __name__ == "__main__":
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=engine, args=(inbox, outbox))
    child.start()
    with memprof.region("trainer"):
        weights = [torch.full((256 << 20,), float(i), device="cuda") for i in range(15)]
    torch.cuda.synchronize()
    assert outbox.get(timeout=120) == "ready"
    start = time.monotonic()
    inbox.put((start, memprof.share("trainer"), [(w.data_ptr(), tuple(w.shape)) for w in weights]))
    took, first, last = outbox.get(timeout=120)
    child.join()
    assert first == last == [float(i) for i in range(15)], (first, last)
    print(f"handed over in {took:.3f} s")
""",
    )
    directory, done = suite.record("handover", job)
    took = number(r"^handed over in (\S+) s$", done.stdout)
    suite.figure("15 GiB of weights handed over and copied into place", f"{took:.3f} s", "0.5")
    suite.verified(directory)
    if took > 0.5:
        raise Failed(f"{took} s")
