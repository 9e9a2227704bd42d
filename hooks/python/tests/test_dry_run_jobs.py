"""Dry runs of parts of jobs that ask for values, or for kernels that torch has no fake of."""

import unittest

from dry_run import DryRunCase, requests_of, together


class JobsTest(DryRunCase):
    @together.script(
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
    def test_values(self, events):
        """Numbers are finite, choices evenly spread: the script asserts it."""
        self.assertEqual(requests_of(events)[0], 64 * 8 * 4)

    @together.script(
        """
        p = torch.nn.Parameter(torch.empty(300, 77, device="cuda"))
        for lr in (0.1, torch.tensor(0.1, device="cuda")):
            o = torch.optim.SGD([p], lr=lr, momentum=0.9, fused=True)
            for _ in range(2):
                (p * 2).sum().backward()
                o.step()
                o.zero_grad()
        """
    )
    def test_fused_sgd(self, events):
        """The parameter, and for each optimizer its momentum and two products and gradients; nothing for the steps."""
        self.assertEqual(requests_of(events).count(4 * 300 * 77), 1 + 2 * (1 + 2 + 2))

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

    @together.script(
        """
        from torch.nn.attention.flex_attention import flex_attention
        q = torch.empty(1, 2, 16, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        found = torch.compile(flex_attention)(q, q, q)
        assert found.shape == q.shape and found.dtype == q.dtype
        found.backward(torch.empty_like(found))
        """
    )
    def test_flex_attention(self, events):
        """One kernel: 16 rows of 8 numbers for two heads, and a sum for each row; its backward has a number for each row, too."""
        self.assertIn("flex attention is assumed to be compiled", together.printed)
        rows = 2 * 16
        sizes = [n for n in requests_of(events) if n > 4 * 4]
        self.assertEqual(sizes, [16 * rows, 16 * rows, 4 * rows, 16 * rows, 4 * rows, 16 * rows, 16 * rows, 16 * rows])

    @together.script(
        """
        a, b = torch.empty(3, 50, 20, device="cuda"), torch.empty(3, 50, 7, device="cuda")
        found = torch.linalg.lstsq(a, b)
        assert found.solution.shape == (3, 20, 7) and found.residuals.shape == (3, 7) and found.rank.shape == (0,)
        """
    )
    def test_least_squares(self, events):
        """The solution has room for the right side's 50 rows; a copy of the matrix is overwritten."""
        self.assertEqual(requests_of(events), [12000, 4200, 4200, 84, 12000])

    @together.script(
        """
        x, window = torch.empty(2, 9, 11, dtype=torch.complex64, device="cuda"), torch.empty(16, device="cuda")
        assert torch.istft(x, 16, window=window).shape == (2, 40) and torch.istft(x, 16, window=window, length=30).shape == (2, 30)
        """
    )
    def test_inverse_transform(self, events):
        """Of 11 frames of 16 samples: the frames and their product with the window, what adds up, and the result."""
        sizes = requests_of(events)
        self.assertEqual(sizes[:2], [2 * 9 * 11 * 8, 64])
        self.assertEqual(sizes.count(2 * 11 * 16 * 4), 4)  # frames and products, of both calls
        self.assertEqual((sizes.count(2 * 56 * 4), sizes.count(56 * 4), sizes.count(2 * 40 * 4), sizes.count(2 * 30 * 4)), (2, 2, 1, 1))

    @together.script("assert torch.ones(100, 50, device='cuda').to_sparse().shape == (100, 50)")
    def test_sparse(self, events):
        """A tenth of the elements is assumed to be there: places in two dimensions, and values."""
        self.assertEqual([n for n in requests_of(events) if n >= 2000], [20000, 2 * 500 * 8, 2000])
        self.assertIn("0.1 of the elements are assumed to be nonzero", together.printed)

    # Each with what to use instead.
    CANNOT = (
        ("torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", r"quantized tensors cannot be made; use torch\.fake_quantize"),
        ("x.to_sparse_csr()", r"compressed sparse tensors cannot be made; use x\.to_sparse"),
        ("x.to_sparse() @ x", r"aten::mm of a sparse tensor cannot be run; use a dense one, x\.to_dense"),
        ("torch.nested.nested_tensor([x, x])", r"nested tensors cannot be made; use torch\.nn\.utils\.rnn\.pad_sequence"),
    )
    REFUSED = [(together.add("x = torch.ones(4, 4, device='cuda')\n" + text), says) for text, says in CANNOT]

    def test_what_cannot_be_run(self):
        for at, says in self.REFUSED:
            self.assertRegex(together.refusal(self, at), r"^<string>:2: " + says)


if __name__ == "__main__":
    unittest.main()
