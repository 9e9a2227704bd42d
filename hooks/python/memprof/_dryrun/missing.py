"""Operators for which torch has no fake kernel, or whose result is a value: CTC, SyncBatchNorm, sparse tensors, least squares, allclose, fused SGD.

Those that cannot be had without values are refused, with what to use instead.
"""

from memprof import _dryrun
from memprof._dryrun import values

# By the start of an operator's name: what it is about, and what helps.
REMEDIES = {
    "aten::quantize_per": "quantized tensors cannot be made; use torch.fake_quantize_per_tensor_affine, or tensors of torch.int8",
    "aten::_to_sparse_": "compressed sparse tensors cannot be made; use x.to_sparse(), whose layout is COO",
    "aten::_nested": "nested tensors cannot be made; use torch.nn.utils.rnn.pad_sequence",
}


def remedy(name, operands):
    """What helps with an operator that has no fake kernel, if we know it better than that one can be registered."""
    if any(tensor.is_sparse for tensor in operands):
        return "%s of a sparse tensor cannot be run; use a dense one, x.to_dense()" % name
    return next((text for start, text in REMEDIES.items() if name.startswith(start)), None)


def ways(torch, storages, assumed):
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
        aten._to_sparse.default: lambda operator, x, **options: _to_sparse(torch, assumed, x, **options),
        aten._to_sparse.sparse_dim: lambda operator, x, sparse_dim: _to_sparse(torch, assumed, x, dense_dim=x.dim() - sparse_dim),
        aten.linalg_lstsq.default: _least_squares(torch, storages),
        **{way: lambda *_, **__: None for way in _fused_steps(aten)},
    }


def _fused_steps(aten):
    """Steps of fused optimizers that write into tensors that are there, and return nothing. Those of Adam and AdamW have fake kernels."""
    for name in ("_fused_sgd_", "_fused_adagrad_"):
        step = getattr(aten, name, None)
        if step is not None:
            yield from (getattr(step, overload) for overload in step.overloads())


def _sparse(torch, indices, values, like):
    """Indices are assumed to be distinct."""
    return torch.sparse_coo_tensor(indices, values, like.shape)._coalesced_(True)


def _to_sparse(torch, assumed, x, layout=None, blocksize=None, dense_dim=None):
    if layout not in (None, torch.sparse_coo):
        _dryrun.refuse("%s: %s" % (values.line_of_script(), REMEDIES["aten::_to_sparse_"]))
    sparse = x.dim() - (dense_dim or 0)
    count = assumed.count(x[(...,) + (0,) * (x.dim() - sparse)])
    return _sparse(torch, x.new_empty((sparse, count), dtype=torch.int64), x.new_empty((count, *x.shape[sparse:])), x)


def _least_squares(torch, storages):
    """cuSOLVER's: a copy of the matrix is overwritten. The solution is the upper part of the right side, whose lower rows have the residuals."""

    def run(operator, a, b, rcond=None, *, driver=None):
        rows, columns = a.shape[-2:]
        wide = b.unsqueeze(-1) if b.dim() == a.dim() - 1 else b
        batch = a.shape[:-2]
        solution = a.new_empty((*batch, wide.shape[-1], max(rows, columns))).mT
        storages.note(solution)
        residuals = a.new_empty((*batch, wide.shape[-1]) if rows > columns else (0,), dtype=a.real.dtype if a.is_complex() else a.dtype)
        storages.workspace(residuals if residuals.numel() else solution, a.nbytes)
        solution = solution[..., :columns, :]
        found = solution.squeeze(-1) if wide is not b else solution
        return found, residuals, a.new_empty((0,), dtype=torch.int64), a.new_empty((0,), dtype=residuals.dtype)

    return run


def _of_channels(torch, x, count):
    """Sums and means of each channel, in the type in which the kernel adds."""
    return tuple(x.new_empty(x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32)) for _ in range(count))


def install(torch):
    _ctc_losses(torch)
    _inverse_transform(torch)
    _nested(torch)


def _inverse_transform(torch):
    """torch.istft looks whether windows cover each sample, in C++ code. This is the same without it."""
    host = torch.istft

    def istft(
        x, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None, return_complex=False
    ):
        if not x.is_cuda:
            return host(x, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex)
        hop, win = hop_length or (win_length or n_fft) // 4, win_length or n_fft
        frames, real = x.shape[-1], not return_complex
        size = n_fft + hop * (frames - 1)
        window = torch.ones(win, dtype=x.real.dtype, device=x.device) if window is None else window
        if win != n_fft:
            left = (n_fft - win) // 2
            window = torch.nn.functional.pad(window, (left, n_fft - win - left))
        norm = "ortho" if normalized else "backward"
        parts = (x if x.dim() == 3 else x.unsqueeze(0)).transpose(1, 2)
        parts = torch.fft.irfft(parts, n_fft, 2, norm) if real else torch.fft.ifft(parts, n_fft, 2, norm)
        add = torch.ops.aten.unfold_backward
        found = add(parts * window.view(1, 1, n_fft), [parts.shape[0], size], 1, n_fft, hop)
        covered = add(window.pow(2).expand(1, frames, n_fft), [1, size], 1, n_fft, hop)
        start = n_fft // 2 if center else 0
        end = start + length if length is not None else size - start if center else size
        found, covered = found[:, start:end], covered[:, start:end]
        covered.abs().min().lt(1e-11)
        found = found / covered
        if end > size:
            found = torch.nn.functional.pad(found, (0, end - size))
        return found if x.dim() == 3 else found.squeeze(0)

    torch.istft = torch.functional.istft = istft


def _nested(torch):
    """Their rows are tensors of other sizes, which torch's fake ones cannot have."""

    def on_device(make):
        def made(parts, *args, **options):
            tensors = [part for part in parts if isinstance(part, torch.Tensor)] if isinstance(parts, (list, tuple)) else [parts]
            if torch.device(options.get("device") or "cpu").type == "cuda" or any(tensor.is_cuda for tensor in tensors):
                _dryrun.refuse("%s: %s" % (values.line_of_script(), REMEDIES["aten::_nested"]))
            return make(parts, *args, **options)

        return made

    for name in ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged"):
        setattr(torch.nested, name, on_device(getattr(torch.nested, name)))


def _ctc_losses(torch):
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
