"""Jobs that no policy was chosen by: a detector, a server, and sequences that grow. irregular.py runs them."""

import torch
import torch.nn.functional as F
from irregular_layers import Decoder, descend, log_uniform, next_token_loss, randomness
from torch import nn

# --- a detector ----------------------------------------------------------------------------------------------------


def down(inputs, outputs):
    """A layer that halves the resolution."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.GroupNorm(8, outputs), nn.ReLU())


class Detector(nn.Module):
    """Proposes boxes at each place of two resolutions, drops those that overlap a better one, and classifies the rest."""

    def __init__(self, width=96, classes=80):
        super().__init__()
        self.stem = nn.Sequential(down(3, width // 2), down(width // 2, width), down(width, 2 * width))
        self.coarse = down(2 * width, 2 * width)
        self.propose = nn.Conv2d(2 * width, 5, 1)  # a score, and how far the sides are from the centre
        self.classify = nn.Sequential(nn.Linear(2 * width, 1024), nn.ReLU(), nn.Linear(1024, classes))

    def proposals(self, features, stride):
        """Scores, boxes and features of all places."""
        found = self.propose(features).flatten(2)[0]
        rows, columns = features.shape[2:]
        places = torch.arange(rows * columns, device=features.device)
        centre = torch.stack((places % columns, places // columns)).float() * stride
        size = found[1:].exp() * stride
        return found[0], torch.cat((centre - size[:2], centre + size[2:])), features.flatten(2)[0]

    def forward(self, image, most):
        fine = self.stem(image)
        parts = [self.proposals(fine, 8), self.proposals(self.coarse(fine), 16)]
        scores, boxes, features = (torch.cat(of, -1) for of in zip(*parts))
        best = scores.topk(min(most, scores.numel())).indices
        kept = best[self.keeps(boxes[:, best].detach())]
        return self.classify(features[:, kept].t()), scores[kept]

    def keeps(self, boxes):
        """Which boxes overlap none of the better ones by more than half: the matrix is of all pairs."""
        left, top, right, bottom = boxes
        width = (torch.minimum(right[:, None], right) - torch.maximum(left[:, None], left)).clamp(min=0)
        height = (torch.minimum(bottom[:, None], bottom) - torch.maximum(top[:, None], top)).clamp(min=0)
        area = (right - left) * (bottom - top)
        both = width * height
        overlaps = both / (area[:, None] + area - both) > 0.5
        return (overlaps.tril(-1).sum(1) == 0).nonzero().flatten()


def detection(opts, batch=2):
    """Images of different sizes, one at a time, and as many boxes as they have."""
    rng = randomness(opts)
    model = Detector().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step():
        total = 0
        for _ in range(batch):
            image = torch.randn(1, 3, log_uniform(rng, 320, 1280, 32), log_uniform(rng, 320, 1280, 32)).cuda()
            classes, scores = model(image, log_uniform(rng, 500, 4000))
            wanted = torch.randint(classes.shape[1], (classes.shape[0],)).cuda()
            total = total + F.cross_entropy(classes, wanted) + scores.square().mean()
        return descend(optimizer, total)

    return step


# --- a server ------------------------------------------------------------------------------------------------------


class Sequence:
    """A request: its keys and values by layer, its next token, and how many more it wants."""

    def __init__(self, model, tokens, wanted):
        self.past, self.wanted = [[] for _ in model.layers], wanted
        self.advance(model, tokens)

    def advance(self, model, tokens):
        self.token = model(tokens, past=self.past)[:, -1:].argmax(-1)
        self.wanted -= 1


def serving(opts, vocabulary=16000, width=1024, heads=16, layers=6, most=12):
    """Requests come and go; each step gives each of them a token. The host is the bottleneck."""
    rng = randomness(opts)
    model = Decoder(vocabulary, width, heads, layers).cuda().bfloat16().eval()
    active = []

    def arrive():
        prompt = torch.randint(vocabulary, (1, log_uniform(rng, 32, 6144, 1))).cuda()
        active.append(Sequence(model, prompt, log_uniform(rng, 4, 256, 1)))

    @torch.no_grad()
    def step():
        while len(active) < rng.randint(1, most):
            arrive()
        for sequence in active:
            sequence.advance(model, sequence.token)
        total = torch.stack([sequence.token.sum() for sequence in active]).sum()
        active[:] = [sequence for sequence in active if sequence.wanted > 0]
        return total.double()

    return step


# --- sequences that grow -------------------------------------------------------------------------------------------


def growing(opts, batch=8, vocabulary=16000, width=768, heads=12, layers=6, least=64, greatest=1536, by=24):
    """Each step's sequences are longer than the last one's, up to the greatest length, and then short again."""
    model = Decoder(vocabulary, width, heads, layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    length = least

    def step():
        nonlocal length
        tokens = torch.randint(vocabulary, (batch, length)).cuda()
        length = length + by if length + by <= greatest else least
        return descend(optimizer, next_token_loss(model(tokens), tokens))

    return step
