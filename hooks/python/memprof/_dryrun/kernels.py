"""Takes for an operator the way of a build with CUDA: what its kernels return and save, and ask for besides."""

import contextlib
import ctypes
import functools
import sys
import threading

from memprof._dryrun import convolutions, distributed, matrices, missing, reductions

_kept = []  # registrations of kernels, which end with their object


def keep_whole(torch):
    """A build without CUDA composes some operators (silu_backward) of others before we see them. CUDA has a kernel for each: keep them whole."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    _kept.append(torch.library.Library("aten", "IMPL"))
    for name in torch._C._dispatch_get_all_op_names():
        if has(name, "CompositeImplicitAutograd") and has(name, "CPU") and not has(name, "CUDA"):
            _kept[0].impl(name, torch.library.fallthrough_kernel, "AutogradCUDA")


class Kernels:
    def __init__(self, torch, storages, assumed):
        self._torch = torch
        self._storages = storages
        self._report = assumed.report
        aten = torch.ops.aten
        self._ways = {aten.add.Tensor: self._add, aten.native_dropout.default: self._dropout}
        self._ways.update({aten._safe_softmax.default: self._safe_softmax, aten._softmax_backward_data.default: self._softmax_backward})
        self._ways.update(dict.fromkeys((aten.index_put.default, aten.index_put_.default), self._index_put))
        self._ways.update(dict.fromkeys((aten.index_add.default, aten.index_add_.default), self._index_add))
        self._ways.update(dict.fromkeys((aten.mse_loss.default, aten.smooth_l1_loss.default), self._loss))
        self._ways[aten._weight_norm_interface_backward.default] = lambda _, grad, v, g, *more: (torch.empty_like(v), torch.empty_like(g))
        self._ways.update({aten._thnn_fused_gru_cell.default: self._gru, aten._thnn_fused_gru_cell_backward.default: self._gru_backward})
        self._ways[aten._thnn_fused_lstm_cell.default] = self._lstm
        normal = (aten.native_layer_norm, aten.native_layer_norm_backward, aten.native_group_norm, aten.native_group_norm_backward)
        self._ways.update(dict.fromkeys((o.default for o in (*normal, aten._softmax, aten._log_softmax, aten.embedding_dense_backward)), self._copying))
        for module in (matrices, convolutions, reductions, distributed):
            self._ways.update(module.ways(torch, storages))
        self._ways.update(missing.ways(torch, storages, assumed))
        self._threads = threading.local()
        self._unshared = None  # _references of a tensor that only autograd's engine has

    def run(self, operator, args, kwargs):
        way = self._ways.get(operator)
        return operator(*args, **kwargs) if way is None else way(operator, *args, **kwargs)

    def calibrated(self, run):
        """Wraps the engine's run: the first one comes after a small one, in which a gradient that nobody else has is added to another."""
        torch = self._torch

        @functools.wraps(run)
        def _engine_run_backward(*args, **kwargs):
            if self._unshared is None:
                self._unshared = ()
                with torch.enable_grad():
                    x = torch.empty(2, 2, device="cuda", requires_grad=True)
                    y = x * 2
                    z = (y.sin() + y.cos()).mul(2)
                run((z,), (torch.empty_like(z),), False, False, (), allow_unreachable=True, accumulate_grad=True)
                if not self._unshared:
                    raise RuntimeError("memprof: autograd adds gradients in an unknown way")
            return run(*args, **kwargs)

        return _engine_run_backward

    def _add(self, operator, a, b, **kwargs):
        """Autograd's engine adds a gradient to another in place if nobody else uses that one. With fake tensors it never does."""
        if getattr(self._threads, "in_place", False):
            return self._torch.ops.aten.alias.default(a)
        if not self._by_engine() or not isinstance(b, self._torch.Tensor):
            return operator(a, b, **kwargs)
        if not self._unshared:
            self._unshared = self._references(a)
        fits = a.shape == b.shape and a.dtype == b.dtype and self._dense(a)
        return a if fits and self._references(a) == self._unshared else operator(a, b, **kwargs)

    def _by_engine(self):
        """Whether the engine calls the operator itself: it runs without gradients, and no Python function is between."""
        torch = self._torch
        if torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
            return False
        caller = sys._getframe()
        for _ in range(4):  # _by_engine, _add, run, __torch_dispatch__
            caller = caller.f_back
        return caller is None or caller.f_code.co_name == "_engine_run_backward"

    def _references(self, tensor):
        """How many C++ objects refer to a tensor, and to its storage: the count is behind the object's first word."""
        return tensor._use_count(), ctypes.c_uint32.from_address(tensor.untyped_storage()._cdata + 8).value

    def _dense(self, tensor):
        """Whether elements neither overlap nor leave gaps."""
        return reductions.runs(tensor, range(tensor.dim())) in ([], [(tensor.numel(), 1)])

    def _index_put(self, operator, target, indices, values, accumulate=False, *more):
        """Autograd adds into a tensor of zeros, in place except for fake tensors. The kernel sorts the values by index first."""
        result = target if self._by_engine() else operator(target, indices, values, accumulate, *more)
        if result.device.type == "cuda" and (accumulate or self._torch.are_deterministic_algorithms_enabled()):
            count = self._torch.broadcast_shapes(*(i.shape for i in indices if i is not None)).numel()
            self._storages.workspace(result, 8 * count, 0 if values.is_contiguous() else values.nbytes, *self._sorting(count))
        return result

    def _index_add(self, operator, target, dim, index, source, **kwargs):
        """In deterministic mode index_add multiplies the values and calls index_put."""
        result = operator(target, dim, index, source, **kwargs)
        if result.device.type == "cuda" and self._torch.are_deterministic_algorithms_enabled():
            self._storages.workspace(result, source.nbytes, 8 * index.numel(), *self._sorting(index.numel()))
        return result

    def _loss(self, operator, found, wanted, reduction=1, *more):
        """The kernel computes a loss for each element into the result, then reduces it. The result keeps the bytes of all elements."""
        result = operator(found, wanted, reduction, *more)
        if result.device.type == "cuda" and reduction:
            result.untyped_storage().resize_(found.nbytes)
            self._storages.workspace(result, found.nbytes, *reductions.workspaces(found, (), 4))
        return result

    def _copying(self, operator, *args, **kwargs):
        """The kernel copies each operand that is not contiguous."""
        result = operator(*args, **kwargs)
        sizes = [t.nbytes for t in args if isinstance(t, self._torch.Tensor) and t.device.type == "cuda" and not t.is_contiguous()]
        if sizes:
            made = result if isinstance(result, tuple) else (result,)  # a gradient that nobody wants is None
            self._storages.workspace(next(t for t in made if t is not None), *sizes)
        return result

    def _lstm(self, operator, *args):
        self._report("recurrent", "recurrent layers are run cell by cell, where cuDNN runs them whole: it would save other tensors")
        return operator(*args)

    def _gru(self, _, input_gates, hidden_gates, state, *_biases):
        return self._lstm(lambda: (self._torch.empty_like(state), state.new_empty(state.shape[0], 5 * state.shape[1])))

    def _gru_backward(self, _, grad, workspace, has_bias):
        def gates(*rows):
            return grad.new_empty(*rows, 3 * grad.shape[1])

        rows = grad.shape[0]
        return gates(rows), gates(rows), self._torch.empty_like(grad), gates() if has_bias else None, gates() if has_bias else None

    def _sorting(self, count):
        """Bytes of the blocks that a sort of indices allocates: the sorted indices, two lists of their places, and scratch."""
        return (8 * count, 8 * count, 8 * count, 16 * count)

    @contextlib.contextmanager
    def in_place_addition(self):
        """Within it C++ code adds in place, which it would do but for fake tensors."""
        self._threads.in_place = True
        try:
            yield
        finally:
            self._threads.in_place = False

    def _safe_softmax(self, operator, scores, *args, **kwargs):
        """A mask says which scores are -inf."""
        result = operator(scores, *args, **kwargs)
        if result.device.type == "cuda":
            self._storages.workspace(result, scores.numel())
        return result

    def _softmax_backward(self, operator, grad, result, *args, **kwargs):
        """The caller multiplies the gradient and the result first, in a block of its own."""
        found = operator(grad, result, *args, **kwargs)
        if found.device.type == "cuda":
            self._storages.workspace(found, grad.numel() * self._torch.promote_types(grad.dtype, result.dtype).itemsize)
        return found

    def _dropout(self, operator, *args, **kwargs):
        """The kernel allocates the mask before the result."""
        result, mask = operator(*args, **kwargs)
        if mask.device.type == "cuda":
            self._storages.note(mask)
        return result, mask
