"""Jobs that generate, load or cache: long prompts, weights and graphs, reinforcement learning, a stash. See irregular.py."""

import collections

import torch
import torch.nn.functional as F
from irregular_layers import Decoder, descend, log_uniform, next_token_loss, randomness
from torch import nn

# --- long prompts --------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    """One layer for inference. Keys and values of fewer heads grow by concatenation."""

    def __init__(self, width, heads, shared):
        super().__init__()
        self.heads, self.shared = heads, shared
        size = width // heads
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, (heads + 2 * shared) * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, past):
        parts = self.qkv(self.norm(x)).unflatten(-1, (self.heads + 2 * self.shared, -1)).transpose(1, 2)
        query, key, value = parts.split((self.heads, self.shared, self.shared), 1)
        if past:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        past[:] = [key, value]
        each = self.heads // self.shared
        key, value = key.repeat_interleave(each, 1), value.repeat_interleave(each, 1)
        x = x + self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return x + self.wide(x)


def prefill(opts, width=2048, heads=16, shared=4, layers=4, vocabulary=32000, chunk=8192, answer=24):
    """Each iteration is one prompt and its answer. A chunk attends to all of itself, too: the shapes are the same."""
    torch.backends.cuda.enable_flash_sdp(True)  # deterministic without a backward pass
    rng, done = randomness(opts), 0
    with torch.device("cuda"):
        model = nn.ModuleList(Layer(width, heads, shared) for _ in range(layers)).bfloat16().requires_grad_(False)
        embed, head = nn.Embedding(vocabulary, width).bfloat16(), nn.Linear(width, vocabulary, bias=False).bfloat16()

    @torch.no_grad()
    def step():
        nonlocal done
        done += 1
        length = 1 << 18 if done == 3 else log_uniform(rng, 1 << 13, 1 << 18)
        past, tokens = [[] for _ in model], torch.randint(vocabulary, (1, length)).cuda()
        pieces = list(tokens.split(chunk, 1))
        total = torch.zeros((), device="cuda")
        while pieces:
            x = embed(pieces.pop(0))
            for layer, kept in zip(model, past):
                x = layer(x, kept)
            logits = head(x[:, -1:])
            if not pieces and answer > past[0][0].shape[2] - length:
                pieces.append(logits.argmax(-1))
                total += logits.float().logsumexp(-1).mean()
        return total

    return step


# --- weights, then graphs ------------------------------------------------------------------------------------------

LARGE, SMALL = (530 << 20) // 4, (270 << 20) // 4  # numbers in the blocks in which weights arrive
WIDTH = 8192


def loading(opts, layers=12, sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256)):
    """Weights arrive in float32 and are kept in bfloat16. Then each batch size is captured, and replayed at random."""
    rng, weights, graphs, done = randomness(opts), [], {}, 0

    def arrive(numbers):
        block = torch.randn(numbers, device="cuda") * (0.5 * WIDTH**-0.5)
        return block.to(torch.bfloat16).view(WIDTH, -1)

    def load():
        for i in range(2 * layers):
            found = arrive(LARGE if i % 2 == 0 else SMALL)
            if len(weights) <= i:
                weights.append(found)
            else:
                weights[i].copy_(found)  # an update

    def forward(x):
        for wide, narrow in zip(weights[::2], weights[1::2]):
            x = x + F.gelu((x @ wide)[:, : narrow.shape[1]]) @ narrow.t()
            x = F.layer_norm(x, (WIDTH,))
        return x

    def capture():
        pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        for size in reversed(sizes):
            x = torch.ones(size, WIDTH, device="cuda", dtype=torch.bfloat16)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                forward(x)  # libraries allocate when they are first used
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = forward(x)
            graphs[size] = graph, x, y

    @torch.no_grad()
    def step():
        nonlocal done
        if done % 8 == 0:
            load()
        if done == 0:
            capture()
        done += 1
        size = rng.choice(sizes)
        graph, x, y = graphs[size]
        x.copy_(torch.randn(size, WIDTH).to(torch.bfloat16))
        graph.replay()
        return y.float().square().mean()

    return step


# --- reinforcement learning ----------------------------------------------------------------------------------------


def move_state(optimizer, device):
    """Moves the optimizer's state, all but its counters of steps."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step":
                state[name] = value.to(device)


@torch.no_grad()
def generate(model, prompts, lengths):
    """Answers of those lengths. Rows that have ended leave the batch, and their cache with them."""
    rows, past, last = list(range(len(lengths))), [[] for _ in model.layers], prompts
    answers = [[] for _ in rows]
    for position in range(max(lengths)):
        last = model(last, past)[:, -1].float().argmax(-1, keepdim=True)
        for row, token in zip(rows, last.flatten().tolist()):
            answers[row].append(token)
        staying = [at for at, row in enumerate(rows) if lengths[row] > position + 1]
        if position % 16 == 15 and len(staying) < len(rows):
            at = torch.tensor(staying, dtype=torch.long, device="cuda")
            rows, last = [rows[i] for i in staying], last.index_select(0, at)
            for kept in past:
                kept[:] = [part.index_select(0, at) for part in kept]
        if not rows:
            break
    return [answer[:length] for answer, length in zip(answers, lengths)]


def grpo(opts, vocabulary=16000, width=768, heads=12, layers=8, prompts=48, microbatch=12):
    rng = randomness(opts)
    model = Decoder(vocabulary, width, heads, layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def train(sequences, advantages):
        longest = max(map(len, sequences))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in sequences]).cuda()
        logits = model(tokens)[:, :-1].float()
        chosen = logits.log_softmax(-1).gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        loss = -(chosen.mean(1) * advantages).mean()
        loss.backward()
        return loss.detach()

    def step():
        move_state(optimizer, "cpu")
        asked = torch.randint(vocabulary, (prompts, rng.randint(16, 64)))
        lengths = [log_uniform(rng, 16, 192, 1) for _ in range(prompts)]
        answers = generate(model, asked.cuda(), lengths)
        move_state(optimizer, "cuda")
        rows = sorted((question + answer for question, answer in zip(asked.tolist(), answers)), key=len)
        advantages = torch.randn(prompts).cuda()
        optimizer.zero_grad()
        parts = range(0, prompts, microbatch)
        losses = [train(rows[i : i + microbatch], advantages[i : i + microbatch]) for i in parts]
        optimizer.step()
        return torch.stack(losses).mean()

    return step


# --- a stash -------------------------------------------------------------------------------------------------------

STASH = 77 << 10  # MiB


def stash(number, size):
    """A block of so many MiB, all of it written."""
    return torch.full((size << 18,), float(number % 251), device="cuda")


def beside(opts, change):
    """A job that changes its stash in each iteration and trains a small model beside it."""
    rng, vocabulary = randomness(opts), 8000
    model = Decoder(vocabulary, 512, 8, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        blocks = change(rng)
        tokens = torch.randint(vocabulary, (8, log_uniform(rng, 64, 512))).cuda()
        held = torch.stack([block[-1] for block in blocks]).mean()
        return descend(optimizer, next_token_loss(model(tokens), tokens)) + 1e-6 * held

    return step


def stash_soft(opts):
    """A cache of blocks of 16 to 1,024 MiB that evicts the oldest."""
    blocks, held, number = collections.deque(), 0, 0

    def change(rng):
        nonlocal held, number
        fresh = 0
        while fresh < STASH // 5 or held < STASH - 1024:
            size = log_uniform(rng, 16, 1024, 1)
            while held + size > STASH:
                held -= blocks.popleft().numel() >> 18
            blocks.append(stash(number, size))
            held, fresh, number = held + size, fresh + size, number + 1
        return blocks

    return beside(opts, change)


def stash_comb(opts):
    """Every other block is freed; blocks of one and a half times their size take their place."""
    blocks, number = [], 0

    def change(rng):
        nonlocal number
        first = not blocks
        del blocks[::2]
        held = sum(block.numel() >> 18 for block in blocks)
        while held < STASH - 1024:
            size = rng.randint(48, 384) if first else 3 * rng.randint(48, 384) // 2
            blocks.insert(len(blocks) if first else rng.randint(0, len(blocks)), stash(number, size))
            held, number = held + size, number + 1
        return blocks

    return beside(opts, change)
