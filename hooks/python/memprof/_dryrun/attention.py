"""Attention as a build with CUDA chooses it: flash, memory-efficient, or composed of other operators.

torch asks the kernels of the device which of them serves a call. Without CUDA there is nobody to ask, so the conditions
of aten/native/transformers/cuda/sdp_utils.cpp are here, as far as they depend on shapes, types and the card.
"""

import functools
import sys

from memprof import _dryrun, _inject
from memprof._dryrun import card, values

LARGEST_HEAD = 256  # of flash attention


def install(torch, kernels, report):
    functional = torch.nn.functional
    attend = functional.scaled_dot_product_attention

    @functools.wraps(attend)
    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **more):
        if not query.is_cuda:
            return attend(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, **more)
        if torch.is_autocast_enabled("cuda"):  # the arguments are cast, and what attention is composed of is not
            lower = torch.get_autocast_dtype("cuda")
            query, key, value, attn_mask = (t.to(lower) if t is not None and t.dtype == torch.float32 else t for t in (query, key, value, attn_mask))
        with torch.autocast("cuda", enabled=False):
            call = _Call(torch, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            if call.flash():
                return call.by_flash()
            if call.efficient():
                return call.by_efficient()
            with kernels.in_place_addition():
                return call.by_math()

    functional.scaled_dot_product_attention = scaled_dot_product_attention
    flexible = "torch.nn.attention.flex_attention"
    if flexible in sys.modules:
        _flexible(torch, sys.modules[flexible], report)
    else:
        _inject.wait_for(flexible, lambda module: _flexible(torch, module, report), "flex attention cannot be run")
    _inject.wait_for("transformers.masking_utils", lambda module: _without_packed(module, report), "transformers gives attention whole masks")
    torch.backends.mha.set_fastpath_enabled(False)  # its operators are for values, and have no fake kernels


def _without_packed(module, report):
    """transformers searches positions for rows of several sequences, which need a whole mask.

    It takes a fake tensor for a tracer's, and then gives attention the whole mask in any case.
    """
    find = getattr(module, "find_packed_sequence_indices", None)
    if find is None:
        return

    def one_sequence_each(position_ids):
        find(position_ids)  # the requests of the search are the job's
        report("packed", "each row of a batch is assumed to hold one sequence")
        return None

    module.find_packed_sequence_indices = one_sequence_each


def _flexible(torch, module, report):
    """torch.compile makes one kernel of flex attention, which keeps the logarithm of each row's sum; not compiled it would make all scores."""

    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value):
            result = query.new_empty(*query.shape[:-1], value.shape[-1])
            sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
            ctx.save_for_backward(query, key, value, result, sums)
            ctx.mark_non_differentiable(sums)
            ctx.set_materialize_grads(False)
            return result, sums

        @staticmethod
        def backward(ctx, grad, _):
            query, key, value, result, sums = ctx.saved_tensors
            products = torch.empty_like(sums)  # of each row of the result and of its gradient
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)

    host = module.flex_attention

    @functools.wraps(host)
    def flex_attention(
        query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, **more
    ):
        if not query.is_cuda:
            return host(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, **more)
        if any(option is not None for option in more.values()):
            _dryrun.refuse("%s: flex_attention(%s=) cannot be run: leave it out" % (values.line_of_script(), next(iter(more))))
        report("flex", "flex attention is assumed to be compiled: one kernel, which keeps its result and a sum for each row")
        result, sums = Attend.apply(query, key, value)
        return (result, sums * 0.6931471805599453) if return_lse else result

    module.flex_attention = flex_attention


class _Call:
    def __init__(self, torch, query, key, value, mask, dropout, causal, scale, grouped):
        self._torch, self._aten = torch, torch.ops.aten
        self._query, self._key, self._value, self._mask = query, key, value, mask
        self._dropout, self._causal, self._grouped = dropout, causal, grouped
        self._scale = scale if scale is not None else query.shape[-1] ** -0.5
        self._capability = card.seen().capability

    def flash(self):
        half = (self._torch.float16, self._torch.bfloat16)
        q, k, v = self._query, self._key, self._value
        return (
            self._torch.backends.cuda.flash_sdp_enabled()
            and self._capability >= (8, 0)
            and self._mask is None
            and self._regular(half)
            and q.shape[-1] <= LARGEST_HEAD
            and (self._grouped or q.shape[1] == k.shape[1] == v.shape[1])
            and not (self._causal and q.shape[-2] != k.shape[-2])
        )

    def efficient(self):
        q, k, v = self._query, self._key, self._value
        types = [self._torch.float32, self._torch.float16] + [self._torch.bfloat16] * (self._capability >= (8, 0))
        return (
            self._torch.backends.cuda.mem_efficient_sdp_enabled()
            and self._regular(types)
            and not self._grouped
            and q.shape[1] == k.shape[1] == v.shape[1]
            and not (self._mask is not None and self._mask.requires_grad)
            and q.shape[-1] % (8 if q.dtype != self._torch.float32 else 4) == 0
        )

    def _regular(self, types):
        """What both need: four dimensions, one of the types, no empty sequence, and dense rows."""
        tensors = (self._query, self._key, self._value)
        same = all(t.dim() == 4 and t.dtype == tensors[0].dtype and t.shape[0] == tensors[0].shape[0] and t.stride(-1) == 1 for t in tensors)
        return same and tensors[0].dtype in types and all(t.shape[-2] > 0 for t in tensors)

    def by_flash(self):
        """Heads are padded to a multiple of 8."""
        size = self._query.shape[-1]
        more = -size % 8
        padded = [self._torch.nn.functional.pad(t, (0, more)) if more else t for t in (self._query, self._key, self._value)]
        found = self._aten._scaled_dot_product_flash_attention(*padded, self._dropout, self._causal, False, scale=self._scale)[0]
        return found[..., :size] if more else found

    def by_efficient(self):
        saves = self._torch.is_grad_enabled() and any(t.requires_grad for t in (self._query, self._key, self._value))
        mask = self._mask
        if mask is not None:
            if mask.dtype == self._torch.bool:
                mask = self._torch.zeros_like(mask, dtype=self._query.dtype).masked_fill_(~mask, float("-inf"))
            mask = mask.expand(*self._query.shape[:-1], self._key.shape[-2])
        return self._aten._scaled_dot_product_efficient_attention(
            self._query, self._key, self._value, mask, saves, self._dropout, self._causal, scale=self._scale
        )[0]

    def by_math(self):
        options = {"enable_gqa": True} if self._grouped else {}
        return self._aten._scaled_dot_product_attention_math(
            self._query, self._key, self._value, self._mask, self._dropout, self._causal, None, scale=self._scale, **options
        )[0]
