"""Steps of an engine that serves a model of Llama-3-8B's shape with random weights, for `memprof kv calibrate`.

    memprof record -o steps -- python3 kv_steps.py
    memprof kv calibrate steps --model llama-3-8b

Prompts of several lengths are computed in chunks, then tokens are generated for few and many sequences behind
short and long contexts, then sequences are copied to the host and back. As in an engine of today, a step is one CUDA
graph, captured before it is timed; --eager launches its kernels one by one. Every step ends when the host has the
tokens, with memprof.iteration(). Which of several equal sequences a step computes makes no difference to its time, so
the graph of the first ones stands for all. Prints the number of steps and the seconds of each kind.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

import memprof

LAYERS, HEADS, KV_HEADS, SIZE, HIDDEN, INNER, WORDS = 32, 32, 8, 128, 4096, 14336, 128256
MOST_SLOTS = 160_000  # of a batch, times 128 KiB
MOST_TOKENS = 8192  # of prompts in a step
TOKEN_BYTES = LAYERS * 2 * KV_HEADS * SIZE * 2


def attend(q, keys, values, start):
    """Attention of [sequences, tokens, heads * SIZE] to [sequences, KV_HEADS, start + tokens, SIZE]."""
    n, tokens, width = q.shape
    if tokens == 1:  # the heads that share keys are as good as tokens that see all of them: no kernel has to copy keys
        q = q.view(n, KV_HEADS, -1, SIZE)
        return F.scaled_dot_product_attention(q, keys, values).reshape(n, 1, width)
    q = q.view(n, tokens, -1, SIZE).transpose(1, 2)
    if start == 0:
        out = F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=True)
    else:  # a later chunk: causal behind what is there
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=causal_lower_right(tokens, start + tokens), enable_gqa=True)
    return out.transpose(1, 2).reshape(n, tokens, width)


class Layer:
    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.02

        self.qkv = weight((HEADS + 2 * KV_HEADS) * SIZE, HIDDEN)
        self.out = weight(HIDDEN, HEADS * SIZE)
        self.up = weight(2 * INNER, HIDDEN)
        self.down = weight(HIDDEN, INNER)
        self.norms = [torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def step(self, x, keys, values, start):
        """x is [sequences, tokens, HIDDEN]; keys and values are this layer's for these sequences."""
        n, tokens, _ = x.shape
        q, k, v = F.linear(F.rms_norm(x, (HIDDEN,), self.norms[0]), self.qkv).split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
        end = start + tokens
        keys[:, :, start:end] = k.view(n, tokens, KV_HEADS, SIZE).transpose(1, 2)
        values[:, :, start:end] = v.view(n, tokens, KV_HEADS, SIZE).transpose(1, 2)
        attended = attend(q, keys[:, :, :end], values[:, :, :end], start)
        x = x + F.linear(attended, self.out)
        gate, up = F.linear(F.rms_norm(x, (HIDDEN,), self.norms[1]), self.up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Engine:
    """Weights, and memory for the keys and values of MOST_SLOTS slots, which a batch divides among its sequences."""

    def __init__(self, slots, eager):
        self.layers = [Layer() for _ in range(LAYERS)]
        self.embedding = torch.randn(WORDS, HIDDEN, device="cuda", dtype=torch.bfloat16) * 0.02
        self.memory = torch.zeros(2 * LAYERS, slots * KV_HEADS * SIZE, device="cuda", dtype=torch.bfloat16)
        self.eager, self.graphs = eager, {}
        self.steps, self.seconds = 0, {"prompts": 0.0, "generation": 0.0, "copies": 0.0}

    def divide(self, sequences, length):
        """Divides the memory among sequences of so many slots; graphs of another division end."""
        self.graphs.clear()
        elements = sequences * KV_HEADS * length * SIZE
        views = [m[:elements].view(sequences, KV_HEADS, length, SIZE) for m in self.memory]
        self.keys, self.values = views[0::2], views[1::2]

    def compute(self, words, start):
        """The next words behind tokens [start, start + tokens) of the first sequences."""
        n = words.shape[0]
        x = F.embedding(words, self.embedding)
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            x = layer.step(x, keys[:n], values[:n], start)
        return F.linear(x[:, -1], self.embedding).argmax(-1)

    def prepare(self, n, tokens, start):
        """A function that computes a step of this shape and returns its words."""
        if (n, tokens, start) not in self.graphs:
            words = torch.randint(WORDS, (n, tokens), device="cuda")
            self.compute(words, start)  # the libraries' first calls
            torch.cuda.synchronize()
            if self.eager:
                run = lambda: self.compute(words, start)
            else:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    out = self.compute(words, start)

                def run():
                    graph.replay()
                    return out

                run()  # a first replay uploads the graph
                torch.cuda.synchronize()
            self.graphs[n, tokens, start] = run
            memprof.iteration()  # and nothing of that is in a step
        return self.graphs[n, tokens, start]

    def timed(self, kind, run):
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        self.seconds[kind] += time.perf_counter() - began
        self.steps += 1


def run_batch(engine, batch, context, chunk, repeats):
    """Computes the prompts of a batch, then generates."""
    length = context + repeats + 1
    engine.divide(batch, length)
    cache = memprof.kv.Cache(slots=batch * length, token_bytes=TOKEN_BYTES, name="steps", engine="kv_steps")
    for s in range(batch):
        cache.reserve(s, slots=length, prompt=context)
    # Prompts one at a time, as they arrive; of many, several at once, or this would take minutes.
    together = max(1, min(batch // 4, MOST_TOKENS // min(chunk, context)))
    for first in range(0, batch, together):
        of = range(first, min(batch, first + together))
        for start in range(0, context, chunk):
            tokens = min(chunk, context - start)
            step = engine.prepare(len(of), tokens, start)
            memprof.iteration()
            engine.timed("prompts", lambda: step().tolist())
            cache.append_many({s: tokens for s in of})
            memprof.iteration()
    step = engine.prepare(batch, 1, context)
    memprof.iteration()
    for _ in range(repeats):
        engine.timed("generation", lambda: step().tolist())
        cache.step()
        memprof.iteration()
    cache.end()


def copies(engine, repeats):
    """Copies 1,024 slots between device and pinned host memory, a piece for each tensor of each layer."""
    slots = 1024
    size = slots * KV_HEADS * SIZE
    host = torch.empty(2 * LAYERS, size, dtype=torch.bfloat16, pin_memory=True)
    device = engine.memory[:, :size]

    def copy(to, of):
        for i in range(2 * LAYERS):
            to[i].copy_(of[i], non_blocking=True)

    copy(host, device)
    for to, of in ((host, device), (device, host)) * repeats:
        torch.cuda.synchronize()
        engine.timed("copies", lambda: copy(to, of))
    return engine.seconds["copies"] / (2 * repeats * slots)


@torch.inference_mode()
def run(batches, contexts, chunk, repeats, eager):
    engine = Engine(MOST_SLOTS + max(batches) * (repeats + 1), eager)
    memprof.iteration()
    for context in contexts:
        for batch in batches:
            if batch * context <= MOST_SLOTS:
                run_batch(engine, batch, context, chunk, repeats)
    engine.graphs.clear()
    print("a slot is copied in %.0f ns" % (1e9 * copies(engine, 4)))
    return engine


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="1,4,16,32,64,128,256")
    parser.add_argument("--contexts", default="128,512,1024,4096")
    parser.add_argument("--chunk", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    numbers = lambda text: [int(n) for n in text.split(",")]
    engine = run(numbers(args.batches), numbers(args.contexts), args.chunk, args.repeats, args.eager)
    print("%d steps, %s" % (engine.steps, ", ".join("%s %.2f s" % item for item in engine.seconds.items())))
