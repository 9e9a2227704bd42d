"""The phases data, forward, backward and optimizer, from the functions that torch runs for them.

A phase is of the process, not of a thread: what autograd's threads allocate while the main
thread waits for them belongs to backward. A phase begins when its function is called and
ends when the function returns or raises.
"""

import functools
import threading

DATA, FORWARD, BACKWARD, OPTIMIZER = b"data", b"forward", b"backward", b"optimizer"


class Phases:
    """Begins and ends phases by the functions `begin(name)` and `end(name)`."""

    def __init__(self, begin, end):
        self.begin = begin
        self.end = end
        self._lock = threading.Lock()
        self._backwards = 0  # runs of autograd's engine now; runs may nest

    def in_backward(self):
        return self._backwards > 0

    def backward(self, change):
        """A run of autograd's engine begins (change 1) or ends (-1). True for the outermost run."""
        with self._lock:
            self._backwards += change
            outermost = self._backwards == (1 if change > 0 else 0)
        if outermost:
            (self.begin if change > 0 else self.end)(BACKWARD)
        return outermost


def wrap_backward(run, phases, iterations, threads, is_tracing):
    """Makes the engine's run a phase, except one that a module's forward makes: that stays in forward."""

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
    """Makes a DataLoader's __next__ a phase. Modules that its transforms call stay in that phase."""

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
    """Makes an optimizer's step a phase, and has it end an iteration.

    A step that calls the step of the class it extends is one step.
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
    """Replaces cls.step by wrap(cls.step), unless it is a wrapper of ours already.

    Some versions of torch's compiler call `step.__wrapped__` instead, to skip the profiling that
    torch wraps around it. So `__wrapped__` gets a wrapper of ours, too.
    """
    step = cls.step
    if getattr(step, "memprof", False):
        return
    outer = wrap(step)
    if getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        outer.__wrapped__ = wrap(step.__wrapped__)
    cls.step = outer


def wrap_scaler_step(step, iterations):
    """Has GradScaler.step end an iteration also when it skips the optimizer's step, as a gradient is not finite."""

    @functools.wraps(step)
    def scaled_step(self, optimizer, *args, **kwargs):
        before = iterations.steps
        result = step(self, optimizer, *args, **kwargs)
        if iterations.steps == before:
            iterations.stepped(optimizer)
        return result

    return scaled_step
