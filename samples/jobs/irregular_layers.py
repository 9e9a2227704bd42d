"""The layers of a small transformer that the irregular jobs share."""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn


def log_uniform(rng, least, greatest, multiple=8):
    """A whole number whose logarithm is uniform, rounded up to a multiple."""
    found = math.exp(rng.uniform(math.log(least), math.log(greatest)))
    return min(greatest, -(-int(found) // multiple) * multiple)


def randomness(opts):
    """What decides on the lengths of a job, apart from torch's own generators."""
    return random.Random(opts.seed)


class Attention(nn.Module):
    """Attention to x itself, to what was kept in `past`, or to a source."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, source=None, past=None, causal=False):
        query = self.split(self.query(x))
        key, value = (self.split(part) for part in self.key_value(x if source is None else source).chunk(2, -1))
        if past is not None:
            if past:
                key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
            past[:] = [key, value]
        found = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """One layer; with `cross` it attends to a source, too."""

    def __init__(self, width, heads, cross=False):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.between, self.cross = (nn.LayerNorm(width), Attention(width, heads)) if cross else (None, None)
        self.behind = nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, source=None, past=None, causal=True):
        x = x + self.attention(self.before(x), past=past, causal=causal)
        if self.cross is not None:
            x = x + self.cross(self.between(x), source=source)
        return x + self.wide(self.behind(x))


class Decoder(nn.Module):
    """A language model. `past` is a list for each layer, in which keys and values are kept."""

    def __init__(self, vocabulary, width, heads, layers):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, past=None):
        x = self.embed(tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x, past=None if past is None else past[i], causal=past is None or not past[i])
        return self.head(self.norm(x))


def next_token_loss(logits, tokens):
    """The mean loss of predicting each token from those before it."""
    return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def descend(optimizer, loss):
    """One step of training; the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
