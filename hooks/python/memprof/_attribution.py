"""Puts the wrappers around torch that tell iterations, phases, modules and what blocks hold.

MEMPROF_ATTRIBUTION says how much: `none` marks iterations by optimizer steps alone,
`phases` adds phases and the iterations of inference, `modules` (the default) the rest.
"""

import atexit
import functools
import os
import sys

from memprof import _iterations, _labels, _modules, _native, _phases

_installed = None


@_native.harmless
def install(torch):
    """Called once, when torch has just been imported."""
    global _installed
    level = os.environ.get("MEMPROF_ATTRIBUTION") or "modules"
    _installed = _Attribution(torch, level)


def end_iteration(label):
    """The script marks its iterations itself: nothing else does from now on."""
    global _by_hand
    _by_hand = True
    if _installed is not None:
        _installed.iterations.automatic = False
    _native.library().memprof_iteration(label)


_by_hand = False


class _Attribution:
    def __init__(self, torch, level):
        lib = _native.library()
        named = level == "modules"
        self.threads = _modules.Threads()
        self.labels = _labels.Labels(torch) if named else _labels.NoLabels()
        self.phases = _phases.Phases(lib.memprof_phase_begin, lib.memprof_phase_end)
        self.iterations = _iterations.Iterations(lambda: lib.memprof_iteration(b""))
        self.iterations.automatic = not _by_hand
        graph_module = getattr(getattr(torch, "fx", None), "GraphModule", ())
        self.modules = _modules.Modules(self.phases, self.iterations, self.labels, self.threads, named, graph_module)
        self.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
        self.is_tracing = _tracing(torch, self.is_compiling)
        self._wrap_optimizers(level != "none")
        if level != "none":
            self._wrap_data()
            self._wrap_backward(torch)
            self._wrap_modules(torch)
            atexit.register(self.iterations.forward_begins)
        _pass_over(torch)

    @_native.harmless
    def _wrap_optimizers(self, with_phases):
        phases = self.phases if with_phases else _phases.Phases(_ignore, _ignore)

        def wrap(step):
            return _phases.wrap_step(step, phases, self.iterations, self.labels, self.threads, self.is_compiling)

        # torch.optim binds the name `optimizer` to something else; the module is in sys.modules.
        module = sys.modules.get("torch.optim.optimizer")
        if module is None:
            return
        make = module.Optimizer.__init__

        @functools.wraps(make)
        def __init__(optimizer, *args, **kwargs):
            make(optimizer, *args, **kwargs)
            if not self.is_compiling():
                _phases.wrap_optimizer_class(type(optimizer), wrap)
                self.iterations.optimizer_made()

        module.Optimizer.__init__ = __init__
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = getattr(sys.modules.get(name), "GradScaler", None)
            if scaler is not None and "step" in vars(scaler):
                scaler.step = _phases.wrap_scaler_step(scaler.step, self.iterations)

    @_native.harmless
    def _wrap_data(self):
        loader = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if loader is not None:
            loader.__next__ = _phases.wrap_next(loader.__next__, self.phases, self.threads, self.is_compiling)

    @_native.harmless
    def _wrap_backward(self, torch):
        graph = sys.modules.get("torch.autograd.graph")
        run = getattr(graph, "_engine_run_backward", None)
        if run is None:
            return
        wrapped = _phases.wrap_backward(run, self.phases, self.iterations, self.threads, self.is_tracing)
        graph._engine_run_backward = wrapped
        if getattr(torch.autograd, "_engine_run_backward", None) is run:
            torch.autograd._engine_run_backward = wrapped

    @_native.harmless
    def _wrap_modules(self, torch):
        call = torch.nn.Module.__call__
        # What asks about the compiler alone is answered without further calls, and traced as well.
        by_dynamo = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", self.is_compiling)
        wrapped = self.modules.wrap_call(call, by_dynamo, self.is_tracing, torch.is_grad_enabled)
        torch.nn.Module.__call__ = wrapped
        symbolic = sys.modules.get("torch.fx._symbolic_trace")
        # Code that compares the two to learn whether fx is tracing shall find them the same.
        if getattr(symbolic, "_orig_module_call", None) is call:
            symbolic._orig_module_call = wrapped


def _tracing(torch, is_compiling):
    """A function: whether what runs now is not run but traced, by fx, jit or the compiler."""
    symbolic = sys.modules.get("torch.fx._symbolic_trace")
    # A function of torch's newer versions, a flag in the older.
    by_fx = getattr(symbolic, "_get_is_fx_tracing", None) or (lambda: getattr(symbolic, "_is_fx_tracing_flag", False))
    by_jit = getattr(torch._C, "_get_tracing_state", _nothing)
    # Not every version says that it is compiling while it traces the backward of a graph.
    by_compiler = getattr(getattr(sys.modules.get("torch._guards"), "TracingContext", None), "try_get", _nothing)

    def is_tracing():
        return is_compiling() or by_fx() or by_jit() is not None or by_compiler() is not None

    return is_tracing


def _nothing():
    return None


def _ignore(name):
    pass


@_native.harmless
def _pass_over(torch):
    """Tells torch's compiler to run our frames as they are, and to look at those they call.

    It would otherwise try to compile them wherever a compiled function goes on in Python.
    """
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    skip = getattr(frames, "skip_code", None)
    if skip is None and hasattr(frames, "set_code_exec_strategy"):
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)

        def skip(code):
            frames.set_code_exec_strategy(code, strategy)

    if skip is None:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    for module in (_iterations, _labels, _modules, _native, _phases, sys.modules[__name__]):
        for thing in list(vars(module).values()):
            for code in _codes_of(thing):
                if os.path.dirname(os.path.abspath(code.co_filename)) == here:
                    skip(code)


def _codes_of(thing):
    """The code of a function or of a class's methods, and of the functions inside."""
    members = list(vars(thing).values()) if isinstance(thing, type) else [thing]
    codes = [f.__code__ for member in members for f in (member, getattr(member, "__wrapped__", None)) if hasattr(f, "__code__")]
    for code in codes:  # grows while it is gone through
        codes += [c for c in code.co_consts if hasattr(c, "co_consts")]
    return codes
