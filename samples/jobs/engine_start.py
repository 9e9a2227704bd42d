"""A serving engine starts: weights, a batch to measure activations, the KV cache, CUDA graphs of many sizes. Then it decodes.

    memprof record --allocator native -o run -- python3 samples/jobs/engine_start.py --shape 7b --few 3
    memprof fit --engine run
    python3 samples/jobs/engine_start.py --shape 7b --kv-cache-memory-bytes 118000000000

The engine sizes its cache by --utilization, as vLLM does, or by --kv-cache-memory-bytes. Graphs of decode steps are captured whole. Graphs
of prompts are captured in pieces, between which attention runs. All are in one pool, from the largest size to the smallest unless --order
says otherwise, and copy what they return to a buffer. Weights are not initialised, since only their memory matters here.
"""

import argparse
import contextlib
import gc
import random
import time

import torch
import torch.nn.functional as F

try:
    import memprof
except ImportError:  # not recorded
    memprof = None

# Layers, of which every so many has attention (others keep a state); width, heads of queries and of keys, of 128 elements; inner width, words.
SHAPES = {"tiny": (4, 1, 512, 4, 2, 1408, 4096), "7b": (32, 1, 4096, 32, 8, 14336, 32000), "hybrid": (32, 4, 4096, 32, 8, 11008, 32000)}
HEAD, STATE_HEADS, CONTEXT = 128, 16, 16
WHOLE = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]  # the 51 sizes of vLLM
PIECES = [*range(64, 1025, 60)]  # 17


def phase(name):
    return memprof.phase(name) if memprof else contextlib.nullcontext()


class Engine:
    def __init__(self, opts):
        self.layers, self.period, width, self.heads, self.kv_heads, inner, words = SHAPES[opts.shape]
        self.width, self.sequences = width, max(opts.sizes)
        with phase("load"):

            def weight(*shape):
                return torch.empty(*shape, dtype=torch.bfloat16, device="cuda")

            rows = (self.heads + 2 * self.kv_heads) * HEAD
            self.embed, self.head, self.norm = weight(words, width), weight(words, width), weight(width)
            self.weights = [
                (weight(width), weight(rows, width), weight(width, self.heads * HEAD), weight(width), weight(2 * inner, width), weight(width, inner))
                for _ in range(self.layers)
            ]
            self.tokens = torch.zeros(max(opts.tokens, self.sequences), dtype=torch.long, device="cuda")
            self.hidden = weight(len(self.tokens), width)
        self.states, self.cache = [], []

    def attention(self, layer):
        return layer % self.period == self.period - 1

    def token_bytes(self):
        return 2 * self.kv_heads * HEAD * 2 * (self.layers // self.period)

    def allocate(self, slots):
        """The cache of so many tokens, and a state for each sequence. A mark says what a token takes."""
        with phase("kv_cache"):
            for layer in range(self.layers):
                if self.attention(layer):
                    self.cache.append(torch.empty(2, slots, self.kv_heads, HEAD, dtype=torch.bfloat16, device="cuda"))
                else:
                    self.cache.append(torch.empty(self.sequences, STATE_HEADS, HEAD, HEAD, device="cuda"))
        if memprof:
            memprof.kv.Cache(slots=slots, token_bytes=self.token_bytes(), block=16)

    def before(self, layer, x):
        """Queries, keys and values."""
        norm, qkv = self.weights[layer][:2]
        return F.linear(F.rms_norm(x, (self.width,), norm), qkv).split([self.heads * HEAD, self.kv_heads * HEAD, self.kv_heads * HEAD], dim=-1)

    def mix(self, layer, q, k, v):
        rows = len(q)
        q, k, v = q.reshape(rows, self.heads, HEAD), k.reshape(rows, self.kv_heads, HEAD), v.reshape(rows, self.kv_heads, HEAD)
        cache = self.cache[layer] if self.cache else None
        if not self.attention(layer) and cache is not None and rows <= self.sequences:
            state = cache[:rows]
            state.mul_(0.5).addcmul_(k[:, :1, :, None].float(), v[:, :1, None, :].float())
            seen = torch.einsum("bhd,bhde->bhe", q[:, :STATE_HEADS].float(), state).to(q.dtype)
            return torch.cat([seen, q[:, STATE_HEADS:]], dim=1).flatten(1)
        if cache is None or not self.attention(layer) or rows > self.sequences:
            groups = self.heads // self.kv_heads
            k, v = (part.repeat_interleave(groups, dim=1).transpose(0, 1)[None] for part in (k, v))
            return F.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v, is_causal=True)[0].transpose(0, 1).reshape(rows, -1)
        keys, values = cache
        keys[:rows], values[:rows] = k, v
        k, v = (part[:CONTEXT].repeat_interleave(self.heads // self.kv_heads, dim=1).transpose(0, 1)[None] for part in (keys, values))
        return F.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v)[0].transpose(0, 1).reshape(rows, -1)

    def after(self, layer, x, mixed):
        _, _, out, norm, up, down = self.weights[layer]
        x = x + F.linear(mixed, out)
        gate, inner = F.linear(F.rms_norm(x, (self.width,), norm), up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * inner, down)

    def step(self, rows):
        x = F.embedding(self.tokens[:rows], self.embed)
        for layer in range(self.layers):
            x = self.after(layer, x, self.mix(layer, *self.before(layer, x)))
        self.hidden[:rows].copy_(x)

    def sample(self, rows):
        logits = F.linear(F.rms_norm(self.hidden[:rows], (self.width,), self.norm), self.head).float()
        return torch.softmax(logits, dim=-1).argmax(dim=-1)

    def serve(self, rows):
        """A step of prompts, which no graph has, and a token for as many sequences as there can be."""
        self.step(rows)
        self.sample(min(rows, self.sequences))


def settle():
    """memprof reads what the card has in use ten times a second: a pause tells what the driver takes before, between and after the lists."""
    torch.cuda.synchronize()
    if memprof:
        time.sleep(0.25)


def capture(graph, pool, stream, work):
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        return work()


def capture_all(engine, opts, pool):
    """Graphs of all sizes. Those in pieces have attention between them, which runs eagerly."""
    stream, graphs = torch.cuda.Stream(), []
    gc.collect()
    gc.freeze()  # some versions of torch collect at each capture
    # What attention gives: replays read it, and torch returns free memory to the driver as a capture begins.
    engine.mixed = torch.empty(max([0, *opts.pieces]), engine.heads * HEAD, dtype=engine.embed.dtype, device="cuda")

    def graph():
        graphs.append(torch.cuda.CUDAGraph())
        return graphs[-1]

    def pieces(rows):
        x = capture(graph(), pool, stream, lambda: F.embedding(engine.tokens[:rows], engine.embed))
        for layer in range(engine.layers):
            capture(graph(), pool, stream, lambda: engine.before(layer, x))
            x = capture(graph(), pool, stream, lambda: engine.after(layer, x, engine.mixed[:rows]))
        capture(graph(), pool, stream, lambda: engine.hidden[:rows].copy_(x))

    def ordered(sizes):
        sizes = sorted(sizes, reverse=opts.order == "largest")
        if opts.order == "random":
            random.Random(1).shuffle(sizes)
        return sizes[: opts.few or None]

    settle()
    for rows in ordered(opts.pieces):
        with phase("pieces %d" % rows):
            pieces(rows)
    settle()
    for rows in ordered(opts.sizes):
        torch.cuda.synchronize()
        with phase("whole %d" % rows):
            capture(graph(), pool, stream, lambda: engine.step(rows))
    settle()
    return graphs


def options():
    def sizes(text):
        return [int(size) for size in text.split(",") if size]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--sizes", type=sizes, default=WHOLE, help="rows of the steps that are captured whole")
    parser.add_argument("--pieces", type=sizes, default=PIECES, help="rows of those that are captured in pieces")
    parser.add_argument("--few", type=int, default=0, help="capture so many of each only")
    parser.add_argument("--order", choices=("largest", "smallest", "random"), default="largest")
    parser.add_argument("--tokens", type=int, default=8192, help="of the batch that is profiled, and served at the end")
    parser.add_argument("--utilization", type=float, default=0.9, help="share of the card that the engine may use")
    parser.add_argument("--kv-cache-memory-bytes", type=int, default=0, help="of the cache, in place of what --utilization leaves")
    return parser.parse_args()


def main():
    opts = options()
    torch.set_grad_enabled(False)
    free, total = torch.cuda.mem_get_info()
    engine = Engine(opts)
    with phase("profile"):
        weights = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        engine.serve(opts.tokens)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - weights
    torch.cuda.empty_cache()
    outside = free - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    kv = opts.kv_cache_memory_bytes or int(total * opts.utilization) - weights - peak - max(0, outside)
    states = sum(not engine.attention(layer) for layer in range(engine.layers)) * engine.sequences * STATE_HEADS * HEAD * HEAD * 4
    slots = (kv - states) // engine.token_bytes() // 16 * 16
    engine.allocate(slots)
    pool = torch.cuda.graph_pool_handle()
    graphs = capture_all(engine, opts, pool)
    in_pool = sum(s["total_size"] for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(pool)) if not opts.few else 0
    for graph in graphs:
        graph.replay()
    with phase("serve"):
        for _ in range(3):
            engine.serve(opts.tokens)
    torch.cuda.synchronize()
    said = (slots, slots * engine.token_bytes() + states, in_pool, torch.cuda.mem_get_info()[0])
    print("engine: %d tokens, %d bytes of KV cache, %d of graphs, %d free" % said, flush=True)


if __name__ == "__main__":
    main()
