"""Dry runs with --checkpoint and --offload, compared with the same script edited by hand."""

import unittest

from dry_run import DryRunCase, peak_of, requests_of, together

LOGITS = 8 * 128 * 4000 * 4  # bytes
ONCE = 16  # bytes of requests that a dry run makes by itself, in the first backward pass of a process

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


IN_PLACE = """
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2)).cuda()
net(torch.randn(2, 3, 18, 18, device="cuda")).sum().backward()
"""


class EditsTest(DryRunCase):
    # The script without flags, by edits by hand.
    BY_HAND = {edits: together.add("BY_HAND = %r" % (edits,) + SCRIPT) for edits in ((), (2,), (0, 1, 2, 3), (0, "tail"), ("offload",))}
    UNEDITED_IN_PLACE = together.add(IN_PLACE)

    def made(self, events):
        """The bytes of the requests, T where the first forward has ended, and the greatest T."""
        return [n for n in requests_of(events) if n != ONCE], (peak_of(events, until=LOGITS), peak_of(events))

    def same(self, *flags, by_hand):
        """The edit by flags makes the requests of that by hand. Returns the bytes that it saves after the forward, and of the peak."""
        plan, printed = self.script("BY_HAND = ()" + SCRIPT, flags=flags)
        requests, greatest = self.made(self.events(plan))
        expected, expected_greatest = self.made(together.events(self, self.BY_HAND[by_hand]))
        self.assertEqual(greatest, expected_greatest)
        self.assertEqual(requests, expected)
        return [before - now for before, now in zip(self.made(together.events(self, self.BY_HAND[()]))[1], greatest)], printed

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
        plan, _ = self.script(IN_PLACE, flags=("--checkpoint", "*"))
        plain, edited = (peak_of(events, until=4) for events in (together.events(self, self.UNEDITED_IN_PLACE), self.events(plan)))  # at the sum
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
