"""Dry runs of parts of jobs that ask for values, or for kernels that torch has no fake of."""

import unittest

from dry_run import DryRunCase


class JobsTest(DryRunCase):
    def test_values(self):
        """Numbers are finite, choices evenly spread."""
        self.script(
            """
            x = torch.randn(64, 8, device="cuda")
            assert torch.isfinite(x).all() and not torch.isnan(x).any() and not torch.isinf(x.mean()) and not (x == 2).all()
            torch.distributions.Categorical(logits=x).sample()
            with torch.inference_mode():
                assert x.argmax().item() == 1 and not (x > 9).all()
            chosen = x.topk(2, -1)[1].flatten()
            counts = torch.bincount(chosen, minlength=8)
            assert counts.tolist() == [16] * 8 and counts[3].item() == 16
            assert torch.bincount(chosen[:100]).cpu().tolist() == [13] * 4 + [12] * 4
            """
        )

    def test_kernels(self):
        """Sequences without their padding, CTC, sparse gradients, synchronized norms, and a default device."""
        plan, _ = self.script(
            """
            from torch import nn
            from torch.nn.utils import rnn
            torch.distributed.init_process_group("nccl")
            x = torch.randn(3, 5, 64, device="cuda")
            packed = rnn.pack_padded_sequence(x, torch.tensor([3, 5, 1]), batch_first=True, enforce_sorted=False)
            assert packed.data.shape == (9, 64) and packed.batch_sizes.tolist() == [3, 2, 2, 1, 1]
            assert rnn.pad_packed_sequence(packed, batch_first=True)[0].shape == (3, 5, 64)
            scores = torch.randn(50, 4, 20, device="cuda", requires_grad=True)
            lengths = torch.tensor([7, 10, 3, 5])
            targets = torch.randint(1, 20, (4, 10), device="cuda")
            nn.CTCLoss()(scores.log_softmax(2), targets, torch.full((4,), 50), lengths).backward()
            torch.set_default_device("cuda")
            table = nn.Embedding(100, 33, sparse=True)
            table(torch.randint(100, (8,))).sum().backward()
            assert torch.allclose(table.weight, table.weight)
            torch.optim.SparseAdam(table.parameters()).step()
            norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7)))
            norm(torch.randn(2, 3, 9, 9)).sum().backward()
            """,
            flags=("--ranks", "2"),
        )
        requests = self.requests(plan)
        self.assertIn(9 * 64 * 4, requests)
        self.assertEqual(requests.count(4 * 50 * (2 * 10 + 1) * 4), 2)  # prefixes and suffixes of CTC
        self.assertIn(8 * 33 * 4, requests)
        self.assertGreater(requests.count(7 * 4), 8)  # of each channel


if __name__ == "__main__":
    unittest.main()
