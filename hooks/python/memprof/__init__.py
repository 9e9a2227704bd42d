"""Marks for memprof recordings.

    import memprof

    for batch in loader:
        with memprof.phase("forward"):
            loss = model(batch)
        ...
        memprof.iteration()

Outside `memprof record` every function does nothing, so that a script may keep its
marks. Inside, optimizer steps mark iterations by themselves; the first call of
`iteration()` takes over from them.
"""

from contextlib import contextmanager

from memprof import _native

__all__ = ["iteration", "phase", "recording"]


def recording():
    """True while this process is recorded."""
    return _native.active()


def iteration(label=""):
    """Marks the end of an iteration."""
    lib = _native.library()
    if lib is None:
        return
    from memprof import _attribution

    _attribution.end_iteration(str(label).encode())


@contextmanager
def phase(name):
    """Names what happens inside the `with` block; phases nest."""
    lib = _native.library()
    if lib is None:
        yield
        return
    text = str(name).encode()
    lib.memprof_phase_begin(text)
    try:
        yield
    finally:
        lib.memprof_phase_end(text)
