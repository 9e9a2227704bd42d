"""Captures that are begun inside of a shape of a graph memory, and the replays of their graphs."""

import threading
import weakref

here = threading.local()  # .shape: the one that the thread is in, or None


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
        self._last = None  # (shape's name, stream, event behind the replay)

    def replay(self, shape, graph, replay):
        torch = self._torch
        stream = torch.cuda.current_stream(shape.memory.device)
        with self._lock:
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            replay(graph)
            end.record(stream)
            before, self._last = self._last, (shape.name, stream, end)
            # On one stream replays follow each other. On two the device's own clock tells
            # whether this one began before the other was through.
            if before is None or before[1] == stream:
                return
            begin.synchronize()
            before[2].synchronize()
            if before[2].elapsed_time(begin) < 0:
                raise GraphMemoryError(
                    "the replay of %s began before the replay of %s was through, on another stream: they use the same memory; "
                    "let the second stream wait for the first" % (shape.name, before[0])
                )


def wrap_captures(torch):
    """Captures inside of a shape go to its pool, whatever way they are begun."""
    graph = torch.cuda.CUDAGraph
    if getattr(graph.capture_begin, "of_memprof", False):
        return
    begin, end = graph.capture_begin, graph.capture_end

    def capture_begin(self, pool=None, *args, **kwargs):
        shape = getattr(here, "shape", None)
        if shape is None or (pool is not None and tuple(pool) != shape.pool):
            return begin(self, pool, *args, **kwargs) if pool is not None else begin(self, *args, **kwargs)
        memory = shape.memory
        if memory.sharing:
            memory._warm_up()
            memory._library.memprof_capture_name(shape.name.encode(errors="replace"), *shape.pool, sum(shape._inputs.values()))
        try:
            begin(self, shape.pool, *args, **kwargs)
        except BaseException:
            _unname(memory)
            raise
        shape._graphs.add(self)
        self.of_memprof_shape = weakref.ref(shape)

    def capture_end(self, *args, **kwargs):
        try:
            return end(self, *args, **kwargs)
        finally:
            shape = getattr(here, "shape", None)
            if shape is not None:
                _unname(shape.memory)

    capture_begin.of_memprof = True
    graph.capture_begin, graph.capture_end = capture_begin, capture_end


def _unname(memory):
    if memory.sharing:
        memory._library.memprof_capture_name(None, 0, 0, 0)


def wrap_replays(torch):
    graph = torch.cuda.CUDAGraph
    if getattr(graph.replay, "of_memprof", False):
        return
    plain = graph.replay

    def replay(self):
        shape = getattr(self, "of_memprof_shape", lambda: None)()
        if shape is None or shape.memory._check is None:
            return plain(self)
        return shape.memory._check.replay(shape, self, plain)

    replay.of_memprof = True
    graph.replay = replay
