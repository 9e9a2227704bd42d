"""Marks for memprof recordings, and memory that is paused and resumed.

    import memprof

    for batch in loader:
        with memprof.phase("forward"):
            loss = model(batch)
        ...
        memprof.iteration()

In a process that `memprof record` does not run, marks do nothing, so a script may keep
them. In a recorded process torch's phases, modules and optimizer steps are recorded
without marks. After the first call of `iteration()`, steps end no iterations.

    with memprof.region("kv_cache"):
        cache = torch.empty(...)    # gets the tag kv_cache
    memprof.pause("kv_cache")       # unmaps the tag's memory
    memprof.resume("kv_cache")      # maps it again at the same addresses

Outside `memprof record`, `region` does nothing, and `pause` and `resume` raise PauseError.

    pool = memprof.GraphMemory()
    with pool.shape("bs8") as shape, torch.cuda.graph(graph):
        logits = shape.output(model(tokens))

CUDA graphs of many shapes share one physical memory, as large as the largest shape.
With torch's own allocator, each shape has a pool of its own.

`memprof.scalars()` are this process's bytes for a logger, and `memprof.callbacks` logs them from
the trainers of transformers and Lightning. `memprof.Recording("run")` shows a recording in a
notebook.

    memprof.watch("run")            # records this process from now on
    memprof.stop()

`watch` needs no `memprof record`: PyTorch keeps its own allocator, which memprof observes. `with
memprof.watching("run"):` does both, and MEMPROF_WATCH=run in the environment of any process. `memprof.snapshot()`
writes what is recorded so far.

`memprof.kv` has the marks by which an engine reports how it divides a KV cache.

PYTEST_DONT_REWRITE: pytest would warn that the package, whose assertions it wants to rewrite, is imported already.
"""

from contextlib import contextmanager

from memprof import _hook

__all__ = ["CATEGORIES", "GraphMemory", "GraphMemoryError", "PauseError", "Recording", "WatchError", "attach", "backup_folder", "iteration", "kv", "label", "pause", "phase", "recording", "region", "resume", "scalars", "share", "snapshot", "stacks", "stop", "usage", "watch", "watching"]

# The categories that a label may have. The report derives the others from phases and lifetimes.
CATEGORIES = ("weights", "gradients", "optimizer", "inputs", "kv_cache")


_LATER = dict.fromkeys(("PauseError", "backup_folder", "pause", "region", "resume", "usage"), "_tags.regions")
_LATER.update(scalars="_scalars", Recording="_notebook")
_LATER.update(dict.fromkeys(("WatchError", "snapshot", "stop", "watch", "watching"), "_recording"))
_LATER.update(share="_tags.sharing", attach="_tags.sharing", GraphMemory="_graphs.memory", GraphMemoryError="_graphs.captures")


def __getattr__(name):
    # Every Python process under `memprof record` imports this package, so modules that few
    # scripts use are imported at their first use.
    if name not in _LATER and name != "kv":
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    import importlib

    if name == "kv":
        return importlib.import_module("memprof.kv")
    return getattr(importlib.import_module("memprof." + _LATER[name]), name)


def recording():
    """True while this process is recorded."""
    return _hook.active()


def iteration(label=""):
    """Marks the end of an iteration."""
    lib = _hook.library()
    if lib is None:
        return
    from memprof import _attribution

    _attribution.end_iteration(_hook.encoded(label))


@contextmanager
def phase(name, uses=()):
    """Names the phase of the job inside the `with` block. Phases nest.

    `uses` lists the tags whose memory the phase needs. No event of a recording shows what
    kernels read and write. With `uses`, `memprof report` lists the tags that were resident
    and not needed.
    """
    lib = _hook.library()
    if lib is None:
        yield
        return
    text = _phase_text(str(name), uses)
    lib.memprof_phase_begin(text)
    try:
        yield
    finally:
        lib.memprof_phase_end(text)


def _phase_text(name, uses):
    name = name.replace("\t", " ")  # a tab ends the name
    if not uses:
        return _hook.encoded(name)
    # A blank separates tags, so blanks within one become _. As in the trace, a tag has at most 100 bytes
    # and ends with a whole character.
    tags = ["".join("_" if c <= " " else c for c in str(tag)).encode(errors="replace")[:100].decode(errors="ignore").encode() for tag in uses]
    return _hook.encoded(name) + b"\tuses=" + b" ".join(tags)


def stacks(wanted=True):
    """Starts, or with False stops, recording the Python stack of each allocation.

    `memprof record --stacks python` records them from the start. This is for one part of a
    job.
    """
    lib = _hook.library()
    if lib is not None:
        lib.memprof_stacks(1 if wanted else 0)


def label(tensor, category, name=""):
    """Labels the memory of a tensor with one of CATEGORIES and a name.

    The label is of the tensor's allocation, until that is freed. Of several labels the last
    counts. `tensor` is one of torch's, or any object with a `__cuda_array_interface__`.
    """
    if category not in CATEGORIES:
        raise ValueError("unknown category %r: use one of %s" % (category, ", ".join(CATEGORIES)))
    if _hook.library() is not None:
        from memprof._attribution import labels

        labels.label(tensor, category, name)


def _offer_attach():
    import os

    if os.environ.get("MEMPROF_SPOOL") or os.environ.get("MEMPROF_ATTACH") == "0":
        return
    try:
        from memprof import _inject

        _inject.offer_attach()
    except Exception:  # never break the job
        pass


_offer_attach()
