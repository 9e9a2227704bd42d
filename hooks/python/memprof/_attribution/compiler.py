"""What the wrappers need to know of torch's compiler: whether it traces, and how to stay out of it."""

import os
import sys

from memprof import _hook


def tracing(torch, is_compiling):
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


@_hook.harmless
def pass_over(torch):
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
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    package = [module for name, module in list(sys.modules.items()) if (name + ".").startswith(__package__ + ".")]
    for module in [_hook] + package:
        for thing in list(vars(module).values()):
            for code in _codes_of(thing):
                if os.path.abspath(code.co_filename).startswith(here + os.sep):
                    skip(code)


def _codes_of(thing):
    """The code of a function or of a class's methods, and of the functions inside."""
    members = list(vars(thing).values()) if isinstance(thing, type) else [thing]
    codes = [f.__code__ for member in members for f in (member, getattr(member, "__wrapped__", None)) if hasattr(f, "__code__")]
    for code in codes:  # grows while it is gone through
        codes += [c for c in code.co_consts if hasattr(c, "co_consts")]
    return codes
