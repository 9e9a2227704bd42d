"""The job as if its code had been edited: modules are checkpointed, or the optimizer is on the host.

--checkpoint MODULE   each module of that name is called by torch.utils.checkpoint: what it saves for backward ends with
                      its forward, and is made again
--offload optimizer   each step is made on the host, where the state is: gradients are copied there, and weights back
"""

import atexit
import difflib
import functools
import os
import re
import sys
import weakref

from memprof import _dryrun, _hook
from memprof._attribution import modules
from memprof._dryrun import values


def install(torch):
    patterns = os.environ.get("MEMPROF_DRY_RUN_CHECKPOINT", "")
    if patterns:
        _Checkpoints(torch, patterns.split(",")).install(_hook.library())
    if os.environ.get("MEMPROF_DRY_RUN_OFFLOAD") == "optimizer":
        _offload(torch)


class _Checkpoints:
    """Finds modules by their names, which are those of reports, at the first call of the model that they are part of."""

    def __init__(self, torch, patterns):
        self._torch = torch
        self._patterns = {p: re.compile(re.escape(p).replace(r"\*", "[^.]*")) for p in patterns}
        self._missing = set(patterns)
        self._names = {}  # of all modules, in order
        self._seen = weakref.WeakSet()
        self._iterations = 0

    def install(self, library):
        module = self._torch.nn.Module
        module.__call__ = self._wrap(module.__call__)
        mark = library.memprof_iteration

        def iteration(label):
            mark(label)
            self._iterations += 1
            if self._iterations == 2:  # one iteration may be of one of several models
                self._refuse_missing()

        library.memprof_iteration = iteration
        atexit.register(self._refuse_missing)

    def _wrap(self, call):
        @functools.wraps(call)
        def wrapped(module, *args, **kwargs):
            if module not in self._seen:
                self._look(module)
            return call(module, *args, **kwargs)

        return wrapped

    def _look(self, model):
        paths, top = modules._paths(model)
        self._seen.update(part for _, part in paths)
        found = {}
        for path, part in dict(paths).items():  # of a wrapper and what is in it, the latter
            names = (path, "%s.%s" % (top, path)) if path else (top,)
            self._names.update(dict.fromkeys(names[:1]))
            for pattern, expression in self._patterns.items():
                if any(map(expression.fullmatch, names)) if path else pattern == top:
                    found.setdefault(pattern, []).append(names[0])
                    self._checkpoint(part)
        for pattern, names in found.items():
            if pattern in self._missing:
                self._missing.remove(pattern)
                _hook.problem("dry run: --checkpoint %s wraps %s" % (pattern, _listed(names)))

    def _checkpoint(self, part):
        """Module.__call__ takes `_compiled_call_impl`, if there is one, in place of hooks and forward."""
        if type(part).forward is self._torch.nn.Module.forward:  # a list of modules is not called itself
            for each in part.children():
                self._checkpoint(each)
            return
        if getattr(part, "inplace", False):  # it overwrites what its checkpoint would keep, and saves nothing of its own
            return
        plainly = functools.partial(_call_plainly, weakref.ref(part))
        part._compiled_call_impl = functools.partial(self._torch.utils.checkpoint.checkpoint, plainly, use_reentrant=False)

    def _refuse_missing(self):
        for pattern in () if hasattr(sys, "last_type") else sorted(self._missing):  # after an exception models may have stayed uncalled
            near = difflib.get_close_matches(pattern, self._names, 3, 0.3) or list(self._names)[1:4]
            _dryrun.refuse("--checkpoint %s: the job called no module of that name; the nearest are %s" % (pattern, _listed(near)))


def _call_plainly(reference, *args, **kwargs):
    """Calls a module without its checkpoint."""
    part = reference()
    checkpointed, part._compiled_call_impl = part._compiled_call_impl, None
    try:
        return part(*args, **kwargs)
    finally:
        part._compiled_call_impl = checkpointed


def _listed(names):
    more = len(names) - 3
    return ", ".join(names[:3]) + (" and %d more" % more if more > 0 else "")


def _offload(torch):
    steps = {}  # of each optimizer in its step: what its parameters had on the device

    def begin(optimizer, args, kwargs):
        if len(args) > 1 and args[1] is not None or kwargs.get("closure") is not None:
            _dryrun.refuse("%s: --offload optimizer: a step with a closure cannot be made on the host" % values.line_of_script())
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.is_cuda:
                    state[name] = value.cpu()
        held = steps[id(optimizer)] = []
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None and p.is_cuda):
            data, grad = _both(parameter)
            held.append((parameter, data, grad))
            _put(parameter, data.cpu(), grad.cpu())

    def end(optimizer, args, kwargs):
        for parameter, data, grad in steps.pop(id(optimizer)):
            data.copy_(_both(parameter)[0])
            _put(parameter, data, grad)

    optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim rebinds its attribute
    optimizers.register_optimizer_step_pre_hook(begin)
    optimizers.register_optimizer_step_post_hook(end)
    _hook.problem("dry run: --offload optimizer: each step is made on the host, where the optimizer's state is")


def _both(parameter):
    """A parameter's data and gradient: of a DTensor, this rank's."""
    if hasattr(parameter, "_local_tensor"):
        return parameter._local_tensor, parameter.grad._local_tensor
    return parameter.data, parameter.grad


def _put(parameter, data, grad):
    if hasattr(parameter, "_local_tensor"):
        parameter._local_tensor, parameter.grad._local_tensor = data, grad
        return
    parameter.grad = None  # a gradient has to be where its parameter is
    parameter.data = data
    parameter.grad = grad
