"""Whether torch is tracing, and how our wrappers stay out of what torch's compiler compiles."""

import os
import sys

from memprof import _hook


def tracing(torch, is_compiling):
    """Returns a function that is True while fx, jit or torch.compile traces the running code."""
    symbolic = sys.modules.get("torch.fx._symbolic_trace")
    # Newer versions of torch have a function for it, older ones a flag.
    by_fx = getattr(symbolic, "_get_is_fx_tracing", None) or (lambda: getattr(symbolic, "_is_fx_tracing_flag", False))
    by_jit = getattr(torch._C, "_get_tracing_state", _nothing)
    # Some versions do not report that they are compiling while they trace the backward of a graph.
    by_compiler = getattr(getattr(sys.modules.get("torch._guards"), "TracingContext", None), "try_get", _nothing)

    def is_tracing():
        return is_compiling() or by_fx() or by_jit() is not None or by_compiler() is not None

    return is_tracing


def _nothing():
    return None


@_hook.harmless
def pass_over(torch):
    """Has torch's compiler run our frames uncompiled, and still compile the frames they call.

    Otherwise it would try to compile them wherever a compiled function returns to Python.
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
    """The code objects of a function, or of a class's methods, and those nested in them."""
    members = list(vars(thing).values()) if isinstance(thing, type) else [thing]
    codes = [f.__code__ for member in members for f in (member, getattr(member, "__wrapped__", None)) if hasattr(f, "__code__")]
    for code in codes:  # the loop appends nested code to the list it iterates over
        codes += [c for c in code.co_consts if hasattr(c, "co_consts")]
    return codes
