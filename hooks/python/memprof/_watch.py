"""Observes torch's own allocator, for `memprof record --allocator native`.

The shim must attach its trace tracker after torch has initialised CUDA and before the first
allocation. Torch keeps a queue of calls for the end of that initialisation. Ours is queued at
the end of torch's import, so it comes before any that the job queues.
"""

import functools
import os

from memprof import _hook


def wanted():
    """True when torch's allocator is to be observed, not replaced."""
    return os.environ.get("MEMPROF_ALLOCATOR") == "native"


def install(torch):
    """Loads the shim now, or prepares to read torch's history, and attaches it when torch has initialised CUDA."""
    from memprof import _calls, _shim

    try:
        shim = _calls.shim(_shim.path(torch))
    except _shim.BuildError as error:
        shim = _history_instead(torch, error)
    note_settings(torch)
    if torch.cuda.is_initialized():
        _attach(shim)
    else:
        torch.cuda._lazy_call(lambda: _attach(shim))


def _history_instead(torch, error):
    from memprof import _history

    _hook.problem("%s; until then %s" % (error, _history.COST))
    lib = _hook.library()
    lib.memprof_stacks(0)  # entries have stacks; the hook would take that of the drain
    _hook.adopt(_history.Hook(lib))
    return _history.History(torch, lib, "stacks=1" in os.environ.get("MEMPROF_OPTIONS", "").split(","))


@functools.cache
def note_settings(torch):
    """From now on notes changes of the allocator's settings."""
    for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _noted(getattr(torch._C, name)))


def _noted(change):
    """Wraps a function of torch that changes settings. verify knows the environment's settings, and sees expandable segments in the trace."""

    @functools.wraps(change)
    def noted(text):
        if "," in text or not text.startswith("expandable_segments:"):
            _note()
        return change(text)

    return noted


@functools.cache
def _note():
    _hook.problem("torch: the job changes settings of the allocator in its code, which verify does not follow")


def _attach(shim):
    # Torch calls this while it initialises CUDA. An exception would undo the initialisation.
    try:
        refusal = shim.memprof_torch_watch()
        if refusal is not None:
            _hook.problem("torch: %s; tensors are not recorded" % refusal.decode(errors="replace"))
            return
        _sample_at_exit()
    except Exception as error:
        _hook.problem("torch: %s: %s; tensors are not recorded" % (type(error).__name__, error))


def _sample_at_exit():
    """Records the allocator's own sums at the end of the script, while the allocator still exists."""
    import atexit

    lib = _hook.library()
    if lib is not None:
        atexit.register(lib.memprof_watch_sample)
