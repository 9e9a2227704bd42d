"""The workspaces of reductions: blocks of threads that share an output write partial results to memory.

A reduction over many elements that has few outputs, as the gradient of a bias is, would leave most of the card idle if
one block made each output. How many blocks do depends on shapes, strides and the card (setReduceConfig in torch's
ATen/native/cuda/Reduce.cuh); each column of threads writes one partial result.
"""

import math

from memprof._dryrun import card

THREADS = 512  # of a block at most
RESIDENT = 2048  # threads of a multiprocessor
WARP = 32
FEW, MANY = 16, 256  # values for a thread: fewer are not divided among blocks, more are


def ways(torch, storages):
    def reduce(operator, tensor, *args, **kwargs):
        result = operator(tensor, *args, **kwargs)
        if tensor.device.type == "cuda" and tensor.numel():
            dims = args[0] if args and isinstance(args[0], (list, tuple)) else ()
            storages.workspace(result, *workspaces(tensor, dims, max(4, result.element_size())))
        return result

    aten = torch.ops.aten
    return dict.fromkeys((aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.amax.default, aten.amin.default), reduce)


def workspaces(tensor, dims, width):
    """Bytes of the partial results of a reduction over dims (none: all) and of its counters of finished blocks. No bytes: one block makes each output."""
    every = set(range(tensor.dim()))
    reduced = {d % tensor.dim() for d in dims} or every
    inner, outer = runs(tensor, reduced), runs(tensor, every - reduced)
    inputs, outputs = (math.prod(size for size, _ in some) for some in (inner, outer))
    along = not outer or bool(inner) and inner[0][1] < outer[0][1]  # neighbours in memory are added
    fastest = min((stride for _, stride in inner + outer), default=1)
    across, down, vector = (inputs, outputs, 1) if along else (outputs, inputs, 1)
    if fastest == 1 and along and inputs > 128 and len(inner) == 1:
        across //= 4
    elif fastest == 1 and not along:
        others = [outer[0][0], *(stride for _, stride in inner + outer[1:])]
        vector = next(v for v in (4, 2, 1) if all(n % v == 0 for n in others))
        across //= vector
    most = THREADS // vector
    wide, high = min(_power(across), most), min(_power(down), most)
    x = min(wide, WARP)
    y = min(high, most // x)
    x = min(wide, most // y)
    values = -(-inputs // x) if along else inputs
    divided = values >= min(16 * y, MANY)
    values, step = (-(-values // y), 1) if divided else (values, y)
    grid = -(-(outputs // vector) // (step if along else step * x))
    room = card.seen().processors * (RESIDENT // (x * y))
    if not divided or values < MANY or grid > room:
        return ()
    blocks = max(min(-(-room // grid), -(-values // FEW)), -(-values // MANY))
    return (width * outputs * blocks * (1 if along else x * vector), 4 * grid) if blocks > 1 else ()


def runs(tensor, dims):
    """(elements, stride) of dimensions, those that follow each other in memory as one, the fastest first."""
    found = []
    for size, stride in sorted(((tensor.shape[d], tensor.stride(d)) for d in dims if tensor.shape[d] != 1), key=lambda run: run[1]):
        if found and math.prod(found[-1]) == stride:
            size, stride = size * found[-1][0], found.pop()[1]
        found.append((size, stride))
    return found


def _power(n):
    """The greatest power of two that is not above n."""
    return 1 << max(n, 1).bit_length() - 1
