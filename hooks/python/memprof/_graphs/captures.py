"""Wraps torch.cuda.CUDAGraph: captures inside a shape use its pool, and replays can be checked."""

import threading
import warnings

from memprof import _hook
from memprof._graphs.pools import make_workspaces

here = threading.local()  # .shape: the Shape whose with block the thread is in, or None


class GraphMemoryError(RuntimeError):
    """A shape or its memory cannot be made, or a shape may not end so.

    `blocks` lists the live allocations in the range: (address, bytes, the tensors in it).
    """

    def __init__(self, message, blocks=()):
        super().__init__(message)
        self.blocks = list(blocks)


class Replays:
    """Checks that no two replays of a memory's graphs overlap."""

    def __init__(self, torch):
        self._torch = torch
        self._lock = threading.Lock()
        self._last = {}  # stream: (name of the last shape replayed there, event at the end of that replay)

    def replay(self, shape, graph, replay):
        torch = self._torch
        stream = torch.cuda.current_stream(shape.memory.device)
        with self._lock:
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            replay(graph)
            end.record(stream)
            # Replays on one stream cannot overlap. For other streams the device's timestamps show
            # whether this replay began before theirs ended.
            on_others = [last for other, last in self._last.items() if other != stream]
            self._last[stream] = (shape.name, end)
            for name, ended in on_others:
                begin.synchronize()
                ended.synchronize()
                if ended.elapsed_time(begin) < 0:
                    raise GraphMemoryError(
                        "the replay of shape %s began before the replay of shape %s on another stream had ended, and both use the same "
                        "memory: let the second stream wait for the first" % (shape.name, name)
                    )


def wrap_captures(torch):
    """Has captures inside a shape use the shape's pool, however they are begun, and keep the shape alive."""
    graph = torch.cuda.CUDAGraph
    if getattr(graph.capture_begin, "of_memprof", False):
        return
    begin, end, reset = graph.capture_begin, graph.capture_end, graph.reset

    def capture_elsewhere(graph, pool, args, kwargs):
        begin(graph, pool, *args, **kwargs) if pool is not None else begin(graph, *args, **kwargs)

    def capture_begin(self, pool=None, *args, **kwargs):
        shape = getattr(here, "shape", None)
        if shape is None:
            return capture_elsewhere(self, pool, args, kwargs)
        if pool is not None and tuple(pool) != shape.pool:
            warnings.warn("a capture inside shape %s has a pool of its own, so it does not share the graph memory: pass pool=shape.pool" % shape.name)
            return capture_elsewhere(self, pool, args, kwargs)
        memory = shape.memory
        if memory.sharing:
            make_workspaces(memory._torch, memory.device)
            memory._library.memprof_capture_name(_hook.encoded(shape.name), *shape.pool, sum(shape._inputs.values()))
        try:
            begin(self, shape.pool, *args, **kwargs)
        except BaseException:
            _unname(memory)
            raise
        _leave_shape(self)
        shape._own(self)
        self.of_memprof_shape = shape

    def capture_end(self, *args, **kwargs):
        try:
            return end(self, *args, **kwargs)
        finally:
            shape = getattr(here, "shape", None)
            if shape is not None:
                _unname(shape.memory)

    def reset_graph(self):
        reset(self)
        _leave_shape(self)

    capture_begin.of_memprof = True
    graph.capture_begin, graph.capture_end, graph.reset = capture_begin, capture_end, reset_graph


def _leave_shape(graph):
    """Removes the graph from the shape it was captured in: it can no longer be replayed there."""
    shape = graph.__dict__.pop("of_memprof_shape", None)
    if shape is not None:
        shape._disown(id(graph))


def _unname(memory):
    if memory.sharing:
        memory._library.memprof_capture_name(None, 0, 0, 0)


def wrap_replays(torch):
    graph = torch.cuda.CUDAGraph
    if getattr(graph.replay, "of_memprof", False):
        return
    plain = graph.replay

    def replay(self):
        shape = getattr(self, "of_memprof_shape", None)
        if shape is None or shape.memory._check is None:
            return plain(self)
        return shape.memory._check.replay(shape, self, plain)

    replay.of_memprof = True
    graph.replay = replay
