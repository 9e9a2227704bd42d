"""Graph memory: its size in any order of captures, and the results of replays."""

import re

from checks.suite import Failed, alone, case, number

# A transformer's MLP blocks in half precision, captured at several numbers of rows.
MODEL = '''
import os, random, sys, time
sys.path.append(os.environ["MEMPROF_PYTHON"])  # for the runs that are not recorded
import torch, memprof
torch.manual_seed(0)
M = 2**20
SIZES = (4096, 2048, 1024, 512, 64, 8, 1)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

model = torch.nn.Sequential(*[Block(1024) for _ in range(4)]).half().cuda().eval()
torch.set_grad_enabled(False)
inputs = torch.randn(SIZES[0], 1024, dtype=torch.half, device="cuda")
capture_stream = torch.cuda.Stream()

def warm():
    capture_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(capture_stream):
        for size in SIZES:
            model(inputs[:size])
    torch.cuda.current_stream().wait_stream(capture_stream)
    torch.cuda.synchronize()

def capture(pool, size, **options):
    graph = torch.cuda.CUDAGraph()
    with pool.shape("rows%d" % size, **options) as shape:
        with torch.cuda.graph(graph, stream=capture_stream):
            out = shape.output(model(inputs[:size]))
    return graph, shape, out
'''


def output_of(suite, name, text):
    """Runs a script with memprof's allocator. Returns what it printed."""
    directory, done = suite.record(name, suite.script(name, MODEL + text))
    if "done" not in done.stdout.split():
        raise Failed(f"the script did not come to its end:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    suite.verified(directory)
    return done.stdout


SIZE = """
warm()
def all_of(order):
    pool = memprof.GraphMemory()
    steps, kept = [], []
    for size in order:
        kept.append(capture(pool, size))
        steps.append(pool.physical)
    extents = {size: shape.extent for size, (_, shape, _) in zip(order, kept)}
    for graph, shape, out in kept:
        shape.reset()
    assert pool.usage()["ranges"] == 0 and pool.physical == 0, pool.usage()
    pool.close()
    return steps, extents

alone = all_of(SIZES[:1])[0][-1]
print("alone", alone)
shuffled = list(SIZES)
random.Random(1).shuffle(shuffled)
for name, order in (("largest first", SIZES), ("smallest first", SIZES[::-1]), ("random", shuffled)):
    steps, extents = all_of(order)
    print("order", name.replace(" ", "-"), steps[-1], sum(extents.values()))
    assert steps[-1] == alone, (name, steps, alone)
    if name == "largest first":
        assert set(steps) == {alone}, steps
        for size in SIZES:
            print("extent", size, extents[size])
print("done")
"""

POOLS = """
copies = torch.empty_like(inputs)
def pools(order, shared, copied):
    # Bytes of torch's pools while all graphs are alive: one pool for all sizes, or one for each.
    warm()  # the workspaces were freed with the graphs before
    torch.cuda.empty_cache()
    kept, owners = [], {}
    for size in order:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=kept[0][0].pool() if shared and kept else None, stream=capture_stream):
            out = model(inputs[:size])
            if copied:
                out = copies[:size].copy_(out)
        kept.append((graph, out))
        owners.setdefault(tuple(graph.pool()), size)
    taken = dict.fromkeys(owners.values(), 0)
    for segment in torch.cuda.memory_snapshot():
        pool = tuple(segment["segment_pool_id"])
        if pool in owners:
            taken[owners[pool]] += segment["total_size"]
    graphs = [graph for graph, _ in kept]
    del out, kept
    for graph in graphs:
        graph.reset()
    return taken

for outputs in ("kept", "copied"):
    apart = pools(SIZES, False, outputs == "copied")
    for size, taken in apart.items():
        print("private", outputs, size, taken)
    for name, order in (("largest", SIZES), ("smallest", SIZES[::-1])):
        print("shared", outputs, name, *pools(order, True, outputs == "copied").values())
print("done")
"""


def private_pools(suite, ours):
    """Keeps figures of torch's own pools. Returns the bytes of a private pool of each size, with its output."""
    out = suite.run(suite.script("graph_memory_pools", MODEL + POOLS)).stdout
    private = {}
    for outputs in ("kept", "copied"):
        private[outputs] = {int(size): int(taken) for size, taken in re.findall(rf"^private {outputs} (\d+) (\d+)$", out, re.M)}
        shared = {name: int(taken) for name, taken in re.findall(rf"^shared {outputs} (\S+) (\d+)$", out, re.M)}
        separate, largest = sum(private[outputs].values()), max(private[outputs].values())
        sizes = (separate, shared["largest"], shared["smallest"], largest)
        suite.figure(f"graph memory, torch's pools, outputs {outputs}: separate; shared largest first; smallest first; the largest alone",
                     "; ".join(f"{size / 2**20:.0f}" for size in sizes) + " MiB", "ours: " + ours)
        if not separate > max(shared.values()):
            raise Failed(f"outputs {outputs}: pools of their own take {separate} bytes, shared ones {shared}")
    return private["kept"]


@alone
def graph_memory_size(suite):
    """As large as the largest shape alone, in every order; no more than a private pool."""
    out = output_of(suite, "graph_memory_size", SIZE)
    largest = int(number(r"^alone (\d+)$", out))
    private = private_pools(suite, f"{largest / 2**20:.0f} MiB")
    orders = re.findall(r"^order (\S+) (\d+) (\d+)$", out, re.M)
    if len(orders) != 3:
        raise Failed(f"{len(orders)} orders were captured, 3 expected")
    for name, physical, total in orders:
        suite.figure(f"graph memory, {name}: physical; sum of the shapes", f"{int(physical) / 2**20:.0f}; {int(total) / 2**20:.0f} MiB",
                     f"{largest / 2**20:.0f} MiB, the largest alone")
    extents = {int(size): int(extent) for size, extent in re.findall(r"^extent (\d+) (\d+)$", out, re.M)}
    suite.figure("graph memory: ranges, largest first", " ".join(f"{e / 2**20:.0f}" for e in extents.values()) + " MiB",
                 " ".join(f"{private[size] / 2**20:.0f}" for size in extents) + " MiB, torch's private pools")
    larger = {size: (extent, private[size]) for size, extent in extents.items() if extent > private[size]}
    if larger:
        raise Failed(f"ranges larger than torch's private pool for the same capture, rows: (bytes, torch's): {larger}")


REPLAYS = """
warm()
pool = memprof.GraphMemory()
order = list(SIZES)
random.Random(2).shuffle(order)
graphs = {size: capture(pool, size) for size in order}
contents = [torch.randn_like(inputs) for _ in range(4)]
want = {}
capture_stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(capture_stream):  # eager work with the same workspaces
    for i, content in enumerate(contents):
        for size in SIZES:
            want[i, size] = model(content[:size])
torch.cuda.current_stream().wait_stream(capture_stream)
wrong = torch.zeros((), dtype=torch.int64, device="cuda")
different = torch.zeros((), dtype=torch.int64, device="cuda")
choice = random.Random(3)
for turn in range(10_000):
    if turn % 50 == 0:
        i = choice.randrange(len(contents))
        inputs.copy_(contents[i])
    size = choice.choice(SIZES[3:] if turn % 10 else SIZES)
    graph, shape, out = graphs[size]
    out.fill_(-1)
    graph.replay()
    different += (out != want[i, size]).any()
    wrong += ~torch.isclose(out, want[i, size], rtol=1e-2, atol=1e-2).all()
print("replays 10000 wrong", int(wrong), "not_bit_identical", int(different))
assert int(wrong) == 0
print("done")
"""


@case
def graph_memory_replays(suite):
    """10,000 replays in random alternation give what eager execution gives."""
    out = output_of(suite, "graph_memory_replays", REPLAYS)
    different = int(number(r"not_bit_identical (\d+)$", out))
    suite.figure("graph memory: of 10,000 replays that differ from eager in any bit", str(different))


ALIAS = """
pool = memprof.GraphMemory()
words = 3 * M
value = torch.zeros((), device="cuda")

def writer(name):
    graph = torch.cuda.CUDAGraph()
    with pool.shape(name) as shape:
        with torch.cuda.graph(graph):
            block = torch.empty(words, device="cuda")
            block.copy_(value.expand(words))
            address = block.data_ptr()
            del block
    return graph, address

def reader(name):
    graph = torch.cuda.CUDAGraph()
    with pool.shape(name) as shape:
        with torch.cuda.graph(graph):
            block = torch.empty(words, device="cuda")  # what is there
            address = block.data_ptr()
            seen = shape.output(block)
            del block
    return graph, address, seen

write, first = writer("writer")
read, second, seen = reader("reader")
again, third = writer("late writer")
addresses = {first, second, third}
assert len(addresses) == 3, addresses
for i in range(20):
    value.fill_(i + 0.5)
    (write if i % 2 else again).replay()
    value.fill_(-1)
    read.replay()
    assert bool((seen == i + 0.5).all()), (i, seen[:4].tolist())
assert pool.usage()["ranges"] == 3
print("one memory", pool.physical)
print("done")
"""


@case
def graph_memory_alias(suite):
    """Content that one graph writes through its range is read by another through another range."""
    out = output_of(suite, "graph_memory_alias", ALIAS)
    physical = int(number(r"^one memory (\d+)$", out))
    if not 12 * 2**20 <= physical <= 20 * 2**20:
        raise Failed(f"three ranges with one block of 12 MiB each take {physical / 2**20:.0f} MiB of the device")


SIDE_BY_SIDE = """
import copy
FAMILIES = {"decode": (8, 64, 1), "prefill": (512, 4096, 1024)}
made = []
for index in range(torch.cuda.device_count()):
    with torch.cuda.device(index):
        local, rows, stream = copy.deepcopy(model).to(index), inputs.to(index), torch.cuda.Stream(index)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            local(rows)
        torch.cuda.synchronize()
        memories = {name: memprof.GraphMemory(device=index) for name in FAMILIES}
        for turn in range(3):  # each memory in turn
            for name, memory in memories.items():
                size, graph = FAMILIES[name][turn], torch.cuda.CUDAGraph()
                with memory.shape("rows%d" % size) as shape:
                    with torch.cuda.graph(graph, stream=stream):
                        out = shape.output(local(rows[:size]))
                made.append((index, graph, out, local, rows[:size], memory))
        print("physical", index, *[memory.physical for memory in memories.values()])
for _ in range(3):
    for index, graph, out, local, rows, memory in random.sample(made, len(made)):
        with torch.cuda.device(index):
            graph.replay()
            torch.testing.assert_close(out, local(rows), rtol=1e-2, atol=1e-2)
print("done")
"""


@case
def graph_memory_side_by_side(suite):
    """Two graph memories on each device, each for its own shapes: none uses the memory of another."""
    gpus = suite.gpus()
    out = output_of(suite, "graph_memory_side_by_side", SIDE_BY_SIDE)
    sizes = {int(index): (int(decode), int(prefill)) for index, decode, prefill in re.findall(r"^physical (\d+) (\d+) (\d+)$", out, re.M)}
    suite.figure("graph memory: of decode and prefill, by device", ", ".join(f"{d >> 20}; {p >> 20} MiB" for d, p in sizes.values()))
    if len(sizes) != gpus or len(set(sizes.values())) != 1 or not 0 < sizes[0][0] < sizes[0][1]:
        raise Failed(f"on {gpus} devices {sizes}")


LIFE = """
warm()
pool = memprof.GraphMemory()
kept = {size: capture(pool, size) for size in (512, 4096, 1024)}
with_largest = pool.physical
second = kept[1024][1].extent
torch.cuda.synchronize()
before = torch.cuda.mem_get_info()[0]
kept[4096][1].reset()
given = torch.cuda.mem_get_info()[0] - before
assert pool.physical == second < with_largest, (pool.physical, second, with_largest)
assert given >= with_largest - second, (given, with_largest, second)
print("given back", given, "expected", with_largest - second)
graph, shape, out = kept[1024]
want = model(inputs[:1024])
graph.replay()
torch.testing.assert_close(out, want, rtol=1e-2, atol=1e-2)

# The error names the tensors that are live in the range when its shape ends.
graph = torch.cuda.CUDAGraph()
try:
    with pool.shape("careless"):
        with torch.cuda.graph(graph, stream=capture_stream):
            logits = model(inputs[:64])
except memprof.GraphMemoryError as error:
    assert len(error.blocks) == 1 and "float16 [64, 1024]" in str(error), str(error)
    print("named:", str(error).splitlines()[-1].strip())
else:
    raise SystemExit("no error for an output that lives in the range")
del logits
graph.reset()
torch.cuda.empty_cache()
assert "careless" not in pool.shapes and pool.usage()["ranges"] == 2, pool.usage()

# Pieces of a shape, with a tensor between them, and inputs at the size of the largest.
buffers = pool.persistent(tokens=((4096, 1024), torch.half), logits=((4096, 1024), torch.half))
first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
tokens = buffers.slices(96).tokens
with pool.shape("pieces", outputs=[buffers.logits]) as shape:
    with torch.cuda.graph(first, stream=capture_stream):
        between = model[:2](tokens)
    with torch.cuda.graph(second, stream=capture_stream):
        logits = shape.output(model[2:](between))
    del between
data = torch.randn(90, 1024, dtype=torch.half, device="cuda")
sliced = buffers.update(96, tokens=data)
assert logits.data_ptr() == buffers.logits.data_ptr() and bool((sliced.tokens[90:] == 0).all())
first.replay(); second.replay()
torch.testing.assert_close(logits[:90], model(data), rtol=1e-2, atol=1e-2)

# The reset of one graph frees cuBLAS's workspaces of its stream; those in use by other graphs must stay.
for size in (8, 64):
    capture(pool, size)[1].reset()
torch._C._cuda_clearCublasWorkspaces()
torch.cuda.empty_cache()
noise = [torch.full((1 << k,), -7.0, device="cuda") for k in range(10, 26)]
graph, shape, out = kept[1024]
for _ in range(20):
    graph.replay()
assert all(bool((n == -7).all()) for n in noise)
torch.testing.assert_close(out, model(inputs[:1024]), rtol=1e-2, atol=1e-2)

checked = memprof.GraphMemory(check=True)
big = [torch.cuda.CUDAGraph() for _ in range(2)]
for i, graph in enumerate(big):
    with checked.shape("long%d" % i):
        with torch.cuda.graph(graph, stream=capture_stream):
            for _ in range(20):
                model(inputs)
streams = [torch.cuda.Stream(), torch.cuda.Stream()]
torch.cuda.synchronize()
with torch.cuda.stream(streams[0]):
    big[0].replay()
streams[1].wait_stream(streams[0])
with torch.cuda.stream(streams[1]):
    big[1].replay()
torch.cuda.synchronize()
try:
    with torch.cuda.stream(streams[0]):
        big[0].replay()
    with torch.cuda.stream(streams[1]):
        big[1].replay()
except memprof.GraphMemoryError as error:
    assert "long1" in str(error) and "long0" in str(error), str(error)
    print("named:", error)
else:
    raise SystemExit("two replays in flight were not noticed")
torch.cuda.synchronize()
print("done")
"""


@alone
def graph_memory_life(suite):
    """Reset releases memory; errors name live tensors and overlapping replays; pieces, buffers, workspaces."""
    output_of(suite, "graph_memory_life", LIFE)
