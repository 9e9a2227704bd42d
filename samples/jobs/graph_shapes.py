"""CUDA graphs of a small decoder at many shapes, and their memory under nine policies.

    python3 samples/jobs/graph_shapes.py
    memprof record -o shapes -- python3 samples/jobs/graph_shapes.py
    memprof record -o separate -- python3 samples/jobs/graph_shapes.py --policy separate

Two families of graphs, each with memory of its own: decode steps of 1, 2, 4, ... 128 sequences,
and prefill of nine lengths from 256 down to 128 tokens by 16. The policies:

    separate         a private pool for each graph, torch's default
    shared-largest   one pool for the family, captured largest first, as vLLM and SGLang do
    shared-smallest  one pool, smallest first
    memprof-largest   memprof.GraphMemory, largest first
    memprof-smallest  the same, smallest first
    memprof-random    the same, in random order

`separate-copied`, `shared-largest-copied` and `shared-smallest-copied` are those with each graph
copying its logits to one buffer of the largest shape, as the memprof policies do. Those run under
`memprof record` only. Otherwise logits stay in the pool, where the graph computed them.

The graphs of a family are replayed in random alternation, and each result is compared, bit by bit,
with that of eager work. The job prints `result` lines, which are equal in all runs, a table, and the
table as one line of JSON. The column `buffers` is the size of the input and output buffers outside of
the pools, `total` that of pools and buffers.
"""

import argparse
import contextlib
import json
import random
import time

import torch
import torch.nn.functional as F

try:
    import memprof
except ImportError:  # not under memprof record
    memprof = None

POLICIES = (
    *("separate", "shared-largest", "shared-smallest"),
    *("separate-copied", "shared-largest-copied", "shared-smallest-copied"),
    *("memprof-largest", "memprof-smallest", "memprof-random"),
)
DECODE = (1, 2, 4, 8, 16, 32, 64, 128)
PREFILL = tuple(range(256, 127, -16))
WIDTH, HEADS, LAYERS, VOCABULARY, CONTEXT = 2048, 16, 4, 32000, 128


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, attend):
        x = x + self.out(attend(*self.qkv(self.before(x)).chunk(3, dim=-1)))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def prefill(self, tokens):
        """Logits of each token of one sequence."""

        def attend(q, k, v):
            q, k, v = (part.view(1, len(tokens), HEADS, -1).transpose(1, 2) for part in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(len(tokens), WIDTH)

        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, attend)
        return self.head(self.norm(x))

    def decode(self, tokens, caches):
        """Logits of the next token of each sequence, at the last place of the context."""
        rows = len(tokens)
        x = self.embed(tokens)
        for layer, (keys, values) in zip(self.layers, caches):

            def attend(q, k, v):
                keys[:rows, :, -1] = k.view(rows, HEADS, -1)
                values[:rows, :, -1] = v.view(rows, HEADS, -1)
                q = q.view(rows, HEADS, 1, -1)
                return F.scaled_dot_product_attention(q, keys[:rows], values[:rows]).reshape(rows, WIDTH)

            x = layer(x, attend)
        return self.head(self.norm(x))


def copies(policy):
    """Whether the graphs copy their logits to one buffer."""
    return policy.startswith("memprof-") or policy.endswith("-copied")


class Family:
    """Graphs that replay one at a time."""

    def __init__(self, name, sizes, run):
        self.name, self.sizes, self.run = name, sorted(sizes), run
        self.tokens = torch.randint(VOCABULARY, (max(sizes),), device="cuda")
        self.stream = torch.cuda.Stream()
        self.eager()
        self.expected = self.eager()

    def eager(self):
        """Runs on the stream of the captures, so that cuBLAS's workspace of that stream exists."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            logits = {size: self.run(self.tokens[:size]) for size in self.sizes}
        torch.cuda.synchronize()
        return logits

    def order(self, policy, seed):
        if "-largest" in policy:
            return self.sizes[::-1]
        order = list(self.sizes)
        if policy.endswith("-random"):
            random.Random(seed).shuffle(order)
        return order

    def buffer_bytes(self, policy):
        """Bytes of buffers of the largest shape: inputs, and outputs where the policy copies them."""
        inputs = self.tokens.numel() * self.tokens.element_size()
        if not copies(policy):
            return inputs
        largest = self.expected[max(self.sizes)]
        return inputs + largest.numel() * largest.element_size()


class Pools:
    """Private pools of torch: one, or one for each graph. Logits stay there, or are copied to a buffer."""

    def __init__(self, family, shared, buffer=None):
        self.family, self.shared, self.buffer, self.graphs, self.used = family, shared, buffer, {}, []

    def capture(self, size):
        graph = torch.cuda.CUDAGraph()
        pool = self.used[0] if self.shared and self.used else torch.cuda.graph_pool_handle()
        if pool not in self.used:
            self.used.append(pool)
        named = memprof.phase("%s %d" % (self.family.name, size)) if memprof else contextlib.nullcontext()
        with named, torch.cuda.graph(graph, pool=pool, stream=self.family.stream):
            logits = self.family.run(self.family.tokens[:size])
            if self.buffer is not None:
                logits = self.buffer[: len(logits)].copy_(logits)
        self.graphs[size] = graph, logits

    def sizes(self):
        """Bytes of each pool."""
        total = {tuple(pool): 0 for pool in self.used}
        for segment in torch.cuda.memory_snapshot():
            pool = tuple(segment["segment_pool_id"])
            if pool in total:
                total[pool] += segment["total_size"]
        return list(total.values())

    def measures(self):
        sizes = self.sizes()
        found = {"physical": sum(sizes), "addresses": sum(sizes)}
        if not self.shared:
            found.update(sum=sum(sizes), max=max(sizes))
        return found

    def close(self):
        graphs, self.graphs = self.graphs, {}
        for graph, _ in graphs.values():
            graph.reset()


class Ours:
    """A graph memory."""

    def __init__(self, family, largest):
        self.family, self.graphs = family, {}
        self.memory = memprof.GraphMemory()
        self.inputs = self.memory.persistent(tokens=family.tokens)
        self.inputs.update(tokens=family.tokens)
        self.logits = self.memory.persistent(logits=largest).logits

    def capture(self, size):
        graph = torch.cuda.CUDAGraph()
        with self.memory.shape("%s %d" % (self.family.name, size), outputs=[self.logits]) as shape:
            tokens = self.inputs.slices(size).tokens
            with torch.cuda.graph(graph, stream=self.family.stream):
                logits = shape.output(self.family.run(tokens))
        self.graphs[size] = graph, logits

    def measures(self):
        extents = [shape.extent for shape in self.memory.shapes.values()]
        usage = self.memory.usage()
        return {"physical": usage["physical"], "addresses": usage["addresses"], "sum": sum(extents), "max": max(extents)}

    def close(self):
        self.graphs = {}
        for shape in list(self.memory.shapes.values()):
            shape.reset()
        self.memory.close()


def replays(family, graphs, count, seed):
    """Replays in random alternation. Returns how many results differ from eager work."""
    choice = random.Random(seed)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(count):
        size = choice.choice(family.sizes)
        graph, logits = graphs[size]
        logits.fill_(-1)
        graph.replay()
        wrong += (logits != family.expected[size]).any()
    return int(wrong)


def replay_time(family, graphs, rounds=20):
    """Microseconds of a replay, the mean over the shapes of the median."""
    medians = []
    for size in family.sizes:
        graph, _ = graphs[size]
        times = []
        for _ in range(rounds):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        medians.append(sorted(times)[rounds // 2])
    return sum(medians) / len(medians)


def measure(family, policy, opts):
    """Captures a family under a policy. Returns a line of the table."""
    family.eager()  # the workspaces were freed with the graphs of the previous policy
    torch.cuda.empty_cache()
    largest = family.expected[max(family.sizes)]
    if policy.startswith("memprof-"):
        holder = Ours(family, largest)
    else:
        holder = Pools(family, policy.startswith("shared"), torch.empty_like(largest) if copies(policy) else None)
    start = time.perf_counter()
    for size in family.order(policy, opts.seed):
        holder.capture(size)
        torch.cuda.synchronize()
        if opts.steps:
            print("step %s %s %d %d" % (policy, family.name, size, holder.measures()["physical"]), flush=True)
    took = time.perf_counter() - start
    line = {"policy": policy, "family": family.name, "graphs": len(family.sizes), "sum": None, "max": None}
    line.update(holder.measures())
    line["buffers"] = family.buffer_bytes(policy)
    line["total"] = line["physical"] + line["buffers"]
    line["capture_ms"] = 1e3 * took / len(family.sizes)
    line["wrong"] = replays(family, holder.graphs, opts.replays, opts.seed)
    line["replay_us"] = replay_time(family, holder.graphs)
    torch.cuda.synchronize()
    holder.close()
    return line


def table(lines):
    def mib(line, key):
        return "-" if line[key] is None else "%.0f" % (line[key] / 2**20)

    head = ("policy", "family", "graphs", "physical", "sum", "max", "addresses", "buffers", "total", "capture ms", "replay us")
    rows = [head]
    for line in lines:
        sizes = [mib(line, key) for key in ("physical", "sum", "max", "addresses", "buffers", "total")]
        rows.append((line["policy"], line["family"], str(line["graphs"]), *sizes, "%.2f" % line["capture_ms"], "%.1f" % line["replay_us"]))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(text.ljust(width) if i < 2 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths))))


def checksum(logits):
    """A whole number that changes with any bit of the tensor."""
    bits = logits.contiguous().view(torch.int16).flatten().to(torch.int64)
    return int((bits * (torch.arange(len(bits), device=bits.device) % 65521 + 1)).sum())


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", action="append", choices=POLICIES, help="one of the policies, or several; all that there are by default")
    parser.add_argument("--family", action="append", choices=("decode", "prefill"), help="both by default")
    parser.add_argument("--replays", type=int, default=2000, help="in random alternation, of each family and policy")
    parser.add_argument("--steps", action="store_true", help="print what is taken after each capture")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def policies(opts):
    """The policies of the command line, or all that can run here."""
    aliases = memprof is not None and memprof.recording()
    if opts.policy is None:
        return [policy for policy in POLICIES if aliases or not policy.startswith("memprof-")]
    if not aliases and any(policy.startswith("memprof-") for policy in opts.policy):
        raise SystemExit("the policies of memprof.GraphMemory need `memprof record`")
    return opts.policy


def main():
    opts = options()
    chosen = policies(opts)
    torch.manual_seed(opts.seed)
    torch.set_grad_enabled(False)
    with torch.device("cuda"):
        model = Decoder().half().eval()
    caches = [torch.randn(2, max(DECODE), HEADS, CONTEXT, WIDTH // HEADS, dtype=torch.half, device="cuda") for _ in range(LAYERS)]
    runs = {"decode": (DECODE, lambda tokens: model.decode(tokens, caches)), "prefill": (PREFILL, model.prefill)}
    families = [Family(name, *runs[name]) for name in opts.family or runs]
    for family in families:
        for size, logits in family.expected.items():
            print("result %s %d %d" % (family.name, size, checksum(logits)))
    lines = [measure(family, policy, opts) for policy in chosen for family in families]
    for line in lines:
        print("result %s %s %d of %d replays differ from eager work" % (line["policy"], line["family"], line["wrong"], opts.replays))
    print("MiB; times are means over the graphs")
    table(lines)
    print(json.dumps({"policies": lines}))


if __name__ == "__main__":
    main()
