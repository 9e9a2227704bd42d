"""The cost of graph memory: replays, captures, resets."""

import re

from checks.graph_memory import output_of
from checks.suite import Failed, alone, number

COST = '''
warm()
def median_replay(graph, rounds=200):
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(9):
        begin.record()
        for _ in range(rounds):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / rounds)
    return sorted(times)[len(times) // 2]

pool = memprof.GraphMemory()
for size in (64, 1024):
    ours, shape, out = capture(pool, size)
    plain = torch.cuda.CUDAGraph()
    with torch.cuda.graph(plain, stream=capture_stream):
        y = torch.empty_like(inputs[:size])
        y.copy_(model(inputs[:size]))
    a, b = [], []
    for _ in range(3):
        a.append(median_replay(ours))
        b.append(median_replay(plain))
    print("replay", size, min(a), min(b))
    plain.reset()
    shape.reset()
pool.close()

x = torch.zeros(1024, device="cuda")
x.add_(torch.empty_like(x).fill_(1)[-1024:])  # kernels are loaded outside of captures

def touching(pool, name, pages):
    """A graph that writes a block of so many pages from end to end, and adds a part of it to x."""
    graph = torch.cuda.CUDAGraph()
    with pool.shape(name):
        with torch.cuda.graph(graph, stream=capture_stream):
            big = torch.empty(pages * M // 2, device="cuda")
            big.fill_(1)
            x.add_(big[-1024:])
            del big
    return graph

def added(graphs):
    """What x is when each of the graphs has been replayed once."""
    x.zero_()
    for graph in graphs:
        graph.replay()
    assert float(x[0]) == float(x[-1]), (float(x[0]), float(x[-1]))
    return float(x[0])

def give_back(pool, graphs):
    """Seconds that it takes."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    pool.close()
    for graph in graphs:
        graph.reset()
    usage = pool.usage()
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    assert usage["physical"] == 0 and usage["ranges"] == 0, usage
    return took

# Blocks of more and more pages of 2 MiB, each in 17 ranges, of which the first finds no page.
for pages in (128, 256, 512, 1024):
    pool = memprof.GraphMemory()
    graphs, took = [], []
    for i in range(17):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graphs.append(touching(pool, "n%d" % i, pages))
        took.append(time.perf_counter() - start)
    print("pages", pages, sorted(took[1:])[8], took[0])
    assert added(graphs) == 17
    give_back(pool, graphs)

# A model that uses 1 GiB, captured 500 times.
pool = memprof.GraphMemory()
graphs, marks = [], {10: 0, 50: 0, 100: 0, 250: 0, 500: 0}
torch.cuda.synchronize()
start = time.perf_counter()
for i in range(500):
    graphs.append(touching(pool, "n%d" % i, 512))
    if i + 1 in marks:
        torch.cuda.synchronize()
        marks[i + 1] = time.perf_counter() - start
for count, seconds in marks.items():
    print("captures", count, seconds)
usage = pool.usage()
print("usage", usage["physical"], usage["addresses"], usage["ranges"])
assert added(graphs) == 500
first, last = [], []
for _ in range(3):
    first.append(median_replay(graphs[0], 50))
    last.append(median_replay(graphs[-1], 50))
print("replay_of first", min(first), "last", min(last))
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for count in (10, 500):  # each at addresses that the ones before did not use
    begin.record()
    for i in range(500):
        graphs[i % count].replay()
    end.record()
    end.synchronize()
    print("in_turn", count, begin.elapsed_time(end) / 500)
print("reset", give_back(pool, graphs))

# The same memory in the worst order: one growth has to map its pages into 500 ranges.
pool = memprof.GraphMemory()
start = time.perf_counter()
graphs = [touching(pool, "n%d" % i, 1) for i in range(499)]
torch.cuda.synchronize()
small = time.perf_counter()
graphs.append(touching(pool, "largest", 512))
torch.cuda.synchronize()
print("behind", time.perf_counter() - small, time.perf_counter() - start)
assert added(graphs) == 500 and pool.physical == 1024 * M, pool.usage()
give_back(pool, graphs)
graphs.clear()

# Ranges until no addresses are left: an error, after which the process continues.
pool = memprof.GraphMemory()
graph, shape, out = capture(pool, 64)
start = time.perf_counter()
made, message = 0, ""
while made < 4000 and not message:
    try:
        with pool.shape("empty%d" % made):
            made += 1
    except memprof.GraphMemoryError as error:
        message = str(error)
print("exhausted", made, int(bool(message)), pool.usage()["addresses"], time.perf_counter() - start)
assert pool.usage()["ranges"] == 1 + made, (made, pool.usage())
assert not message or "no address space" in message, message
pool.shapes["empty0"].release()
again, second, other = capture(pool, 512)
for replayed, got in ((graph, out), (again, other), (graph, out)):
    got.fill_(-1)
    replayed.replay()
    torch.testing.assert_close(got, model(inputs[: len(got)]), rtol=1e-2, atol=1e-2)
give_back(pool, [graph, again])
print("done")
'''


@alone
def graph_memory_cost(suite):
    """Replays as fast as in ordinary pools; captures linear in pages and in graphs; addresses to their end."""
    out = output_of(suite, "graph_memory_cost", COST)
    slow = []
    for size, ours, plain in re.findall(r"^replay (\d+) (\S+) (\S+)$", out, re.M):
        ours, plain = float(ours), float(plain)
        suite.figure(f"graph memory: replay of {size} rows, ours and ordinary", f"{1000 * ours:.1f} and {1000 * plain:.1f} us", "within 3 %")
        if ours > 1.03 * plain + 0.0005:
            slow.append(f"{size} rows: {1000 * ours:.2f} us against {1000 * plain:.2f}")
    if slow:
        raise Failed(f"replays slower than in ordinary pools: {slow}")
    linear_in_pages(suite, out)
    largest_first = linear_in_graphs(suite, out)
    replays_of_many(suite, out)
    reset = number(r"^reset (\S+)$", out)
    suite.figure("graph memory: to reset 500 graphs", f"{reset:.2f} s")
    largest_last(suite, out, largest_first)
    exhausted(suite, out)


def linear_in_pages(suite, out):
    """A capture into pages that exist; a page costs no more in large memories than in small ones."""
    rows = re.findall(r"^pages (\d+) (\S+) (\S+)$", out, re.M)
    took = {int(pages): 1000 * float(seconds) for pages, seconds, _ in rows}
    suite.figure(f"graph memory: a capture of {', '.join(map(str, took))} pages, ms", " ".join(f"{ms:.2f}" for ms in took.values()))
    suite.figure("graph memory: the first of them, which makes the pages, ms", " ".join(f"{1000 * float(first):.1f}" for _, _, first in rows))
    least, middle, most = 128, 512, 1024
    lower, upper = (took[middle] - took[least]) / (middle - least), (took[most] - took[middle]) / (most - middle)
    suite.figure(f"graph memory: a page beyond {least}, and beyond {middle}, us", f"{1000 * lower:.1f} and {1000 * upper:.1f}", "at most twice")
    if upper > 2 * lower:
        raise Failed(f"a page costs {1000 * upper:.1f} us beyond {middle}, {1000 * lower:.1f} us before: not linear in pages")


def linear_in_graphs(suite, out):
    """The 400th capture takes as long as the 50th. Returns the seconds of all captures."""
    marks = {int(count): float(seconds) for count, seconds in re.findall(r"^captures (\d+) (\S+)$", out, re.M)}
    suite.figure("graph memory: captures of 1 GiB, ms each, of the first 10, 50, 100, 250, 500",
                 " ".join(f"{1000 * marks[n] / n:.1f}" for n in sorted(marks)))
    early, late = (marks[100] - marks[10]) / 90, (marks[500] - marks[250]) / 250
    if late > 2 * early:
        raise Failed(f"a capture costs {1000 * late:.1f} ms after 250, {1000 * early:.1f} ms before 100: not linear")
    physical, addresses, ranges = (int(x) for x in re.search(r"^usage (\d+) (\d+) (\d+)$", out, re.M).groups())
    suite.figure("graph memory: 500 ranges, physical; addresses", f"{physical / 2**20:.0f} MiB; {addresses / 2**40:.1f} TiB")
    if ranges != 500 or physical > 1026 * 2**20:
        raise Failed(f"{ranges} ranges take {physical / 2**20:.0f} MiB, expected 500 and 1024")
    return marks[500]


def replays_of_many(suite, out):
    """Graphs that write 1 GiB each: the 500th as fast as the first."""
    first, last = (float(x) for x in re.search(r"^replay_of first (\S+) last (\S+)$", out, re.M).groups())
    suite.figure("graph memory: replay of the first and the 500th graph, each writing 1 GiB", f"{1000 * first:.1f} and {1000 * last:.1f} us", "within 5 %")
    turns = {int(count): float(ms) for count, ms in re.findall(r"^in_turn (\d+) (\S+)$", out, re.M)}
    suite.figure("graph memory: a replay of 10 such graphs in turn, and of 500", f"{1000 * turns[10]:.1f} and {1000 * turns[500]:.1f} us")
    if last > 1.05 * first:
        raise Failed(f"the 500th graph replays in {1000 * last:.1f} us, the first in {1000 * first:.1f}")


def exhausted(suite, out):
    """The number of ranges when no addresses were left."""
    made, ended, addresses, seconds = re.search(r"^exhausted (\d+) (\d) (\d+) (\S+)$", out, re.M).groups()
    what = "ranges until the addresses ended" if ended == "1" else "ranges, and addresses left"
    suite.figure(f"graph memory: {what}", f"{int(made) + 1}, {int(addresses) / 2**40:.1f} TiB, in {float(seconds):.2f} s")


def largest_last(suite, out, largest_first):
    """One growth maps its pages into all ranges."""
    behind, total = (float(x) for x in re.search(r"^behind (\S+) (\S+)$", out, re.M).groups())
    suite.figure("graph memory, bfc: a capture of 1 GiB behind 499 of 2 MiB", f"{behind:.2f} s")
    suite.figure("graph memory, bfc: 500 captures, the largest last and first", f"{total:.2f} and {largest_first:.2f} s", "at most twice")
    if total > 2 * largest_first:
        raise Failed(f"bfc: 500 captures take {total:.2f} s with the largest last, {largest_first:.2f} s with it first")
