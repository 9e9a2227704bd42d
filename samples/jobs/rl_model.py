"""A small transformer, and an engine that generates with it: cache, CUDA graphs, buffers.

The engine's memory has four tags, so that each part can be paused by itself: rollout_weights,
kv_cache, buffers (inputs, outputs, and working memory of the prefill), graphs (memory of the
captured decoding steps). Without memprof, tags have no effect.
"""

import contextlib
import time

import memprof
import rl_saver
import torch
from torch import nn
from torch.nn import functional as F

ENGINE_TAGS = ("rollout_weights", "kv_cache", "buffers", "graphs")


# What --shape sets: the sizes of Qwen2.5-7B, 7.6 billion parameters. Normalisation and positions are this file's.
SHAPES = {"qwen2.5-7b": dict(layers=28, width=3584, heads=28, kv_heads=4, inner=18944, words=152064, gated=True)}


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.head, self.gated = shape.width // shape.heads, shape.gated
        self.widths = [self.head * heads for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
        self.before, self.between = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.mix, self.out = nn.Linear(shape.width, sum(self.widths)), nn.Linear(shape.width, shape.width)
        self.up, self.down = nn.Linear(shape.width, shape.inner * (1 + shape.gated)), nn.Linear(shape.inner, shape.width)

    def forward(self, x, attend, layer):
        parts = self.mix(self.before(x)).split(self.widths, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head)) for part in parts)
        x = x + self.out(attend(layer, q, k, v).flatten(-2))
        inner = self.up(self.between(x))
        if not self.gated:
            return x + self.down(F.gelu(inner))
        gate, inner = inner.chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * inner)


class Policy(nn.Module):
    """forward(tokens, positions, attend, last): logits of all positions, or of the last one."""

    def __init__(self, shape):
        super().__init__()
        self.words, self.places = nn.Embedding(shape.words, shape.width), nn.Embedding(shape.length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.logits = nn.Linear(shape.width, shape.words, bias=False) if shape.gated else None  # else those of words
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens, positions, attend, last=False):
        x = self.words(tokens) + self.places(positions)
        for layer, block in enumerate(self.blocks):
            x = block(x, attend, layer)
        x = x[:, -1:] if last else x
        return F.linear(self.norm(x), self.words.weight) if self.logits is None else self.logits(self.norm(x))


def causal(layer, q, k, v):
    """Causal attention, without a cache."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)


@contextlib.contextmanager
def on_cuda(dtype):
    """Parameters made inside are made on the device and of that type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            yield
    finally:
        torch.set_default_dtype(before)


def parameters_of(policy):
    """Name and whole parameter, one after another; shards are gathered from all ranks."""
    for name, parameter in policy.named_parameters():
        parameter = parameter.detach()
        yield name, parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


class Engine:
    """Serves prompts of one length in waves of `batches` sequences, greedily, on a stream of its own.

    Libraries keep working memory for each stream. That of the engine's stream is made in the region buffers, and so is
    paused with them.

    `kv` is the size of the KV cache in bytes, or below 1 the share of the card that the weights and the cache have
    together. `sizes` says what each part took of the device, in bytes; `capture_ms` how long the graphs took.
    """

    def __init__(self, shape, batches, kv, stream, backup=None):
        self.shape, self.batches, self.stream = shape, batches, stream
        self.sizes, self.graphs = {}, {}
        with self._part("rollout_weights"), on_cuda(torch.bfloat16):
            self.model = Policy(shape)
        head = shape.width // shape.heads
        if kv < 1:
            kv = int(kv * torch.cuda.mem_get_info()[1]) - self.sizes["rollout_weights"]
        slots = kv // (2 * shape.layers * shape.kv_heads * head * 2)
        if slots < max(batches) * shape.length:
            raise ValueError(f"a cache of {kv} bytes has {slots} tokens: {max(batches) * shape.length} are needed")
        with self._part("kv_cache"):
            self.keys, self.values = (torch.zeros(shape.layers, slots, shape.kv_heads, head, dtype=torch.bfloat16, device="cuda") for _ in range(2))
            memprof.label(self.keys, "kv_cache", "keys")
            memprof.label(self.values, "kv_cache", "values")
        with self._part("buffers"):
            self.last = torch.zeros(max(batches), 1, dtype=torch.int64, device="cuda")
            self.result = torch.zeros(max(batches), shape.length, dtype=torch.int64, device="cuda")
            self.position = torch.zeros(1, dtype=torch.int64, device="cuda")
            self.everywhere = torch.arange(shape.length, device="cuda")
            self._warm_up()
        with self._part("graphs", backup, rl_saver.graph_region):
            start = time.perf_counter()
            self._capture()
            torch.cuda.synchronize()
        self.capture_ms = round((time.perf_counter() - start) * 1e3, 1)

    @contextlib.contextmanager
    def _part(self, tag, backup=None, region=rl_saver.region):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        with region(tag, backup=backup):
            yield
        torch.cuda.empty_cache()
        self.sizes[tag] = torch.cuda.memory_reserved() - before

    @torch.no_grad()
    def _warm_up(self):
        """Has libraries allocate now what they allocate at first use, so that they do not in a capture."""
        with self._own_stream():
            for batch in self.batches:
                self._decode(batch)
            self._prefill(self.result[:, :1])

    @contextlib.contextmanager
    def _own_stream(self):
        """The block's work comes after what was queued before it, and before what is queued after it."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)

    @torch.no_grad()
    def _capture(self):
        """Captures the largest first, so that smaller ones fit into its memory."""
        pool = None
        for batch in sorted(self.batches, reverse=True):
            graph = torch.cuda.CUDAGraph()
            with rl_saver.capture(graph, pool, self.stream, "graphs"):
                self._decode(batch)
            pool = graph.pool()
            self.graphs[batch] = graph

    def _cache(self, layer, batch):
        used = slice(0, batch * self.shape.length)
        return (cache[layer, used].unflatten(0, (batch, -1)) for cache in (self.keys, self.values))

    def _prefill(self, prompts):
        batch, length = prompts.shape

        def attend(layer, q, k, v):
            for cache, new in zip(self._cache(layer, batch), (k, v)):
                cache[:, :length] = new
            return causal(layer, q, k, v)

        logits = self.model(prompts, self.everywhere[:length], attend, last=True)
        self.last[:batch] = logits[:, -1].float().argmax(-1, keepdim=True)

    def _decode(self, batch):
        """One token more for each sequence; all that differs between calls is in buffers."""

        def attend(layer, q, k, v):
            keys, values = self._cache(layer, batch)
            keys.index_copy_(1, self.position, k)
            values.index_copy_(1, self.position, v)
            q = q.squeeze(1).unflatten(1, (keys.shape[2], -1))  # by head of the cache
            scores = q @ keys.permute(0, 2, 3, 1) * q.shape[-1] ** -0.5
            scores = scores.float().masked_fill(self.everywhere > self.position, float("-inf"))
            return (scores.softmax(-1).to(values.dtype) @ values.transpose(1, 2)).flatten(1, 2).unsqueeze(1)

        self.result[:batch].index_copy_(1, self.position, self.last[:batch])
        logits = self.model(self.last[:batch], self.position, attend, last=True)
        self.last[:batch] = logits[:, -1].float().argmax(-1, keepdim=True)
        self.position += 1

    @torch.no_grad()
    def load(self, parameters):
        """Takes the values of (name, tensor) pairs, of whatever type."""
        mine = dict(self.model.named_parameters())
        for name, tensor in parameters:
            mine[name].copy_(tensor)

    @torch.no_grad()
    def generate(self, prompts):
        """Generates from prompts on the host, up to the model's length."""
        # After a resume without a backup the content is undefined, and masked values, too, must be numbers.
        used = max(self.batches) * self.shape.length
        waves, length = [], prompts.shape[1]
        with rl_saver.region("buffers"), self._own_stream():
            self.keys[:, :used].zero_()
            self.values[:, :used].zero_()
            for batch in self.batches:
                wave, prompts = prompts[:batch].cuda(), prompts[batch:]
                self.everywhere.copy_(torch.arange(self.shape.length))
                self.result[:batch, :length] = wave
                self._prefill(wave)
                self.position.fill_(length)
                for _ in range(self.shape.length - length):
                    self.graphs[batch].replay()
                waves.append(self.result[:batch].cpu())
                del wave
        return torch.cat(waves)

    def pause(self, *tags):
        rl_saver.pause(*tags or ENGINE_TAGS)

    def resume(self, *tags):
        rl_saver.resume(*tags or ENGINE_TAGS)
