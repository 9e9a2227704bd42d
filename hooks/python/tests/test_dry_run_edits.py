"""Dry runs with --checkpoint and --offload, compared with the same script edited by hand."""

import unittest

from dry_run import DryRunCase

LOGITS = 8 * 128 * 4000 * 4  # bytes

SCRIPT = """
from torch import nn
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm, self.up, self.down, self.drop = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)
    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.tail = nn.ModuleList(Block() for _ in range(4)), nn.Sequential(Block(), Block())
        self.head = nn.Linear(64, 4000)
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if i in BY_HAND else block(x)
        x = checkpoint(self.tail, x, use_reentrant=False) if "tail" in BY_HAND else self.tail(x)
        return self.head(x)
model = Model().cuda()
host = [p.detach().cpu() for p in model.parameters()] if "offload" in BY_HAND else list(model.parameters())
optimizer = torch.optim.AdamW(host)
for _ in range(3):
    model.zero_grad()
    model(torch.randn(8, 128, 64, device="cuda")).square().mean().backward()
    if "offload" in BY_HAND:
        for h, p in zip(host, model.parameters()):
            h.grad = p.grad.cpu()
    optimizer.step()
    if "offload" in BY_HAND:
        with torch.no_grad():
            for h, p in zip(host, model.parameters()):
                p.copy_(h)
"""


class EditsTest(DryRunCase):
    made = {}  # by flags and edits by hand

    def plan(self, *flags, by_hand=()):
        """The bytes of the requests, T where the first forward has ended, and the greatest T."""
        if (flags, by_hand) not in self.made:
            plan, printed = self.script("BY_HAND = %r" % (by_hand,) + SCRIPT, flags=flags)
            self.made[flags, by_hand] = self.requests(plan), (self.peak(plan, until=LOGITS), self.peak(plan)), printed
        return self.made[flags, by_hand]

    def same(self, *flags, by_hand):
        """The edit by flags makes the requests of that by hand. Returns the bytes that it saves after the forward, and of the peak."""
        requests, greatest, printed = self.plan(*flags)
        expected, expected_greatest, _ = self.plan(by_hand=by_hand)
        self.assertEqual(greatest, expected_greatest)
        self.assertEqual(requests, expected)
        return [before - now for before, now in zip(self.plan()[1], greatest)], printed

    def test_one_module(self):
        saved, printed = self.same("--checkpoint", "blocks.2", by_hand=(2,))
        # The block keeps its input alone, not the norm and its mean and deviation, two arrays of 256 channels, and the
        # dropout's mask: 1,024 rows.
        self.assertEqual(saved[0], 1024 * (4 * 64 + 2 * 4 + 2 * 4 * 256 + 64))
        self.assertIn("dry run: --checkpoint blocks.2 wraps blocks.2", printed)

    def test_all_of_a_kind(self):
        saved, printed = self.same("--checkpoint", "blocks.*", by_hand=(0, 1, 2, 3))
        self.assertGreater(saved[1], 0)
        self.assertIn("blocks.0, blocks.1, blocks.2 and 1 more", printed)

    def test_a_list_is_its_modules(self):
        self.same("--checkpoint", "blocks", by_hand=(0, 1, 2, 3))

    def test_a_module_that_works_in_place_is_left_alone(self):
        text = """
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2)).cuda()
        net(torch.randn(2, 3, 18, 18, device="cuda")).sum().backward()
        """
        plain, edited = (self.peak(self.script(text, flags=flags)[0], until=4) for flags in ((), ("--checkpoint", "*")))  # at the sum
        saved = plain - edited
        self.assertEqual(saved, 2 * 8 * 8 * 8 * 8)  # the indices of the pool

    def test_a_sequence_is_one_module(self):
        self.same("--checkpoint", "tail", "--checkpoint", "blocks.0", by_hand=(0, "tail"))

    def test_the_optimizer_on_the_host(self):
        saved, printed = self.same("--offload", "optimizer", by_hand=("offload",))
        self.assertEqual(saved[0], 0)  # there is no state yet
        self.assertIn("--offload optimizer", printed)

    def test_a_name_that_no_module_has(self):
        _, printed = self.script("BY_HAND = ()" + SCRIPT, flags=("--checkpoint", "block.1"), status=2)
        self.assertIn("--checkpoint block.1: the job called no module of that name; the nearest are blocks.1", printed)


if __name__ == "__main__":
    unittest.main()
