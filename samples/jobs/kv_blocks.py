"""What small blocks of a KV cache cost: the attention kernel, which looks each up, and copies to the host and back.

    python3 kv_blocks.py

The kernel is one of paged attention for a model of Llama-3-8B's shape, in Triton: a program for each sequence and
head of keys goes through the sequence's blocks, at least 16 tokens at a time, as the tensor cores want them. Copies
are one call of cudaMemcpyAsync for each block and tensor. Prints a line of JSON: by tokens of a block the time of all
layers' attention, of a copied slot, and the cost of a block and of a copied block that a line through them gives.
"""

import argparse
import ctypes
import json
import statistics
import time

import torch
import triton
import triton.language as tl

LAYERS, HEADS, KV_HEADS, SIZE = 32, 32, 8, 128
GROUP = HEADS // KV_HEADS


@triton.jit
def attend(q, keys, values, table, out, tokens, entries, BLOCK: tl.constexpr, TILE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr):
    sequence, head = tl.program_id(0), tl.program_id(1)
    rows = tl.arange(0, 16)
    columns = tl.arange(0, SIZE)
    within = tl.arange(0, TILE)
    at = ((sequence * KV_HEADS + head) * GROUP + rows[:, None]) * SIZE + columns[None, :]
    mine = rows[:, None] < GROUP
    query = tl.load(q + at, mask=mine, other=0.0)
    greatest = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    sums = tl.zeros([16, SIZE], tl.float32)
    for entry in range(entries):
        block = tl.load(table + sequence * entries + entry)
        for first in range(0, BLOCK, TILE):
            slots = first + within
            there = (slots < BLOCK) & (entry * BLOCK + slots < tokens)
            place = ((block * KV_HEADS + head) * BLOCK + slots)[:, None] * SIZE + columns[None, :]
            k = tl.load(keys + place, mask=there[:, None], other=0.0)
            scores = tl.dot(query, tl.trans(k)) * 0.0883883
            scores = tl.where(there[None, :], scores, -1e30)
            now = tl.maximum(greatest, tl.max(scores, 1))
            p = tl.exp(scores - now[:, None])
            decay = tl.exp(greatest - now)
            total = total * decay + tl.sum(p, 1)
            v = tl.load(values + place, mask=there[:, None], other=0.0)
            sums = sums * decay[:, None] + tl.dot(p.to(v.dtype), v)
            greatest = now
    tl.store(out + at, (sums / total[:, None]).to(out.dtype.element_ty), mask=mine)


def attention(block, sequences, tokens, repeats):
    """Seconds of LAYERS layers, whose caches are apart as in an engine, and whether the result is right."""
    entries = -(-tokens // block)
    blocks = sequences * entries
    shape = (4, blocks, KV_HEADS, block, SIZE)  # four layers' are more than the GPU's own cache holds
    keys = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    values = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    table = torch.randperm(blocks, device="cuda", dtype=torch.int64).view(sequences, entries)
    q = torch.randn(sequences, KV_HEADS, GROUP, SIZE, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)

    def layer(i):
        attend[(sequences, KV_HEADS)](q, keys[i % 4], values[i % 4], table, out, tokens, entries, block, max(16, min(block, 64)), KV_HEADS, GROUP, SIZE)

    layer(0)
    k = keys[0][table[0]].transpose(0, 1).reshape(KV_HEADS, -1, SIZE)[:, :tokens]
    v = values[0][table[0]].transpose(0, 1).reshape(KV_HEADS, -1, SIZE)[:, :tokens]
    want = torch.nn.functional.scaled_dot_product_attention(q[0].float(), k.float(), v.float())
    assert (out[0].float() - want).abs().max() < 0.02, "attention over blocks of %d is wrong" % block
    took = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for i in range(LAYERS):
            layer(i)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def copies(block, slots, repeats):
    """Seconds in which so many slots of one layer's keys are copied out and in, a call for each block."""
    runtime = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])  # that torch has loaded
    copy = runtime.cudaMemcpyAsync
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    piece = block * KV_HEADS * SIZE * 2
    device = torch.zeros(slots // block * piece, device="cuda", dtype=torch.uint8)
    host = torch.zeros(device.shape, dtype=torch.uint8, pin_memory=True)
    stream = torch.cuda.current_stream().cuda_stream
    took = []
    for to, of, kind in ((host, device, 2), (device, host, 1)) * repeats:
        to, of = to.data_ptr(), of.data_ptr()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for i in range(slots // block):
            copy(to + i * piece, of + i * piece, piece, kind, stream)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def slope(points):
    """The slope of the least squares' line through (x, y)."""
    mx, my = statistics.mean(x for x, _ in points), statistics.mean(y for _, y in points)
    return sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()
    torch.manual_seed(0)
    slots = args.sequences * args.tokens
    blocks = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    kernel = {b: attention(b, args.sequences, args.tokens, 9) for b in blocks}
    copied = {b: copies(b, 4096, 3) for b in blocks}
    print(json.dumps({
        "gpu": torch.cuda.get_device_name(), "sequences": args.sequences, "tokens": args.tokens,
        "attention_us": {b: round(1e6 * s, 1) for b, s in kernel.items()},
        "copied_slot_ns": {b: round(2 * LAYERS * 1e9 * s / 4096, 1) for b, s in copied.items()},
        "block_ns": round(1e9 * slope([(slots / b, s) for b, s in kernel.items()]), 2),
        "piece_ns": round(2 * LAYERS * 1e9 * slope([(4096 / b, s) for b, s in copied.items()]), 1),
    }))
