"""One physical memory for the CUDA graphs of many shapes, of which one replays at a time.

    pool = memprof.GraphMemory(device=0)
    inputs = pool.persistent(tokens=((4096,), torch.int64))
    for size in (8, 64, 16):                      # any order, new ones at any time
        graph = torch.cuda.CUDAGraph()
        with pool.shape("bs%d" % size) as shape:
            tokens = inputs.slices(size).tokens
            with torch.cuda.graph(graph):
                logits = shape.output(model(tokens))

Each shape has a range of addresses of its own, and all ranges show the same physical memory. So
the memory is as large as the largest shape.

A replay of any shape overwrites what a capture of another has left in its range. So a shape may
not end with live tensors in its range, and a graph returns results through `output`: the graph
copies them out of the range.

A shape lives until the last of its graphs is reset or collected; then its range is released. With
the largest shape goes the memory that no other shape needs.

Without memprof's allocator each shape is an ordinary pool of its own.
"""

import ctypes
from contextlib import contextmanager

from memprof import _calls, _hook, _watch
from memprof._graphs.buffers import Persistent
from memprof._graphs.captures import GraphMemoryError, Replays, here, wrap_captures, wrap_replays
from memprof._graphs.shape import Shape, message


class GraphMemory:
    """The memory of graphs on one device, of which one replays at a time. It lives until `close`.

    With `check=True` a replay that overlaps another one raises GraphMemoryError. `reserve` is the
    number of bytes of addresses for each shape; 0 is as many as the device has memory. A process has
    128 TiB of addresses, enough for about 900 ranges of an H200's size.
    """

    def __init__(self, device=0, check=False, reserve=0):
        import torch

        self._torch = torch
        self.device = torch.device("cuda", device if isinstance(device, int) else torch.device(device).index or 0).index
        self.shapes = {}
        self._check = Replays(torch) if check else None
        self._number = 0  # of the memory in the hook; 0 without its allocator
        torch.cuda.init()
        wrap_captures(torch)
        if check:
            wrap_replays(torch)
        served = _hook.active() and not _watch.wanted() and torch.cuda.get_allocator_backend() == "native"
        if not served:
            return
        self._library = _hook.library()
        self._number = self._library.memprof_graph_memory_open(self.device, int(reserve))
        if self._number == 0:
            raise GraphMemoryError(message(self._library))

    @property
    def sharing(self):
        """Whether shapes share one memory. False without memprof's allocator."""
        return self._number != 0

    @property
    def physical(self):
        """Bytes of device memory that all shapes together take: those of the largest shape."""
        return self.usage()["physical"]

    def usage(self):
        """A dict of bytes, `physical` and `addresses`, and of the number of `ranges`."""
        row = _calls.GraphUsage()
        if self.sharing:
            self._library.memprof_graph_usage(self.device, self._number, ctypes.byref(row))
        return {name: getattr(row, name) for name, _ in row._fields_}

    @contextmanager
    def shape(self, name, outputs=None):
        """Captures inside the `with` block belong to this shape, and share its range. Yields the `Shape`.

        `outputs` are tensors outside of the range, such as those of `persistent`. `Shape.output` copies
        to them, in this order. Without `outputs` it allocates new tensors.
        """
        name = str(name)
        if name in self.shapes:
            raise ValueError("shape %s has been captured already: release it first" % name)
        if getattr(here, "shape", None) is not None:
            raise ValueError("shape %s begins inside the with block of shape %s" % (name, here.shape.name))
        shape = Shape(self, name, outputs)
        shape._enter()
        try:
            yield shape
            shape._check_empty()
        except BaseException:
            here.shape = None
            shape.release()
            raise
        here.shape = None
        self.shapes[name] = shape
        shape._ended()

    def release(self, name):
        """Makes a shape's name free. Its range is released once its graphs are reset or collected."""
        self.shapes[name].release()

    def persistent(self, **buffers):
        """Buffers for inputs or outputs of all shapes, at the size of the largest: see `Persistent`.

        Each argument is a length, a shape, a pair of a shape and a dtype, or a tensor whose shape and
        dtype are taken.
        """
        return Persistent(self._torch, self.device, buffers)

    def close(self):
        """Releases all shapes. The physical memory is released with the last of their graphs."""
        for shape in list(self.shapes.values()):
            shape.release()
        if self.sharing:
            self._library.memprof_graph_memory_close(self.device, self._number)
