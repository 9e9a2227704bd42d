"""Captures that are begun inside of a shape of a graph memory, and what becomes of their graphs."""

import threading
import warnings
import weakref

from memprof import _hook
from memprof._graphs.pools import make_workspaces

here = threading.local()  # .shape: the one that the thread is in, or None
underway = weakref.WeakSet()  # graphs in capture


class GraphMemoryError(RuntimeError):
    """A shape that cannot be had or must not be left so; `blocks` are those live in its range.

    Each is (address, bytes, what it is known to be).
    """

    def __init__(self, message, blocks=()):
        super().__init__(message)
        self.blocks = list(blocks)


class Replays:
    """Watches that no two replays of a memory's graphs are in flight at once."""

    def __init__(self, torch):
        self._torch = torch
        self._lock = threading.Lock()
        self._last = {}  # by stream: the last shape's name, and the event behind its replay

    def replay(self, shape, graph, replay):
        torch = self._torch
        stream = torch.cuda.current_stream(shape.memory.device)
        with self._lock:
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            replay(graph)
            end.record(stream)
            # On one stream replays follow each other. On two the device's own clock tells
            # whether this one began before the other was through.
            others = [last for other, last in self._last.items() if other != stream]
            self._last[stream] = (shape.name, end)
            for name, through in others:
                begin.synchronize()
                through.synchronize()
                if through.elapsed_time(begin) < 0:
                    raise GraphMemoryError(
                        "the replay of %s began before the replay of %s was through, on another stream: they use the same memory; "
                        "let the second stream wait for the first" % (shape.name, name)
                    )


def wrap_captures(torch):
    """Captures inside of a shape go to its pool, whatever way they are begun; their graphs own the shape."""
    graph = torch.cuda.CUDAGraph
    if getattr(graph.capture_begin, "of_memprof", False):
        return
    begin, end, reset = graph.capture_begin, graph.capture_end, graph.reset

    def capture_elsewhere(graph, pool, args, kwargs):
        begin(graph, pool, *args, **kwargs) if pool is not None else begin(graph, *args, **kwargs)
        underway.add(graph)

    def capture_begin(self, pool=None, *args, **kwargs):
        shape = getattr(here, "shape", None)
        if shape is None:
            return capture_elsewhere(self, pool, args, kwargs)
        if pool is not None and tuple(pool) != shape.pool:
            warnings.warn("a capture inside of the shape %s has a pool of its own, and no part in its memory: give it pool=shape.pool" % shape.name)
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
        underway.add(self)
        _leave_shape(self)
        shape._own(self)
        self.of_memprof_shape = shape

    def capture_end(self, *args, **kwargs):
        try:
            return end(self, *args, **kwargs)
        finally:
            underway.discard(self)
            shape = getattr(here, "shape", None)
            if shape is not None:
                _unname(shape.memory)

    def reset_graph(self):
        reset(self)
        underway.discard(self)
        _leave_shape(self)

    capture_begin.of_memprof = True
    graph.capture_begin, graph.capture_end, graph.reset = capture_begin, capture_end, reset_graph


def _leave_shape(graph):
    """The graph can no longer be replayed in the shape it was captured in."""
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
