"""What a script gets that asks for a value of a fake tensor: a stated one, of which each kind is reported once."""

import math
import os
import sys

from torch._subclasses import fake_tensor

from memprof import _hook

# Where code lies that is not the script's.
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TORCH = os.path.dirname(os.path.dirname(os.path.abspath(fake_tensor.__file__)))


class Values:
    def __init__(self, torch):
        self._torch = torch
        aten = torch.ops.aten
        self._nonzero = float(os.environ.get("MEMPROF_DRY_RUN_NONZERO") or 0.1)  # share of elements that are not 0
        self._answers = {
            aten._local_scalar_dense.default: self._scalar,
            aten.item.default: self._scalar,  # this and the next one where autograd is left out
            aten.is_nonzero.default: lambda tensor: bool(self._scalar(tensor)),
            aten.equal.default: self._equal,
            aten.nonzero.default: self._where,
            aten.masked_select.default: self._selected,
            aten.index.Tensor: self._indexed,
            aten._unique2.default: lambda tensor, sorted=True, *wanted: self._distinct(tensor, None, *wanted),
            aten.unique_dim.default: lambda tensor, dim, sorted=True, *wanted: self._distinct(tensor, dim, *wanted),
            aten.unique_consecutive.default: lambda tensor, inverse=False, counts=False, dim=None: self._distinct(tensor, dim, inverse, counts),
            aten.bincount.default: self._bins,
            aten.repeat_interleave.Tensor: self._repeated,
            aten._pack_padded_sequence.default: self._packed,
        }
        # Operators that choose elements of a dimension: the result that holds their indices, and the argument that names the dimension.
        self._choosing = {aten.topk.default: (1, 2), aten.sort.default: (1, 1), aten.max.dim: (1, 1), aten.argmax.default: (0, 1), aten.multinomial.default: (0, 9)}
        self._compared = {aten.eq.Scalar: 0, aten.eq.Tensor: 0, aten.ne.Scalar: 1, aten.ne.Tensor: 1}
        self._inverted = (aten.bitwise_not.default, aten.logical_not.default)
        self._both = (aten.mul.Tensor, aten.bitwise_and.Tensor, aten.logical_and.default)
        self._whole = {aten.all.default: 1, aten.all.dim: 1, aten.any.default: 0, aten.any.dim: 0}  # what the share of a part must not be
        self._copied = (aten.clone.default, aten._to_copy.default, aten.index.Tensor, aten.gather.default)
        self._sums, self._positive = (aten.sum.default, aten.sum.dim_IntList), aten.gt.Scalar
        self._isnan = aten.isnan.default
        self._reported = set()

    def of(self, operator, args, kwargs):
        """The result of an operator that depends on values, or NotImplemented."""
        answer = self._boxes if operator.name() == "torchvision::nms" else self._answers.get(operator)
        return NotImplemented if answer is None else answer(*args, **kwargs)

    def learn(self, operator, args, result):
        """Notes what is known of a result: it holds indices of choices `among` so many, or a `share` of its elements is not 0.

        Numbers are assumed to be finite: what isnan and isfinite return is known, too.
        """
        source = args[0] if args else None
        if operator in self._choosing:
            place, dim = self._choosing[operator]
            found = result[place] if isinstance(result, tuple) else result
            found.among = source.shape[args[dim] if len(args) > dim else -1] if source.dim() else 1
        elif operator in self._compared:
            among = next((t.among for t in args if hasattr(t, "among")), None)
            if among:
                result.share = abs(self._compared[operator] - 1 / among)
            elif args[1] is source or type(args[1]) is float and args[1] == math.inf:  # x == x, |x| != inf: of isfinite and isinf
                result.share = float((args[1] is source) != self._compared[operator])
        elif operator is self._isnan:
            result.share = 0.0
        elif operator in self._both and all(hasattr(t, "share") for t in args):
            result.share = args[0].share * args[1].share
        elif operator in self._sums and hasattr(source, "share") and not source.dtype.is_floating_point:
            result.share = 1 - (1 - source.share) ** (source.numel() // max(result.numel(), 1))  # of a mask: the chance that any of so many is not 0
        elif operator is self._positive and args[1] == 0 and hasattr(source, "share"):
            result.share = source.share
        elif operator in self._whole and hasattr(source, "share"):
            result.share = float(source.share == 1 if self._whole[operator] else source.share != 0)
        elif operator in self._inverted and hasattr(source, "share"):
            result.share = 1 - source.share
        elif operator.is_view or operator in self._copied:
            for known in {"among", "share", "spread"} & getattr(source, "__dict__", {}).keys():
                for tensor in result if isinstance(result, (list, tuple)) else (result,):
                    setattr(tensor, known, getattr(source, known))

    def _scalar(self, tensor):
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            return constant.item()
        if hasattr(tensor, "spread"):
            return tensor.spread[0] // tensor.spread[1]
        if tensor.dtype == self._torch.bool and (hasattr(tensor, "share") or _checked()):
            return getattr(tensor, "share", 1) == 1
        value = self.stated(tensor.dtype)
        self.report("item", "a value of the device was read: %s is assumed for %s" % (value, tensor.dtype))
        return value

    def host_copy(self, tensor):
        """A real tensor with the stated values, or with counts that are evenly spread."""
        with self._torch.utils._python_dispatch._disable_current_modes():
            if not hasattr(tensor, "spread"):
                return self._torch.ones(tensor.shape, dtype=tensor.dtype, device="cpu")
            each, rest = divmod(*tensor.spread)
            count = tensor.numel()
            return (self._torch.arange(count, device="cpu") < rest * (count == tensor.spread[1])).to(tensor.dtype).add(each).view(tensor.shape)

    def stated(self, dtype):
        """The value of each element: 1, and False."""
        if dtype == self._torch.bool:
            return False
        return 1.0 if dtype.is_floating_point else 1

    def _equal(self, a, b):
        self.report("equal", "tensors of the device were compared: they are assumed to be equal")
        return a.shape == b.shape

    def count(self, tensor):
        """Returns how many elements of a tensor are not 0. All choices are assumed to be equally frequent."""
        if hasattr(tensor, "share"):
            self.report("choices", "sizes depend on choices: they are assumed to be evenly spread, so that %.4g of the elements are nonzero" % tensor.share)
            return round(tensor.share * tensor.numel())
        self.report("nonzero", "sizes depend on values: %g of the elements are assumed to be nonzero (--assume nonzero=)" % self._nonzero)
        return round(self._nonzero * tensor.numel())

    def _where(self, tensor):
        return self._torch.empty_strided((self.count(tensor), tensor.dim()), (1, max(self.count(tensor), 1)), dtype=self._torch.int64, device=tensor.device)

    def _selected(self, tensor, mask):
        return self._torch.empty(self.count(mask), dtype=tensor.dtype, device=tensor.device)

    def _indexed(self, tensor, indices):
        """A mask among the indices stands for those of its elements that are not 0."""
        masks = (self._torch.bool, self._torch.uint8)
        if not any(i is not None and i.dtype in masks for i in indices):
            return NotImplemented
        plain = []
        for index in indices:
            plain += self._where(index).unbind(1) if index is not None and index.dtype in masks else [index]
        return self._torch.ops.aten.index.Tensor(tensor, plain)

    def _distinct(self, tensor, dim, inverse=False, counts=False):
        """The distinct elements of a tensor, or parts of a dimension; where each is among them, and how often."""
        self.report("unique", "sizes depend on values: %g of the elements are assumed to be distinct (--assume nonzero=)" % self._nonzero)
        at = 0 if dim is None else dim % tensor.dim()
        sizes = [tensor.numel()] if dim is None else list(tensor.shape)
        whole = tensor.shape if dim is None else sizes[at]
        sizes[at] = max(round(self._nonzero * sizes[at]), min(sizes[at], 1))

        def places(shape):
            return self._torch.empty(shape, dtype=self._torch.int64, device=tensor.device)

        return tensor.new_empty(sizes), places(whole if inverse else 0), places(sizes[at] if counts else 0)

    def _bins(self, tensor, weights=None, minlength=0):
        dtype = self._torch.int64 if weights is None else weights.dtype
        choices = getattr(tensor, "among", 0)
        bins = self._torch.empty(max(minlength, choices or self._ones() + 1), dtype=dtype, device=tensor.device)
        if choices and weights is None:
            bins.spread = tensor.numel(), bins.numel()
            self.report("choices", "sizes depend on choices: they are assumed to be evenly spread")
        return bins

    def _boxes(self, boxes, scores, threshold):
        """The boxes that torchvision keeps of those that overlap."""
        return self._torch.empty(self.count(scores), dtype=self._torch.int64, device=boxes.device)

    def _packed(self, data, lengths, batch_first):
        """Sequences without their padding. Their lengths are the host's; those of the device are assumed to be the longest."""
        steps, batch = data.shape[:2][:: -1 if batch_first else 1]
        if not hasattr(lengths, "host"):
            self.report("lengths", "sizes depend on lengths of sequences: each is assumed to be the longest")
        with self._torch.utils._python_dispatch._disable_current_modes():
            known = lengths.host.tolist() if hasattr(lengths, "host") else [steps] * batch
            sizes = self._torch.tensor([sum(length > step for length in known) for step in range(max(known))], device="cpu")
        return data.new_empty((sum(known), *data.shape[2:])), sizes

    def _repeated(self, repeats, output_size=None):
        size = self._ones() * repeats.numel() if output_size is None else output_size
        return self._torch.empty(size, dtype=repeats.dtype, device=repeats.device)

    def _ones(self):
        """The stated value of a number on which a size depends."""
        self.report("size", "sizes depend on values: 1 is assumed for each")
        return 1

    def report(self, kind, text):
        """Reports an assumption, the first of its kind, with the line of the script that needs it."""
        if kind in self._reported:
            return
        self._reported.add(kind)
        _hook.problem("dry run: %s: %s" % (line_of_script(), text))


def of_script(file):
    """Whether a file of code is neither torch's nor memprof's."""
    return not file.startswith((OURS, TORCH, "<frozen"))


def line_of_script():
    """FILE:LINE of the innermost frame that is neither torch's nor memprof's."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if of_script(file):
            return "%s:%d" % (file, frame.f_lineno)
        frame = frame.f_back
    return "?"


def _checked():
    """Whether a distribution of torch asks if its parameters are valid."""
    frame = sys._getframe(1)
    while frame is not None and not of_script(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(os.path.join(TORCH, "distributions")):
            return True
        frame = frame.f_back
    return False
