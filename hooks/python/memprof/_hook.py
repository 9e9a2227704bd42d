"""The capture hook in this process: whether `memprof record` or memprof.watch has loaded it, and helpers to call it."""

import functools

_library = None
_looked = False  # whether library() has looked for the hook


def library():
    """The loaded hook, or None."""
    global _library, _looked
    if not _looked:
        _looked = True
        _library = _find()
    return _library


def adopt(hook):
    """The process has loaded the hook itself (memprof.watch)."""
    global _library, _looked
    _library, _looked = hook, True


def active():
    """True when the hook is loaded and records this process."""
    lib = library()
    return lib is not None and lib.memprof_active() != 0


def _find():
    import os

    if not os.environ.get("MEMPROF_SPOOL"):
        return None
    from memprof import _calls

    return _calls.Hook() if _calls.loaded() else None


def path():
    """The file of the loaded hook, or None."""
    try:
        with open("/proc/self/maps") as maps:
            return next((line.split(None, 5)[5].strip() for line in maps if line.rstrip().endswith("/libmemprof.so")), None)
    except OSError:
        return None


def problem(text):
    """Adds a line to the problems that `record` prints at the end. The job continues."""
    lib = library()
    if lib is not None:
        lib.memprof_problem(encoded(text.replace("\n", " ")))


def context(**values):
    """The number of the context with these fields."""
    return library().memprof_context(fields(values))


def fields(values):
    """The name=value fields of a context, as C reads them, without those that are empty or 0.

    A tab separates fields, so white space within a value becomes one space.
    """
    return encoded("\t".join("%s=%s" % (name, " ".join(str(value).split())) for name, value in values.items() if value))


def encoded(value):
    """The bytes that C gets for a value's text. Characters without an encoding become `?`."""
    return str(value).encode(errors="replace")


def harmless(method):
    """Wraps a method so that an exception becomes a problem of the recording, and the result None.

    Our code runs inside the job's calls, and must not make them fail. At most 20 different problems
    are reported.
    """

    @functools.wraps(method)
    def guarded(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Exception as error:
            text = "%s: %s: %s" % (method.__name__, type(error).__name__, error)
            if text not in _reported and len(_reported) < 20:
                _reported.add(text)
                problem("attribution: " + text)

    return guarded


_reported = set()  # texts of problems
