"""Phases of a job, told by where it is: data, forward, backward, optimizer.

Phases are the process's, not a thread's: what autograd's threads allocate while the main
thread waits in backward belongs to backward. Each is opened by the function that torch
runs for it and closed when that function is left, by an exception too.
"""

import functools
import threading

DATA, FORWARD, BACKWARD, OPTIMIZER = b"data", b"forward", b"backward", b"optimizer"


class Phases:
    """Opens and closes phases by `begin(name)` and `end(name)`."""

    def __init__(self, begin, end):
        self.begin = begin
        self.end = end
        self._lock = threading.Lock()
        self._backwards = 0  # runs of the engine at this moment; some are inside another

    def in_backward(self):
        return self._backwards > 0

    def backward(self, change):
        """Enters (1) or leaves (-1) a run of autograd's engine. True for the outermost."""
        with self._lock:
            self._backwards += change
            outermost = self._backwards == (1 if change > 0 else 0)
        if outermost:
            (self.begin if change > 0 else self.end)(BACKWARD)
        return outermost


def wrap_backward(run, phases, iterations, threads, is_tracing):
    """The engine's run, as a phase. What a module runs in its forward is part of that."""

    @functools.wraps(run)
    def _engine_run_backward(*args, **kwargs):
        if threads.current().busy or is_tracing():
            return run(*args, **kwargs)
        phases.backward(1)
        finished = False
        try:
            result = run(*args, **kwargs)
            finished = True
            return result
        finally:
            if phases.backward(-1) and finished:
                iterations.backward_ended()

    return _engine_run_backward


def wrap_next(advance, phases, threads, is_compiling):
    """A DataLoader's __next__, as a phase. Modules called by its transforms are part of it."""

    @functools.wraps(advance)
    def __next__(self):
        if is_compiling():
            return advance(self)
        thread = threads.current()
        was_busy, thread.busy = thread.busy, True
        phases.begin(DATA)
        try:
            return advance(self)
        finally:
            phases.end(DATA)
            thread.busy = was_busy

    return __next__


def wrap_step(step, phases, iterations, labels, threads, is_compiling):
    """An optimizer's step, as a phase that ends an iteration.

    A step inside a step of the same optimizer (of a class that extends another) is part
    of it.
    """

    @functools.wraps(step)
    def stepping(self, *args, **kwargs):
        if is_compiling():
            return step(self, *args, **kwargs)
        thread = threads.current()
        if thread.optimizer is self:
            return step(self, *args, **kwargs)
        outer, thread.optimizer = thread.optimizer, self
        labels.gradients(self)
        phases.begin(OPTIMIZER)
        finished = False
        try:
            result = step(self, *args, **kwargs)
            finished = True
            return result
        finally:
            thread.optimizer = outer
            phases.end(OPTIMIZER)
            if finished:
                labels.state(self)
                iterations.stepped(self)

    stepping.memprof = True
    return stepping


def wrap_optimizer_class(cls, wrap):
    """Replaces cls.step, unless it or the class it comes from has been.

    Some versions of torch's compiler take the class's outermost function off again, to
    `__wrapped__`, so that they need not trace profiling. They shall find ours there too,
    around the step itself.
    """
    step = cls.step
    if getattr(step, "memprof", False):
        return
    outer = wrap(step)
    if getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        outer.__wrapped__ = wrap(step.__wrapped__)
    cls.step = outer


def wrap_scaler_step(step, iterations):
    """GradScaler.step, which leaves the optimizer's step out when a gradient is not finite."""

    @functools.wraps(step)
    def scaled_step(self, optimizer, *args, **kwargs):
        before = iterations.steps
        result = step(self, optimizer, *args, **kwargs)
        if iterations.steps == before:
            iterations.stepped(optimizer)
        return result

    return scaled_step
