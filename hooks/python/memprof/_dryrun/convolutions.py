"""The workspaces of cuDNN's convolutions, which live for one call.

Their bytes depend on the algorithm that cuDNN's heuristics choose. `convolutions.txt` has those that were recorded, by
direction, type and shapes (samples/convolutions.py makes it of recordings). For others there are rules that explain
most of the table, and limits between which all but four of it lie:

  - tensor cores read and write channels last, so a convolution of contiguous tensors has room for its three tensors in
    that order, with channels rounded up to 4 elements in float32 and 8 in half precision;
  - a convolution of 1 x 1 is a product of matrices that needs no such room, but for the gradient of its filter, which
    is the sum of one product for each image;
  - the gradient of a filter is summed in parts, with room for those.
"""

import json
import os

PARTS = 9 << 20  # bytes; no recorded convolution has more room for parts of sums
BATCHED = 128 << 20  # bytes; none has a product of each image that would take more


def ways(torch, storages):
    aten = torch.ops.aten
    workspaces = _Workspaces(torch, storages)
    return {aten.convolution.default: workspaces.forward, aten.convolution_backward.default: workspaces.backward}


class _Workspaces:
    def __init__(self, torch, storages):
        self._torch = torch
        self._storages = storages
        # Another table is for samples/dry_runs.py, which runs jobs without what their own recordings said.
        self._known = read_table(os.environ.get("MEMPROF_DRY_RUN_TABLE") or os.path.join(os.path.dirname(__file__), "convolutions.txt"))
        self._log = os.environ.get("MEMPROF_DRY_RUN_CONVOLUTIONS")  # a file for samples/convolutions.py

    def forward(self, operator, x, weight, bias, stride, padding, dilation, transposed, *more):
        result = operator(x, weight, bias, stride, padding, dilation, transposed, *more)
        if x.device.type == "cuda":
            self._serve(Convolution("forward", x, weight, result, stride, padding, dilation, transposed, more[1]), result)
        return result

    def backward(self, operator, grad, x, weight, bias_sizes, stride, padding, dilation, transposed, *more):
        results = operator(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, *more)
        if x.device.type == "cuda":
            for kind, result in zip(("data", "filter"), results):
                if result is not None:
                    self._serve(Convolution(kind, x, weight, grad, stride, padding, dilation, transposed, more[1]), result)
        return results

    def _serve(self, convolution, result):
        """The result is allocated before the workspace."""
        self._storages.note(result)
        key = convolution.key()
        if self._log:
            with open(self._log, "a") as log:
                log.write(json.dumps([self._storages.requests, key]) + "\n")
        size = self._known.get(key)
        if size is None:
            _, size, most = convolution.expected()
            self._storages.guess(result, size, most)
        self._storages.workspace(result, size)


class Convolution:
    """One call of cuDNN."""

    def __init__(self, kind, x, weight, y, stride, padding, dilation, transposed, groups):
        self.kind, self.x, self.weight, self.y = kind, x, weight, y
        self.groups, self.transposed = groups, transposed
        self._numbers = (stride, padding, dilation)

    def key(self):
        """Direction, type, sizes, strides, paddings, dilations, groups; L for channels last, T for transposed."""
        sizes = ["x".join(map(str, t.shape)) for t in (self.x, self.weight)]
        numbers = [",".join(map(str, n)) for n in self._numbers]
        marks = ("T" if self.transposed else "") + ("" if self.x.is_contiguous() else "L")
        return " ".join([self.kind, str(self.x.dtype).partition(".")[2], *sizes, *numbers, str(self.groups)] + [marks] * bool(marks))

    def expected(self):
        """The least, likely and most bytes of a workspace."""
        if self.groups > 1 or not self.x.dtype.is_floating_point or self.x.dtype.itemsize > 4:
            return 0, 0, PARTS
        parts = PARTS if self.kind == "filter" else 0
        around = sum(map(self._channels_last, (self.x, self.y))) if self.x.is_contiguous() else 0
        if all(n == 1 for n in self.weight.shape[2:]):
            batched = self.x.shape[0] * self.weight.numel() * self.weight.element_size() if self.kind == "filter" else 0
            return 0, min(batched, around), max(batched if batched <= BATCHED else 0, around) + PARTS
        whole = around + self._channels_last(self.weight) * bool(around)
        if self.kind != "filter" and self.x.shape[1] < 4:  # the first layer of a network
            return 0, 0, whole + PARTS
        return 0, whole + parts // 2, whole + 2 * PARTS

    def _channels_last(self, tensor):
        """Bytes of a tensor with its channels last, rounded up."""
        multiple = 16 // tensor.element_size()
        channels = tensor.shape[1]
        return tensor.numel() // max(channels, 1) * -(-channels // multiple) * multiple * tensor.element_size()


def read_table(path):
    """Bytes by key, of lines of BYTES KEY."""
    table = {}
    try:
        with open(path) as f:
            for line in f:
                if not line.startswith("#"):
                    size, _, key = line.rstrip("\n").partition(" ")
                    table[key] = int(size)
    except OSError:
        pass
    return table
