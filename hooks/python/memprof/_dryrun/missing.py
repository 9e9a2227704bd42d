"""Operators for which torch has no fake kernel, or whose result is a value: CTC, SyncBatchNorm, sparse gradients, allclose."""


def ways(torch, storages):
    aten = torch.ops.aten
    ctc, backward = _ctc(torch), _ctc_backward(torch, storages)
    return {
        aten._use_cudnn_ctc_loss.default: lambda *_: False,  # cuDNN's needs targets on the host
        aten._use_cudnn_ctc_loss.Tensor: lambda *_: False,
        aten._ctc_loss.default: ctc,
        aten._ctc_loss.Tensor: ctc,
        aten._ctc_loss_backward.default: backward,
        aten._ctc_loss_backward.Tensor: backward,
        aten.add_.Tensor: lambda operator, x, y, **kwargs: x if getattr(y, "is_sparse", False) else operator(x, y, **kwargs),
        aten.batch_norm_stats.default: lambda operator, x, *_: _of_channels(torch, x, 2),
        aten.batch_norm_gather_stats_with_counts.default: lambda operator, x, *_: _of_channels(torch, x, 2),
        aten.batch_norm_elemt.default: lambda operator, x, *_: torch.empty_like(x),
        aten.batch_norm_backward_reduce.default: lambda operator, grad, *_: _of_channels(torch, grad, 4),
        aten.batch_norm_backward_elemt.default: lambda operator, grad, *_: torch.empty_like(grad),
        aten._coalesce.default: lambda operator, x: _sparse(torch, torch.empty_like(x._indices()), torch.empty_like(x._values()), x),
        aten.sparse_mask.default: lambda operator, x, mask: _sparse(torch, mask._indices(), x.new_empty(mask._values().shape), mask),
        aten.allclose.default: lambda *_, **__: True,
    }


def _sparse(torch, indices, values, like):
    """Indices are assumed to be distinct."""
    return torch.sparse_coo_tensor(indices, values, like.shape)._coalesced_(True)


def _of_channels(torch, x, count):
    """Sums and means of each channel, in the type in which the kernel adds."""
    return tuple(x.new_empty(x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32)) for _ in range(count))


def install(torch):
    """The mean of CTC losses is by lengths that C++ code would put on the host."""
    losses = torch.nn.functional.ctc_loss

    def ctc_loss(scores, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
        found = losses(scores, targets, input_lengths, target_lengths, blank, "none", zero_infinity)
        if reduction == "mean":
            return (found / torch.as_tensor(target_lengths).to(found).clamp_min(1)).mean()
        return found.sum() if reduction == "sum" else found

    torch.nn.functional.ctc_loss = ctc_loss


def _ctc(torch):
    """The loss of each sequence, and the probabilities of its prefixes, of which backward has use."""

    def run(operator, scores, targets, input_lengths, target_lengths, *_):
        with torch.utils._python_dispatch._disable_current_modes():
            longest = targets.shape[1] if targets.dim() == 2 else max(map(int, getattr(target_lengths, "host", target_lengths)))
        steps, batch = scores.shape[:2]
        return scores.new_empty(batch), scores.new_empty(batch, steps, 2 * longest + 1)

    return run


def _ctc_backward(torch, storages):
    def run(operator, grad, scores, targets, input_lengths, target_lengths, loss, prefixes, *_):
        result = torch.empty_like(scores)
        storages.workspace(result, prefixes.nbytes)  # the probabilities of suffixes
        return result

    return run
