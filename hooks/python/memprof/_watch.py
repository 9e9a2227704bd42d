"""Has torch's own allocator watched, for `memprof record --allocator native`.

The shim can attach only when torch has initialised CUDA, and must do so before the first
allocation. Torch keeps a list of calls for that moment, which it makes in order; ours is
queued at the end of torch's import, before any of the job's own.
"""

import os

from memprof import _hook


def wanted():
    """True when torch's allocator is to be watched, not replaced."""
    return os.environ.get("MEMPROF_ALLOCATOR") == "native"


def install(torch):
    """Loads the shim now and attaches it as soon as CUDA is initialised."""
    from memprof import _calls, _shim

    shim = _calls.shim(_shim.path(torch))
    if torch.cuda.is_initialized():
        _attach(shim)
    else:
        torch.cuda._lazy_call(lambda: _attach(shim))


def _attach(shim):
    # Inside torch's initialisation of CUDA, which an exception would undo.
    try:
        refusal = shim.memprof_torch_watch()
        if refusal is not None:
            _hook.problem("torch: %s; tensors are not recorded" % refusal.decode(errors="replace"))
            return
        _sample_at_exit()
    except Exception as error:
        _hook.problem("torch: %s: %s; tensors are not recorded" % (type(error).__name__, error))


def _sample_at_exit():
    """The allocator's sums at the end of the script, while there is an allocator to ask."""
    import atexit

    lib = _hook.library()
    if lib is not None:
        atexit.register(lib.memprof_watch_sample)
