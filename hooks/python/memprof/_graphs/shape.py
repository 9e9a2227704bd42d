"""A shape of a graph memory: its range of addresses, its graphs and their outputs."""

import ctypes
import functools
import gc
import sys
import threading
import weakref
from contextlib import contextmanager

from memprof import _hook
from memprof._graphs.captures import GraphMemoryError, here

_MOST_LISTED = 20  # live allocations that an error lists
_releasing = threading.RLock()  # graphs may be collected on any thread


class Shape:
    """A range of addresses of a graph memory, and the graphs captured in it."""

    def __init__(self, memory, name, outputs):
        self.memory, self.name = memory, name
        self.pool = None  # id of the pool that captures in this shape use
        self.released = False
        self._open = True  # until the with block ends
        self._outputs = None if outputs is None else list(_tensors(memory._torch, outputs))
        self._made_outputs = []  # tensors that `output` allocated; graphs write there as long as they are replayed
        self._used = 0  # of the tensors in _outputs
        self._graphs = {}  # id: weak reference. A graph keeps its shape alive, not the reverse
        self._captured = False  # whether a capture has begun in the shape
        self._inputs = {}  # id of a persistent buffer: its bytes that this shape slices

    @property
    def extent(self):
        """Bytes of the range that allocations have ever used, from its start."""
        if not self.memory.sharing or self.released:
            return 0
        return self.memory._library.memprof_graph_extent(self.memory.device, *self.pool)

    def output(self, tree):
        """Has the graph in capture copy tensors out of the range, at each replay. Returns the copies.

        `tree` is a tensor, or a list, tuple or dict of them, nested. Outside of a capture it raises
        GraphMemoryError, since no replay would copy again.
        """
        torch = self.memory._torch
        if isinstance(tree, torch.Tensor):
            return self._copy_out(tree)
        if isinstance(tree, dict):
            return {key: self.output(value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            parts = [self.output(value) for value in tree]
            return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
        return tree

    def release(self):
        """Releases the range, once its graphs have been reset and nothing is live in it."""
        memory = self.memory
        with _releasing:
            if self.released:
                return
            self.released = True
            if memory.shapes.get(self.name) is self:
                del memory.shapes[self.name]
        if memory.sharing and self.pool is not None:
            memory._library.memprof_release_pool(memory.device, *self.pool)

    def reset(self):
        """Resets all graphs of the shape, so that none can be replayed, and releases the shape."""
        for graph in [graph() for graph in list(self._graphs.values())]:
            if graph is not None:
                graph.reset()
        self.release()

    def _own(self, graph):
        """A graph has begun a capture in this shape."""
        self._captured = True
        self._graphs[id(graph)] = weakref.ref(graph, functools.partial(_collected, weakref.ref(self), id(graph)))

    def _disown(self, number):
        """A graph of the shape has been reset or collected. With the last of them the shape ends."""
        self._graphs.pop(number, None)
        if not self._open:
            self._ended()

    def _ended(self):
        """The with block or a graph has ended. When no graph is left, the shape ends."""
        self._open = False
        if not self._graphs and self._captured:
            self._made_outputs = []
            self.release()

    def _enter(self):
        memory = self.memory
        with memory._torch.cuda.device(memory.device):
            pool = tuple(memory._torch.cuda.graph_pool_handle())
        if memory.sharing and memory._library.memprof_graph_shape(memory.device, memory._number, _hook.encoded(self.name), *pool) != 0:
            raise GraphMemoryError("shape %s: %s" % (self.name, message(memory._library)))
        self.pool = pool
        here.shape = self

    def _copy_out(self, tensor):
        torch = self.memory._torch
        if not tensor.is_cuda:
            return tensor
        if not torch.cuda.is_current_stream_capturing():
            raise GraphMemoryError("shape %s: output() was called outside of a capture, so no replay would copy the tensor: call it inside torch.cuda.graph" % self.name)
        with torch.no_grad():
            if self._outputs is not None:
                if self._used == len(self._outputs):
                    raise ValueError("shape %s: output() was given more tensors than the %d in `outputs`" % (self.name, self._used))
                place = self._prefix(self._outputs[self._used], tensor)
                self._used += 1
            else:
                # Allocations on a stream that is not in capture come from the ordinary pool. empty_like
                # queues no work on that stream.
                with _relaxed(), torch.cuda.stream(_side_stream(torch, self.memory.device)):
                    place = torch.empty_like(tensor, requires_grad=False)
                self._made_outputs.append(place)
            place.copy_(tensor)
        return place

    def _prefix(self, place, tensor):
        """The part of an output tensor that has the size of `tensor`: the first elements of each dimension."""
        if place.dim() != tensor.dim() or any(had < want for had, want in zip(place.shape, tensor.shape)):
            raise ValueError("shape %s: an output of size %s does not fit into the given tensor of size %s" % (self.name, tuple(tensor.shape), tuple(place.shape)))
        for dimension, size in enumerate(tensor.shape):
            place = place.narrow(dimension, 0, size)
        return place

    def _check_empty(self):
        """Raises GraphMemoryError if an allocation is live in the range."""
        if not self.memory.sharing or not self._live():
            return
        gc.collect()
        blocks = self._live()
        if not blocks:
            return
        named = [(addr, size, _tensors_in(self.memory._torch, addr, size)) for addr, size in blocks]
        lines = ["  %s at %#x%s" % (_bytes(size), addr, ": " + what if what else "") for addr, size, what in named[:_MOST_LISTED]]
        if len(named) > _MOST_LISTED:
            lines.append("  and %d more" % (len(named) - _MOST_LISTED))
        raise GraphMemoryError(
            "shape %s ends with %d live allocations in its range, which replays of other shapes would overwrite. Return results "
            "through shape.output(), and make constants before the capture:\n%s" % (self.name, len(named), "\n".join(lines)),
            named,
        )

    def _live(self):
        """Address and size of each live allocation in the range."""
        found = []
        for segment in self.memory._torch.cuda.memory_snapshot():
            addr = segment["address"]
            for block in segment["blocks"]:
                if tuple(segment["segment_pool_id"]) == self.pool and block["state"] == "active_allocated":
                    found.append((addr, block.get("requested_size", block["size"])))
                addr += block["size"]
        return found


def _collected(shape, number, _):
    """A graph is about to be destroyed. While Python exits, nothing needs to be released."""
    shape = shape()
    if shape is not None and sys is not None and not sys.is_finalizing():
        shape._disown(number)


_side_streams = {}
def _side_stream(torch, device):
    if device not in _side_streams:
        _side_streams[device] = torch.cuda.Stream(device)
    return _side_streams[device]


@contextmanager
def _relaxed():
    """Relaxes the thread's capture mode, so that torch may allocate meanwhile without ending the capture."""
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        yield
        return
    mode = ctypes.c_int(2)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def _tensors(torch, tree):
    if isinstance(tree, torch.Tensor):
        yield tree
        return
    for part in tree.values() if isinstance(tree, dict) else tree:
        yield from _tensors(torch, part)


def _tensors_in(torch, addr, size):
    """Type and size of the tensors that lie in the allocation of `size` bytes at `addr`, as text."""
    found = []
    for thing in gc.get_objects():
        try:
            if isinstance(thing, torch.Tensor) and thing.is_cuda and addr <= thing.data_ptr() < addr + size:
                found.append("%s %s" % (str(thing.dtype).replace("torch.", ""), list(thing.shape)))
        except Exception:
            continue
    return ", ".join(sorted(set(found)))


def _bytes(n):
    return "%.2f MiB" % (n / 2**20) if n >= 2**20 else "%d bytes" % n


def message(lib):
    return lib.memprof_graph_message().decode(errors="replace")
