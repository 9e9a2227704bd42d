"""Wraps calls of torch, to record iterations, phases, modules and labels of allocations.

MEMPROF_ATTRIBUTION sets how much: `none` records iterations that end with optimizer steps;
`phases` adds phases and the iterations of inference; `modules`, the default, adds modules
and labels.

It wraps each function that torch itself calls for a phase: a loader's next batch, a module's call, the run of autograd's engine,
the step of an optimizer's class. The hooks that torch offers will not do: with those of modules torch.compile warns and makes other
graphs, and those of optimizers are not called when a step raises. Three things keep torch's compiler out of the wrappers: that of
Module.__call__ is in place before torch._dynamo is imported, which takes it for torch's own; while code is traced every wrapper
calls torch's function alone; our code objects are marked to run uncompiled (compiler.py).

The innermost module is a number in a cell of the thread, which Python writes without a call. Autograd's threads run no module, so
allocations in backward have only a phase, and labels say which parameter a gradient is of. No tensor is kept alive: they are
referred to weakly.
"""

import atexit
import functools
import os
import sys

from memprof import _autograd, _hook
from memprof._attribution import compiler, labels, modules, phases
from memprof._attribution.iterations import Iterations

_installed = None


@_hook.harmless
def install(torch, level=None):
    """Is called once: right after the import of torch, or when a recording begins in the middle of a job."""
    global _installed
    _installed = _Attribution(torch, level or os.environ.get("MEMPROF_ATTRIBUTION") or "modules")


def end_iteration(label):
    """Ends an iteration for the script. From now on nothing else ends iterations."""
    global _by_hand
    _by_hand = True
    if _installed is not None:
        _installed.iterations.automatic = False
    _hook.library().memprof_iteration(label)


_by_hand = False  # whether the script ends iterations itself


class _Attribution:
    """What is installed, and the wrappers around each part of torch."""

    def __init__(self, torch, level):
        lib = _hook.library()
        named = level == "modules"
        self.threads = modules.Threads()
        self.labels = labels.Labels(torch) if named else labels.NoLabels()
        self.phases = phases.Phases(lib.memprof_phase_begin, lib.memprof_phase_end)
        self.iterations = Iterations(lambda: lib.memprof_iteration(b""))
        self.iterations.automatic = not _by_hand
        graph_module = getattr(getattr(torch, "fx", None), "GraphModule", ())
        self.modules = modules.Modules(self.phases, self.iterations, self.labels, self.threads, named, graph_module)
        self.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        self.is_tracing = compiler.tracing(torch, self.is_compiling)
        self._wrap_optimizers(level != "none")
        if level != "none":
            self._wrap_data()
            self._wrap_backward()
            self._wrap_modules(torch)
            atexit.register(self.iterations.forward_begins)  # ends the iteration of a last forward pass
        compiler.pass_over(torch)

    @_hook.harmless
    def _wrap_optimizers(self, with_phases):
        opened = self.phases if with_phases else phases.Phases(_ignore, _ignore)

        def wrap(step):
            return phases.wrap_step(step, opened, self.iterations, self.labels, self.threads, self.is_compiling)

        # torch.optim rebinds its attribute `optimizer`, so the module comes from sys.modules.
        module = sys.modules.get("torch.optim.optimizer")
        if module is None:
            return
        make = module.Optimizer.__init__

        @functools.wraps(make)
        def __init__(optimizer, *args, **kwargs):
            make(optimizer, *args, **kwargs)
            if not self.is_compiling():
                phases.wrap_optimizer_class(type(optimizer), wrap)
                self.iterations.optimizer_made()

        module.Optimizer.__init__ = __init__
        for cls in _used_classes(module.Optimizer):  # of a job that is under way
            phases.wrap_optimizer_class(cls, wrap)
            self.iterations.optimizer_made()
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is not None and "step" in vars(scaler):
                scaler.step = phases.wrap_scaler_step(scaler.step, self.iterations)

    @_hook.harmless
    def _wrap_data(self):
        loader = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if loader is not None:
            loader.__next__ = phases.wrap_next(loader.__next__, self.phases, self.threads, self.is_compiling)

    @_hook.harmless
    def _wrap_backward(self):
        _autograd.wrap_run(lambda run: phases.wrap_backward(run, self.phases, self.iterations, self.threads, self.is_tracing))

    @_hook.harmless
    def _wrap_modules(self, torch):
        if getattr(sys.modules.get("torch._dynamo.utils"), "counters", {}).get("frames"):
            return  # the compiler has compiled code of this job, which knows the call as it is
        call = torch.nn.Module.__call__
        # A question about torch.compile alone makes no further call, so the compiler can trace it.
        by_dynamo = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", self.is_compiling)
        wrapped = self.modules.wrap_call(call, by_dynamo, self.is_tracing, torch.is_grad_enabled)
        torch.nn.Module.__call__ = wrapped
        symbolic = sys.modules.get("torch.fx._symbolic_trace")
        # Code compares the two to learn whether fx is tracing, so they must be the same.
        if getattr(symbolic, "_orig_module_call", None) is call:
            symbolic._orig_module_call = wrapped


def _used_classes(cls):
    """The subclasses of an optimizer class that have had an object: torch then marks their step."""
    for below in cls.__subclasses__():
        if getattr(vars(below).get("step"), "hooked", False):
            yield below
        yield from _used_classes(below)


def _ignore(name):
    pass
