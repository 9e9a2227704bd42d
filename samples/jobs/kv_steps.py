"""Steps of an engine that serves a model of Llama-3-8B's shape with random weights, for `memprof kv calibrate`.

    memprof record -o steps -- python3 kv_steps.py
    memprof kv calibrate steps --model llama-3-8b

Prompts of several lengths are computed in chunks, then tokens are generated for few and many sequences behind
short and long contexts. Every step ends with a synchronisation and memprof.iteration(). Prints the number of steps
and the seconds of each kind.
"""

import argparse
import time

import torch
import torch.nn.functional as F

import memprof

LAYERS, HEADS, KV_HEADS, SIZE, HIDDEN, INNER, WORDS = 32, 32, 8, 128, 4096, 14336, 128256
MOST_SLOTS = 160_000  # of a batch, times 128 KiB


def attend(q, keys, values, start):
    """Attention of [sequences, tokens, heads * SIZE] to [sequences, KV_HEADS, start + tokens, SIZE]."""
    n, tokens, width = q.shape
    if tokens == 1:  # the heads that share keys are as good as tokens that see all of them: no kernel has to copy keys
        q = q.view(n, KV_HEADS, -1, SIZE)
        return F.scaled_dot_product_attention(q, keys, values).reshape(n, 1, width)
    q = q.view(n, tokens, -1, SIZE).transpose(1, 2)
    mask = None
    if start > 0:  # a later chunk: causal behind what is there
        mask = torch.ones(tokens, start + tokens, device=q.device, dtype=torch.bool).tril(start)
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=start == 0, enable_gqa=True)
    return out.transpose(1, 2).reshape(n, tokens, width)


class Layer:
    def __init__(self, slots):
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
    def __init__(self, sequences, length):
        self.layers = [Layer(length) for _ in range(LAYERS)]
        self.embedding = torch.randn(WORDS, HIDDEN, device="cuda", dtype=torch.bfloat16) * 0.02
        self.shape = (sequences, KV_HEADS, length, SIZE)
        self.keys = [torch.zeros(self.shape, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros(self.shape, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.steps, self.seconds = 0, {"prompts": 0.0, "generation": 0.0}

    def step(self, first, last, tokens, start):
        """Computes tokens [start, start + tokens) of sequences [first, last), and the next words."""
        began = time.perf_counter()
        x = F.embedding(torch.randint(WORDS, (last - first, tokens), device="cuda"), self.embedding)
        for i, layer in enumerate(self.layers):
            x = layer.step(x, self.keys[i][first:last], self.values[i][first:last], start)
        F.linear(x[:, -1], self.embedding).argmax(-1).tolist()
        torch.cuda.synchronize()
        self.seconds["prompts" if tokens > 1 else "generation"] += time.perf_counter() - began
        self.steps += 1


@torch.inference_mode()
def run(batches, contexts, chunk, repeats):
    length = max(contexts) + repeats + 1
    engine = Engine(max(batches), length)
    bytes_per_token = LAYERS * 2 * KV_HEADS * SIZE * 2
    engine.step(0, max(batches), 1, 0)  # the libraries' first calls
    engine.step(0, 1, min(contexts), 0)
    memprof.iteration()
    for context in contexts:
        for batch in batches:
            if batch * context > MOST_SLOTS:
                continue
            cache = memprof.kv.Cache(slots=batch * length, token_bytes=bytes_per_token, name="steps", engine="kv_steps")
            for s in range(batch):
                cache.reserve(s, slots=length, prompt=context)
            # Prompts one at a time, as they arrive; of many, several at once, or this would take minutes.
            together = max(1, batch // 4)
            for s in range(0, batch, together):
                for start in range(0, context, chunk):
                    tokens = min(chunk, context - start)
                    engine.step(s, min(batch, s + together), tokens, start)
                    cache.append_many({i: tokens for i in range(s, min(batch, s + together))})
                    memprof.iteration()
            for i in range(repeats):
                engine.step(0, batch, 1, context + i)
                cache.step()
                memprof.iteration()
            cache.end()
    return engine


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="1,4,16,32,64,128")
    parser.add_argument("--contexts", default="128,512,1024,4096")
    parser.add_argument("--chunk", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    numbers = lambda text: [int(n) for n in text.split(",")]
    engine = run(numbers(args.batches), numbers(args.contexts), args.chunk, args.repeats)
    print("%d steps, %s" % (engine.steps, ", ".join("%s %.2f s" % item for item in engine.seconds.items())))
