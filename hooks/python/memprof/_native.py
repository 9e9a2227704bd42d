"""The capture hook's C functions, when `memprof record` has loaded it into this process."""

import functools

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
    # The calls that are made often keep the GIL: to give it up would cost more than they do.
    quick = ctypes.PyDLL(None)
    signatures = {
        "active": (ctypes.c_int,),
        "iteration": (None, ctypes.c_char_p),
        "phase_begin": (None, ctypes.c_char_p),
        "phase_end": (None, ctypes.c_char_p),
        "context": (ctypes.c_uint32, ctypes.c_char_p),
        "context_cell": (ctypes.c_void_p,),
        "label": (None, ctypes.c_void_p, ctypes.c_char_p),
        "label_many": (None, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p),
        "stacks": (None, ctypes.c_int),
        "note_framework": (None, ctypes.c_char_p),
        "problem": (None, ctypes.c_char_p),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(quick, "memprof_" + name)
        function.restype = result
        function.argtypes = arguments
    return quick


def problem(text):
    """Tells `record` about a trouble of ours; the job goes on."""
    lib = library()
    if lib is not None:
        lib.memprof_problem(text.replace("\n", " ").encode(errors="replace"))


def context(**fields):
    """The number of the context with these fields; what they cannot contain becomes a space."""
    text = "\t".join("%s=%s" % (name, " ".join(str(value).split())) for name, value in fields.items() if value)
    return library().memprof_context(text.encode(errors="replace"))


def harmless(method):
    """A method whose exceptions become a problem line and None: never the job's trouble."""

    @functools.wraps(method)
    def guarded(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Exception as error:
            text = "%s: %s: %s" % (method.__name__, type(error).__name__, error)
            if text not in _told and len(_told) < 20:
                _told.add(text)
                problem("attribution: " + text)

    return guarded


_told = set()
