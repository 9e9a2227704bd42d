"""Attention over a ring of blocks, and translation with beam search between epochs. See irregular.py."""

import torch
import torch.nn.functional as F
from irregular_layers import Block, descend, log_uniform, next_token_loss, randomness
from torch import nn

# --- sequence-parallel attention -----------------------------------------------------------------------------------

HOPS = 4  # blocks of keys and values that come around


def travel(tensors, shift, wire):
    """The tensors as the next rank would get them, on the stream `wire`. There is one card: heads change instead.

    As libraries do it, each side tells the allocator of the other's stream and forgets its tensors.
    """
    here = torch.cuda.current_stream()
    wire.wait_stream(here)
    found = []
    with torch.cuda.stream(wire):
        for tensor in tensors:
            tensor.record_stream(wire)
            arrived = torch.empty_like(tensor)
            arrived.copy_(tensor.roll(shift, 0))
            arrived.record_stream(here)
            found.append(arrived)
    return found


class Ring(torch.autograd.Function):
    """Attention of this rank's queries (heads, length, size) to all blocks; they travel while one is used."""

    @staticmethod
    def forward(ctx, query, key, value, wire):
        scale, here = query.shape[-1] ** -0.5, torch.cuda.current_stream()
        out, total, block = None, None, [key, value]
        for hop in range(HOPS):
            coming = travel(block, 1, wire) if hop + 1 < HOPS else None
            scores = (query @ block[0].transpose(1, 2)).float() * scale
            part = scores.logsumexp(-1, keepdim=True)
            found = (scores - part).exp().to(query.dtype) @ block[1]
            if out is None:
                out, total = found.float(), part
            else:
                both = torch.logaddexp(total, part)
                out = out * (total - both).exp() + found * (part - both).exp()
                total = both
            if coming:
                here.wait_stream(wire)
                block = coming
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, total)
        ctx.wire = wire
        return out

    @staticmethod
    def backward(ctx, grad):
        query, key, value, out, total = ctx.saved_tensors
        scale, here = query.shape[-1] ** -0.5, torch.cuda.current_stream()
        share = (grad * out).float().sum(-1, keepdim=True)
        block, query_grad, sums = [key.roll(HOPS - 1, 0), value.roll(HOPS - 1, 0)], torch.zeros_like(query), None
        for hop in reversed(range(HOPS)):
            coming = travel(block, -1, ctx.wire) if hop else None
            weights = ((query @ block[0].transpose(1, 2)).float() * scale - total).exp()
            value_grad = weights.to(grad.dtype).transpose(1, 2) @ grad
            scores = (weights * ((grad @ block[1].transpose(1, 2)).float() - share) * scale).to(grad.dtype)
            del weights
            query_grad += scores @ block[0]
            here.wait_stream(ctx.wire)
            own = [scores.transpose(1, 2) @ query, value_grad]
            sums = own if sums is None else [a + b for a, b in zip(sums, own)]
            if hop:
                sums = travel(sums, -1, ctx.wire)
                here.wait_stream(ctx.wire)
                block = coming
        return query_grad, sums[0], sums[1], None


class RingBlock(nn.Module):
    def __init__(self, width, heads, wire):
        super().__init__()
        self.heads, self.wire = heads, wire
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = [part.unflatten(-1, (self.heads, -1)).transpose(0, 1).contiguous() for part in self.qkv(self.before(x)).chunk(3, -1)]
        x = x + self.out(Ring.apply(*parts, self.wire).transpose(0, 1).flatten(1))
        return x + self.wide(self.behind(x))


def ring(opts, width=1024, heads=16, layers=4):
    rng, wire = randomness(opts), torch.cuda.Stream()
    model = nn.Sequential(*(RingBlock(width, heads, wire) for _ in range(layers))).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        x = torch.randn(log_uniform(rng, 1024, 4096, 64), width).cuda().to(torch.bfloat16)
        return descend(optimizer, F.mse_loss(model(x).float(), x.float().roll(1, 0)))

    return step


# --- translation ---------------------------------------------------------------------------------------------------


class Translator(nn.Module):
    def __init__(self, vocabulary, width, heads, layers):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.encoder = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.decoder = nn.ModuleList(Block(width, heads, cross=True) for _ in range(layers))

    def encode(self, tokens):
        x = self.embed(tokens)
        for layer in self.encoder:
            x = layer(x, causal=False)
        return x

    def decode(self, tokens, source, past=None):
        x = self.embed(tokens)
        for i, layer in enumerate(self.decoder):
            x = layer(x, source=source, past=None if past is None else past[i], causal=past is None or not past[i])
        return self.head(x)


@torch.no_grad()
def beam_search(model, tokens, steps, beams=6):
    """The score of the best translation of each row, of so many steps."""
    batch = tokens.shape[0]
    source = model.encode(tokens).repeat_interleave(beams, 0)
    past = [[] for _ in model.decoder]
    last = torch.zeros(batch * beams, 1, dtype=torch.long, device="cuda")
    scores = torch.zeros(batch, beams, device="cuda")
    scores[:, 1:] = -1e4  # the beams begin alike
    row = torch.arange(batch, device="cuda").unsqueeze(1) * beams
    for _ in range(steps):
        found = model.decode(last, source, past)[:, -1].float().log_softmax(-1)
        words = found.shape[-1]
        best = (scores.unsqueeze(-1) + found.view(batch, beams, words)).flatten(1).topk(beams)
        scores, origin = best.values, (row + best.indices // words).flatten()
        last = (best.indices % words).view(-1, 1)
        for kept in past:
            kept[:] = [part.index_select(0, origin) for part in kept]
    return scores.max(1).values.mean()


def seq2seq(opts, vocabulary=12000, width=512, heads=8, layers=4, epoch=6, tokens=12288):
    rng = randomness(opts)
    model = Translator(vocabulary, width, heads, layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    done = 0

    def evaluate():
        for _ in range(2):
            batch = torch.randint(vocabulary, (rng.randint(12, 32), log_uniform(rng, 24, 160))).cuda()
            print(f"beams {beam_search(model, batch, rng.randint(24, 56)).item():.6f}")

    def step():
        nonlocal done
        if done and done % epoch == 0:
            evaluate()
        done += 1
        length = log_uniform(rng, 24, 384)
        sources = torch.randint(vocabulary, (tokens // length, length)).cuda()
        targets = torch.randint(vocabulary, (tokens // length, rng.randint(length // 2, length))).cuda()
        return descend(optimizer, next_token_loss(model.decode(targets, model.encode(sources)), targets))

    return step
