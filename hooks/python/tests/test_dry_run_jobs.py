"""Dry runs of parts of jobs that ask for values, or for kernels that torch has no fake of."""

import unittest

from dry_run import DryRunCase


class JobsTest(DryRunCase):
    def test_numbers_are_finite(self):
        self.script(
            """
            x = torch.randn(64, 8, device="cuda")
            assert torch.isfinite(x).all() and not torch.isnan(x).any() and not torch.isinf(x.mean()) and not (x == 2).all()
            torch.distributions.Categorical(logits=x).sample()
            with torch.inference_mode():
                assert x.argmax().item() == 1
            """
        )

    def test_choices_are_evenly_spread(self):
        self.script(
            """
            chosen = torch.randn(64, 8, device="cuda").topk(2, -1)[1].flatten()
            counts = torch.bincount(chosen, minlength=8)
            assert counts.tolist() == [16] * 8 and counts[3].item() == 16
            assert torch.bincount(chosen[:100]).cpu().tolist() == [13] * 4 + [12] * 4
            """
        )

    def test_sequences_without_their_padding(self):
        plan, _ = self.script(
            """
            from torch.nn.utils import rnn
            x = torch.randn(3, 5, 64, device="cuda")
            packed = rnn.pack_padded_sequence(x, torch.tensor([3, 5, 1]), batch_first=True, enforce_sorted=False)
            assert packed.data.shape == (9, 64) and packed.batch_sizes.tolist() == [3, 2, 2, 1, 1]
            assert rnn.pad_packed_sequence(packed, batch_first=True)[0].shape == (3, 5, 64)
            """
        )
        self.assertIn(9 * 64 * 4, self.requests(plan))

    def test_kernels_that_have_no_fake(self):
        plan, _ = self.script(
            """
            import torchvision
            from torch import nn
            torch.set_default_device("cuda")
            scores = torch.randn(50, 4, 20, requires_grad=True)
            lengths = torch.tensor([7, 10, 3, 5], device="cpu")
            nn.CTCLoss()(scores.log_softmax(2), torch.randint(1, 20, (4, 10)), torch.full((4,), 50, device="cpu"), lengths).backward()
            assert torch.fft.rfft(torch.randn(3, 1000)).shape == (3, 501)
            cell = nn.GRUCell(16, 40)
            cell(torch.randn(6, 16), torch.randn(6, 40)).sum().backward()
            assert torch.allclose(cell.weight_ih, cell.weight_ih)
            assert torchvision.ops.nms(torch.rand(200, 4), torch.rand(200), 0.5).shape == (20,)
            torch.cuda.nvtx.range_push("end")
            """
        )
        requests = self.requests(plan)
        self.assertEqual(requests.count(4 * 50 * (2 * 10 + 1) * 4), 2)  # prefixes and suffixes of CTC
        self.assertIn(6 * 5 * 40 * 4, requests)  # what the cell saves
        self.assertIn(3 * 501 * 8, requests)

    def test_sparse_gradients_and_synchronized_norms(self):
        plan, _ = self.script(
            """
            from torch import nn
            torch.distributed.init_process_group("nccl")
            table = nn.Embedding(100, 33, sparse=True).cuda()
            table(torch.randint(100, (8,), device="cuda")).sum().backward()
            norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7))).cuda()
            norm(torch.randn(2, 3, 9, 9, device="cuda")).sum().backward()
            """,
            flags=("--ranks", "2"),
        )
        requests = self.requests(plan)
        self.assertIn(8 * 33 * 4, requests)
        self.assertGreater(requests.count(7 * 4), 8)  # of each channel


if __name__ == "__main__":
    unittest.main()
