"""A small transformer, and an engine that generates with it: cache, CUDA graphs, buffers.

The engine's memory has four tags, so that each part can be paused by itself: rollout_weights,
kv_cache, buffers (inputs, outputs, and working memory of the prefill), graphs (memory of the
captured decoding steps). Without memprof, tags have no effect.
"""

import contextlib

import memprof
import torch
from torch import nn
from torch.nn import functional as F

ENGINE_TAGS = ("rollout_weights", "kv_cache", "buffers", "graphs")


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.before, self.between = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.mix, self.out = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.up, self.down = nn.Linear(shape.width, 4 * shape.width), nn.Linear(4 * shape.width, shape.width)

    def forward(self, x, attend, layer):
        parts = self.mix(self.before(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        x = x + self.out(attend(layer, q, k, v).flatten(-2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Policy(nn.Module):
    """forward(tokens, positions, attend, last): logits of all positions, or of the last one."""

    def __init__(self, shape):
        super().__init__()
        self.words, self.places = nn.Embedding(shape.words, shape.width), nn.Embedding(shape.length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens, positions, attend, last=False):
        x = self.words(tokens) + self.places(positions)
        for layer, block in enumerate(self.blocks):
            x = block(x, attend, layer)
        x = x[:, -1:] if last else x
        return F.linear(self.norm(x), self.words.weight)


def causal(layer, q, k, v):
    """Causal attention, without a cache."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


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
    """Serves prompts of one length in waves of `batches` sequences, greedily.

    `sizes` says what each part took of the device, in bytes.
    """

    def __init__(self, shape, batches, kv_bytes, stream, backup=None):
        self.shape, self.batches, self.stream = shape, batches, stream
        self.sizes, self.graphs = {}, {}
        with self._part("rollout_weights"), on_cuda(torch.bfloat16):
            self.model = Policy(shape)
        head = shape.width // shape.heads
        slots = kv_bytes // (2 * shape.layers * shape.width * 2)
        if slots < max(batches) * shape.length:
            raise ValueError(f"a cache of {kv_bytes} bytes has {slots} tokens: {max(batches) * shape.length} are needed")
        with self._part("kv_cache"):
            self.keys, self.values = (torch.zeros(shape.layers, slots, shape.heads, head, dtype=torch.bfloat16, device="cuda") for _ in range(2))
            memprof.label(self.keys, "kv_cache", "keys")
            memprof.label(self.values, "kv_cache", "values")
        with self._part("buffers"):
            self.last = torch.zeros(max(batches), 1, dtype=torch.int64, device="cuda")
            self.result = torch.zeros(max(batches), shape.length, dtype=torch.int64, device="cuda")
            self.position = torch.zeros(1, dtype=torch.int64, device="cuda")
            self.everywhere = torch.arange(shape.length, device="cuda")
            self._warm_up()
        with self._part("graphs", backup):
            self._capture()

    @contextlib.contextmanager
    def _part(self, tag, backup=None):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        with memprof.region(tag, backup=backup):
            yield
        torch.cuda.empty_cache()
        self.sizes[tag] = torch.cuda.memory_reserved() - before

    @torch.no_grad()
    def _warm_up(self):
        """Has libraries allocate now what they allocate at first use, so that they do not in a capture."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for batch in self.batches:
                self._decode(batch)
        torch.cuda.current_stream().wait_stream(self.stream)
        self._prefill(self.result[:, :1])

    @torch.no_grad()
    def _capture(self):
        """Captures the largest first, so that smaller ones fit into its memory."""
        pool = None
        for batch in sorted(self.batches, reverse=True):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=self.stream):
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
            scores = q.transpose(1, 2) @ keys.permute(0, 2, 3, 1) * q.shape[-1] ** -0.5
            scores = scores.float().masked_fill(self.everywhere > self.position, float("-inf"))
            return (scores.softmax(-1).to(values.dtype) @ values.transpose(1, 2)).transpose(1, 2)

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
        self.keys[:, :used].zero_()
        self.values[:, :used].zero_()
        waves, length = [], prompts.shape[1]
        with memprof.region("buffers"):
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
        memprof.pause(*tags or ENGINE_TAGS)

    def resume(self, *tags):
        memprof.resume(*tags or ENGINE_TAGS)
