"""Marks for memprof recordings, and memory that is paused and resumed.

    import memprof

    for batch in loader:
        with memprof.phase("forward"):
            loss = model(batch)
        ...
        memprof.iteration()

Outside `memprof record` every function does nothing, so that a script may keep its
marks. Inside, torch's own phases, modules and optimizer steps are told by themselves;
the first call of `iteration()` takes over from the steps.

    with memprof.region("kv_cache"):
        cache = torch.empty(...)
    memprof.pause("kv_cache")   # its memory goes back to the device
    memprof.resume("kv_cache")  # at the same addresses

Outside, a region does nothing, and pausing raises PauseError.

    pool = memprof.GraphMemory()
    with pool.shape("bs8") as shape, torch.cuda.graph(graph):
        logits = shape.output(model(tokens))

Graphs of many shapes share one memory, the size of the largest; outside, each has its own.

An engine that serves a language model says how it divides its memory for keys and values
with the marks of `memprof.kv`.
"""

from contextlib import contextmanager

from memprof import _hook

__all__ = ["CATEGORIES", "GraphMemory", "GraphMemoryError", "PauseError", "attach", "iteration", "kv", "label", "pause", "phase", "recording", "region", "resume", "share", "stacks", "usage"]

# What a block may be labelled as; the rest is told from how it is used.
CATEGORIES = ("weights", "gradients", "optimizer", "inputs", "kv_cache")


_LATER = dict.fromkeys(("PauseError", "pause", "region", "resume", "usage"), "_tags.regions")
_LATER.update(share="_tags.sharing", attach="_tags.sharing", GraphMemory="_graphs.memory", GraphMemoryError="_graphs.captures")


def __getattr__(name):
    # Every Python process under `memprof record` imports this package: what few ask for is
    # imported when it is asked for.
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
    """Names what happens inside the `with` block; phases nest.

    `uses` are the tags whose memory is needed meanwhile. A recording cannot tell that: kernels
    read and write unseen. `memprof report` then says which tags were awake in vain.
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
    if not uses:
        return _hook.encoded(name)
    # As tags stand in the trace: without blanks, which are between them here, and cut at the end of a character.
    tags = ["".join("_" if c <= " " else c for c in str(tag)).encode(errors="replace")[:100].decode(errors="ignore").encode() for tag in uses]
    return _hook.encoded(name.replace("\t", " ")) + b"\tuses=" + b" ".join(tags)


def stacks(wanted=True):
    """Records the Python stacks of requests from now on, or no longer.

    `memprof record --stacks python` has them recorded from the start; this is for the part of
    a job that is looked at. Without effect under `--allocator native`.
    """
    lib = _hook.library()
    if lib is not None:
        lib.memprof_stacks(1 if wanted else 0)


def label(tensor, category, name=""):
    """Says what the memory of a tensor holds: one of CATEGORIES, and a name of its own.

    It is said of the block of memory, for as long as that lives; the last label counts.
    Takes torch's tensors and whatever has a `__cuda_array_interface__`.
    """
    if category not in CATEGORIES:
        raise ValueError("category %r: want one of %s" % (category, ", ".join(CATEGORIES)))
    if _hook.library() is not None:
        from memprof._attribution import labels

        labels.label(tensor, category, name)
