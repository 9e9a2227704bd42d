"""Training jobs whose iterations differ: adapters, experts, a pipeline, shards, images, graphs. See irregular.py."""

import os

import torch
import torch.nn.functional as F
from irregular_layers import Block, Decoder, descend, log_uniform, next_token_loss, randomness
from torch import nn
from torch.utils.checkpoint import checkpoint

# --- adapters on 4-bit weights -------------------------------------------------------------------------------------

GROUP = 64  # weights that share a scale


def dequantize(codes, scales):
    """The weights of two 4-bit codes a byte: rows of bfloat16."""
    pairs = torch.stack((codes >> 4, codes & 15), -1).to(torch.bfloat16).sub_(7.5)
    return (pairs.view(codes.shape[0], -1, GROUP) * scales.unsqueeze(-1)).view(codes.shape[0], -1)


class Quantized(torch.autograd.Function):
    """x times weights that are dequantized for the product, and again for its backward pass."""

    @staticmethod
    def forward(ctx, x, codes, scales):
        ctx.save_for_backward(codes, scales)
        return x @ dequantize(codes, scales).t()

    @staticmethod
    def backward(ctx, grad):
        return grad @ dequantize(*ctx.saved_tensors), None, None


class Adapted(nn.Module):
    """A linear layer of frozen 4-bit weights with a trained adapter of low rank."""

    def __init__(self, inputs, outputs, rank=16):
        super().__init__()
        self.register_buffer("codes", torch.randint(256, (outputs, inputs // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(outputs, inputs // GROUP, dtype=torch.bfloat16) * (0.25 * inputs**-0.5))
        self.down = nn.Parameter(torch.randn(rank, inputs, dtype=torch.bfloat16) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank, dtype=torch.bfloat16))

    def forward(self, x):
        return Quantized.apply(x, self.codes, self.scales) + (x @ self.down.t()) @ self.up.t()


class AdaptedBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width, dtype=torch.bfloat16), nn.LayerNorm(width, dtype=torch.bfloat16)
        self.qkv, self.out = Adapted(width, 3 * width), Adapted(width, width)
        self.gate, self.rise, self.fall = Adapted(width, 3 * width), Adapted(width, 3 * width), Adapted(3 * width, width)

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        normed = self.behind(x)
        return x + self.fall(F.silu(self.gate(normed)) * self.rise(normed))


def qlora(opts, batch=4, width=2048, heads=16, layers=10, vocabulary=32000):
    rng = randomness(opts)
    embed = nn.Embedding(vocabulary, width, dtype=torch.bfloat16).cuda().requires_grad_(False)
    blocks = nn.ModuleList(AdaptedBlock(width, heads) for _ in range(layers)).cuda()
    head = nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16).cuda().requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in blocks.parameters() if p.requires_grad], lr=1e-4)

    def step():
        tokens = torch.randint(vocabulary, (batch, log_uniform(rng, 128, 2048))).cuda()
        x = embed(tokens).requires_grad_()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return descend(optimizer, next_token_loss(head(x), tokens))

    return step


# --- a mixture of experts ------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """A layer of experts. Each token goes to the two that a noisy router prefers."""

    def __init__(self, width, hidden, count):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, count, bias=False)
        self.up = nn.ParameterList([torch.randn(width, hidden) * width**-0.5 for _ in range(count)])
        self.down = nn.ParameterList([torch.randn(hidden, width) * hidden**-0.5 for _ in range(count)])

    def forward(self, x):
        normed = self.norm(x)
        scores = self.router(normed)
        best = (scores + torch.randn_like(scores)).topk(2, -1)
        weights, out = best.values.softmax(-1), torch.zeros_like(x)
        for expert, (up, down) in enumerate(zip(self.up, self.down)):
            rows, slots = (best.indices == expert).nonzero(as_tuple=True)
            found = F.gelu(normed[rows] @ up) @ down
            out.index_add_(0, rows, found * weights[rows, slots].unsqueeze(-1))
        return x + out


def moe64(opts, width=768, hidden=1024, experts=64, layers=3, vocabulary=16000):
    rng = randomness(opts)
    embed, head = nn.Embedding(vocabulary, width).cuda(), nn.Linear(width, vocabulary, bias=False).cuda()
    attentions = nn.ModuleList(Block(width, 12) for _ in range(layers)).cuda()
    mixtures = nn.ModuleList(Experts(width, hidden, experts) for _ in range(layers)).cuda()
    parameters = [p for part in (embed, attentions, mixtures, head) for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def step():
        tokens = torch.randint(vocabulary, (8, log_uniform(rng, 384, 1024))).cuda()
        x = embed(tokens)
        for attention, mixture in zip(attentions, mixtures):
            x = mixture(attention(x).flatten(0, 1)).view_as(x)
        return descend(optimizer, next_token_loss(head(x), tokens))

    return step


# --- one rank of an interleaved pipeline ---------------------------------------------------------------------------


def interleaved(microbatches, stages, rank, chunks):
    """What a rank does: (forward, microbatch, chunk), warming up, then one forward and one backward in turns."""
    groups = [range(first, first + stages) for first in range(0, microbatches, stages)]
    forwards = [(m, c) for group in groups for c in range(chunks) for m in group]
    backwards = [(m, chunks - 1 - c) for group in groups for c in range(chunks) for m in group]
    warmup = min(len(forwards), 2 * (stages - rank - 1) + (chunks - 1) * stages)
    found = [(True, *at) for at in forwards[:warmup]]
    for forward, backward in zip(forwards[warmup:], backwards):
        found += [(True, *forward), (False, *backward)]
    return found + [(False, *at) for at in backwards[len(forwards) - warmup :]]


def pipeline(opts, width=1024, heads=16, layers=3, stages=4, rank=1, chunks=2, microbatches=8):
    """The other ranks are not there: what they would send is computed from what this one sent."""
    rng = randomness(opts)
    parts = nn.ModuleList(nn.Sequential(*(Block(width, heads) for _ in range(layers))) for _ in range(chunks)).cuda()
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4)
    schedule = interleaved(microbatches, stages, rank, chunks)

    def step():
        lengths = [log_uniform(rng, 256, 1536, 64) for _ in range(microbatches)]
        arrived, grads, kept, losses = {}, {}, {}, []
        optimizer.zero_grad()
        for forward, m, c in schedule:
            if forward:
                x = arrived.pop(m) if c else torch.randn(2, lengths[m], width, device="cuda")
                x.requires_grad_()
                kept[m, c] = x, parts[c](x)
                if c + 1 < chunks:
                    arrived[m] = kept[m, c][1].detach().clone()
            else:
                x, y = kept.pop((m, c))
                if c + 1 == chunks:
                    losses.append(y.detach().square().mean())
                y.backward(grads.pop(m) if c + 1 < chunks else y.detach() * (2 / y.numel()))
                if c:
                    grads[m] = x.grad.clone()
        optimizer.step()
        return torch.stack(losses).mean()

    return step


# --- sharded parameters --------------------------------------------------------------------------------------------


def fsdp2(opts, vocabulary=32000, width=1536, heads=16, layers=8):
    from torch.distributed.fsdp import fully_shard

    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
    rng = randomness(opts)
    model = Decoder(vocabulary, width, heads, layers).cuda()
    once = torch.cuda.Stream()
    with torch.cuda.stream(once):  # as a check of the weights would, before the first iteration
        once.wait_stream(torch.cuda.default_stream())
        norms = [parameter.double().square().sum() for parameter in model.parameters()]
        print(f"weights {torch.stack(norms).sum().item():.6e}")
    del norms
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        tokens = torch.randint(vocabulary, (4, log_uniform(rng, 128, 1024))).cuda()
        return descend(optimizer, next_token_loss(model(tokens), tokens))

    return step


# --- images of several aspect ratios -------------------------------------------------------------------------------

BUCKETS = ((128, 128), (112, 144), (144, 112), (96, 160), (160, 96), (80, 192), (192, 80), (64, 64), (96, 96))


def conv(inputs, outputs):
    return nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(conv(inputs, outputs), conv(outputs, outputs))
        self.side = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return self.side(x) + self.body(x)


class Unet(nn.Module):
    """Three resolutions, attention at the lowest."""

    def __init__(self, widths=(96, 192, 384)):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, widths[0], 3, padding=1), conv(widths[0], 4)
        self.down = nn.ModuleList(Residual(w, w) for w in widths[:-1])
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.middle, self.attend = Residual(widths[-1], widths[-1]), Block(widths[-1], 8)
        self.grow = nn.ModuleList(nn.Conv2d(b, 4 * a, 1) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(Residual(2 * w, w) for w in widths[:-1])

    def forward(self, x):
        x, kept = self.first(x), []
        for body, shrink in zip(self.down, self.shrink):
            x = body(x)
            kept.append(x)
            x = shrink(x)
        x = self.middle(x)
        x = self.attend(x.flatten(2).transpose(1, 2), causal=False).transpose(1, 2).reshape(x.shape)
        for body, grow, side in reversed(list(zip(self.up, self.grow, kept))):
            x = body(torch.cat((F.pixel_shuffle(grow(x), 2), side), 1))
        return self.last(x)


def diffusion(opts, batch=12):
    rng = randomness(opts)
    model, average = Unet().cuda(), Unet().cuda().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        images = torch.randn(batch, 4, *rng.choice(BUCKETS)).cuda()
        noise = torch.randn_like(images)
        share = torch.rand(batch, 1, 1, 1, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            found = model(images * (1 - share) + noise * share)
        loss = descend(optimizer, F.mse_loss(found.float(), noise - images))
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters()):
                mean.lerp_(parameter, 0.01)
        return loss

    return step


# --- batches of graphs ---------------------------------------------------------------------------------------------


class Messages(nn.Module):
    """One round of messages along edges, summed at the nodes."""

    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, sources, targets):
        messages = self.message(torch.cat((x[sources], x[targets]), -1))
        return self.norm(x + torch.zeros_like(x).index_add_(0, targets, messages))


def graphs(opts, count=48, width=192, rounds=4, degree=10):
    rng = randomness(opts)
    model = nn.ModuleList(Messages(width) for _ in range(rounds)).cuda()
    enter, leave = nn.Linear(32, width).cuda(), nn.Linear(width, 1).cuda()
    optimizer = torch.optim.Adam([p for part in (model, enter, leave) for p in part.parameters()], lr=1e-3)

    def edges(sizes):
        first, ends = 0, []
        for size in sizes:
            ends.append(first + torch.randint(size, (2, size * degree)))
            first += size
        return torch.cat(ends, 1).cuda()

    def step():
        sizes = [min(4000, 8 + int(rng.lognormvariate(5.5, 1.0))) for _ in range(count)]
        sources, targets = edges(sizes)
        owner = torch.repeat_interleave(torch.arange(count), torch.tensor(sizes)).cuda()
        x = enter(torch.randn(sum(sizes), 32).cuda())
        for layer in model:
            x = layer(x, sources, targets)
        found = torch.zeros(count, 1, device="cuda").index_add_(0, owner, leave(x))
        return descend(optimizer, F.mse_loss(found, torch.randn(count, 1).cuda()))

    return step
