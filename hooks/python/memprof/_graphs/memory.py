"""One physical memory for the CUDA graphs of many shapes, of which one replays at a time.

    pool = memprof.GraphMemory(device=0)
    inputs = pool.persistent(tokens=((4096,), torch.int64))
    for size in (8, 64, 16):                      # any order, new ones at any time
        graph = torch.cuda.CUDAGraph()
        with pool.shape("bs%d" % size) as shape:
            tokens = inputs.slices(size).tokens
            with torch.cuda.graph(graph):
                logits = shape.output(model(tokens))

Each shape has a range of addresses of its own that sees all of the memory, which is therefore
as large as the largest shape. What a capture leaves in its range the next replay of any shape
overwrites; so a shape may not end with live tensors in it. What a graph gives out goes
through `output`, which has the graph copy it to a place outside. A shape lives as long as one
of its graphs: with the last that is reset or gone its range goes, and with the largest shape
the memory that no other needs. Under `record --allocator native` the memory is that of MemPools
of torch's own allocator, in segments.

Without memprof's hook each shape is an ordinary pool of its own.
"""

import ctypes
import threading
from contextlib import contextmanager

from memprof import _calls, _hook
from memprof._graphs.buffers import Persistent
from memprof._graphs.captures import GraphMemoryError, Replays, here, wrap_captures, wrap_replays
from memprof._graphs.shape import Shape, message


class GraphMemory:
    """The memory of graphs that never replay at the same time, on one device.

    With `check` every replay of its graphs is watched, and one that runs while another does
    raises. `reserve` is how many bytes of addresses each shape gets, by default as many as
    the device has: 128 TiB hold some 900 ranges of an H200's size. The memory lives until `close`.
    """

    def __init__(self, device=0, check=False, reserve=0):
        import torch

        self._torch = torch
        self.device = torch.device("cuda", device if isinstance(device, int) else torch.device(device).index or 0).index
        self.shapes = {}
        self._check = Replays(torch) if check else None
        self._leaving = []  # shapes that were released, and whose graphs have not been reset
        self._lock = threading.RLock()  # of shapes that come and go: graphs are collected anywhere
        self._number = 0
        torch.cuda.init()
        wrap_captures(torch)
        if check:
            wrap_replays(torch)
        self._library = _hook.library() if _hook.active() else None
        if self._library is None:
            return
        backend = torch.cuda.get_allocator_backend()
        if backend not in ("native", "pluggable"):
            raise GraphMemoryError("graph memory does not work with torch's allocator backend %s" % backend)
        self._segments = backend == "native"
        if self._segments:
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(None, "memprof_graph_segment", "memprof_graph_segment_free")
        self._number = self._library.memprof_graph_memory_open(self.device, int(reserve))
        if self._number == 0:
            raise GraphMemoryError(message(self._library))

    @property
    def sharing(self):
        """Whether shapes share one memory: False without memprof's hook."""
        return self._number != 0

    @property
    def physical(self):
        """Bytes of the device that all shapes together take: those of the largest."""
        return self.usage()["physical"]

    def usage(self):
        """Bytes: physical, addresses; and how many ranges there are."""
        self._settle()
        row = _calls.GraphUsage()
        if self.sharing:
            self._library.memprof_graph_usage(self.device, self._number, ctypes.byref(row))
        return {name: getattr(row, name) for name, _ in row._fields_}

    @contextmanager
    def shape(self, name, outputs=None):
        """Captures inside belong to this shape, and have one range. Gives the `Shape`.

        `outputs` are tensors outside of the range, as those of `persistent`, that hold what is
        given to `Shape.output`, in this order; without them it makes new ones.
        """
        name = str(name)
        if name in self.shapes:
            raise ValueError("the shape %s has been captured already: release it first" % name)
        if getattr(here, "shape", None) is not None:
            raise ValueError("the shape %s begins inside of shape %s" % (name, here.shape.name))
        self._settle()
        shape = Shape(self, name, outputs)
        shape._enter()
        try:
            yield shape
            shape._check_empty()
        except BaseException:
            shape._leave()
            shape._left_over = True
            shape.release()
            raise
        shape._leave()
        self.shapes[name] = shape
        shape._ended()
        self._settle()

    def release(self, name):
        """Gives up a shape's name: its range is returned as soon as its graphs have been reset, or are gone."""
        self.shapes[name].release()

    def persistent(self, **buffers):
        """Inputs or outputs of all shapes, at the size of the largest: see `Persistent`.

        Each is a length, a shape, a pair of a shape and a dtype, or a tensor to be like.
        """
        return Persistent(self._torch, self.device, buffers)

    def close(self):
        """Releases all shapes; the memory is given back with the last of their graphs."""
        for shape in list(self.shapes.values()):
            shape.release()
        self._settle()
        if self.sharing:
            self._library.memprof_graph_memory_close(self.device, self._number)

    def _settle(self):
        """Lets go of the pools of released shapes whose graphs are gone."""
        with self._lock:
            for shape in list(self._leaving):
                if shape._let_go():
                    self._leaving.remove(shape)
