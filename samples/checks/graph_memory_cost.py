"""What graph memory costs: replays, captures, resets."""

import re

from checks.graph_memory import both_manners
from checks.suite import Failed, alone, number

COST = """
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

# A model that uses 1 GiB, captured 500 times.
pool = memprof.GraphMemory()
x = torch.zeros(1024, device="cuda")
graphs, marks = [], {10: 0, 50: 0, 100: 0, 250: 0, 500: 0}
torch.cuda.synchronize()
start = time.perf_counter()
for i in range(500):
    graph = torch.cuda.CUDAGraph()
    with pool.shape("n%d" % i):
        with torch.cuda.graph(graph, stream=capture_stream):
            big = torch.empty(1024 * M, dtype=torch.uint8, device="cuda")
            big[:4096].view(torch.float).copy_(x)
            x.add_(1)
            del big
    graphs.append(graph)
    if i + 1 in marks:
        torch.cuda.synchronize()
        marks[i + 1] = time.perf_counter() - start
for count, seconds in marks.items():
    print("captures", count, seconds)
usage = pool.usage()
print("usage", usage["physical"], usage["addresses"], usage["ranges"])
print("replay_of first", median_replay(graphs[0], 50), "last", median_replay(graphs[-1], 50))
x.zero_()
for graph in graphs:
    graph.replay()
assert float(x[0]) == 500 and float(x[-1]) == 500, x[:2].tolist()
start = time.perf_counter()
pool.close()
for graph in graphs:
    graph.reset()
usage = pool.usage()
torch.cuda.synchronize()
print("reset", time.perf_counter() - start)
assert usage["physical"] == 0 and usage["ranges"] == 0, usage
print("done")
"""


@alone
def graph_memory_cost(suite):
    """Replays as fast as in ordinary pools; 10 to 500 captures of 1 GiB, each as dear as the first."""
    for manner, out in both_manners(suite, "graph_memory_cost", COST).items():
        slow = []
        for size, ours, plain in re.findall(r"^replay (\d+) (\S+) (\S+)$", out, re.M):
            ours, plain = float(ours), float(plain)
            suite.figure(f"graph memory, {manner}: replay of {size} rows, ours and ordinary", f"{1000 * ours:.1f} and {1000 * plain:.1f} us", "within 3 %")
            if ours > 1.03 * plain + 0.0005:
                slow.append(f"{size} rows: {1000 * ours:.2f} us against {1000 * plain:.2f}")
        if slow:
            raise Failed(f"{manner}: replays slower than in ordinary pools: {slow}")
        marks = {int(count): float(seconds) for count, seconds in re.findall(r"^captures (\d+) (\S+)$", out, re.M)}
        suite.figure(f"graph memory, {manner}: captures of 1 GiB, ms each, of the first 10, 50, 100, 250, 500",
                     " ".join(f"{1000 * marks[n] / n:.1f}" for n in sorted(marks)))
        early, late = (marks[100] - marks[10]) / 90, (marks[500] - marks[250]) / 250
        if late > 2 * early:
            raise Failed(f"{manner}: a capture costs {1000 * late:.1f} ms after 250, {1000 * early:.1f} ms before 100: not linear")
        physical, addresses, ranges = (int(x) for x in re.search(r"^usage (\d+) (\d+) (\d+)$", out, re.M).groups())
        suite.figure(f"graph memory, {manner}: 500 ranges, physical; addresses", f"{physical / 2**20:.0f} MiB; {addresses / 2**40:.1f} TiB")
        if ranges != 500 or physical > 1026 * 2**20:
            raise Failed(f"{manner}: {ranges} ranges take {physical / 2**20:.0f} MiB, expected 500 and 1024")
        first, last = (float(x) for x in re.search(r"^replay_of first (\S+) last (\S+)$", out, re.M).groups())
        suite.figure(f"graph memory, {manner}: replay of the first and the 500th graph", f"{1000 * first:.1f} and {1000 * last:.1f} us")
        reset = number(r"^reset (\S+)$", out)
        suite.figure(f"graph memory, {manner}: to reset 500 graphs", f"{reset:.2f} s")
