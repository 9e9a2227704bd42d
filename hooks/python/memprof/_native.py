"""The capture hook's C functions, when `memprof record` has loaded it into this process."""

_library = None
_looked = False


def library():
    """The loaded hook, or None."""
    global _library, _looked
    if not _looked:
        _looked = True
        _library = _find()
    return _library


def active():
    """True when the hook is loaded and records this process."""
    lib = library()
    return lib is not None and lib.memprof_active() != 0


def _find():
    import os

    if not os.environ.get("MEMPROF_SPOOL"):
        return None
    import ctypes

    # LD_PRELOAD has put it into the global scope; a process without it has no such symbol.
    program = ctypes.CDLL(None)
    try:
        program.memprof_abi
    except AttributeError:
        return None
    program.memprof_active.restype = ctypes.c_int
    for name in ("iteration", "phase_begin", "phase_end", "note_framework", "problem"):
        function = getattr(program, "memprof_" + name)
        function.argtypes = [ctypes.c_char_p]
        function.restype = None
    return program


def problem(text):
    """Tells `record` about a trouble of ours; the job goes on."""
    lib = library()
    if lib is not None:
        lib.memprof_problem(text.replace("\n", " ").encode(errors="replace"))
