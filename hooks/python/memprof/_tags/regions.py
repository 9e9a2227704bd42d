"""Memory by tag: regions, and tags that are paused and resumed at fixed addresses.

A region is the calling thread's. Autograd runs backward functions on threads of its own: as
long as a thread waits for them inside a region, its tag is lent to threads without one.
"""

import ctypes
import functools
import threading
import warnings
from contextlib import contextmanager

from memprof import _autograd, _calls, _hook

_lending = False
_tags = {}  # name: whether it was ever backed up
_here = threading.local()


class PauseError(RuntimeError):
    """A pause or a resume that changed nothing; its text says why, `code` what:

    NOT_ACTIVE      the process is not run by `memprof record`, or with --allocator native
    UNKNOWN_TAG     no region was ever opened with the tag
    WRONG_STATE     paused already, not paused, or without memory
    IN_CAPTURE      a CUDA graph is being captured
    NO_BACKUP       memory of graphs, which need a backup to replay what they should
    NO_HOST_MEMORY  for the backup, within --backup-limit
    NO_MEMORY       of the device, to resume; the text says who has the rest
    DEVICE_FAILED   the driver refused something, which was undone
    LEAKED          the exception to this: paused, but the driver did not take all back
    """

    NOT_ACTIVE, UNKNOWN_TAG, WRONG_STATE, IN_CAPTURE, NO_BACKUP, NO_HOST_MEMORY, NO_MEMORY, DEVICE_FAILED, LEAKED = range(1, 10)

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def _library():
    """The loaded hook, or None. At the first use backward is made to lend regions."""
    global _lending
    lib = _hook.library()
    if lib is not None and not _lending:
        _lending = True
        _lend_to_backward(lib)
    return lib


@contextmanager
def region(tag="default", backup=None):
    """What the thread allocates inside belongs to the tag; None: to no tag. Regions nest.

    With `backup="host"` every pause of the tag keeps its content in host memory, for which
    pinned memory is made ready when the region ends.
    """
    if backup not in (None, "host"):
        raise ValueError('backup %r: want None or "host"' % (backup,))
    lib = _library()
    if lib is None:
        yield
        return
    name = None if tag is None else _hook.encoded(tag)
    if lib.memprof_region_begin(name, backup is not None) != 0:
        raise MemoryError("no host memory for another tag")
    if tag is not None:
        _tags[str(tag)] = _tags.get(str(tag), False) or backup is not None
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
        lib.memprof_region_end()
        if backup is not None and tag is not None:
            lib.memprof_prepare_backup(name)


def pause(*tags, unchanged=False):
    """Gives the memory of the tags, or of all, back to the device. Addresses stay.

    All or nothing: after a PauseError everything is as it was. `unchanged` promises that
    the content is still that of the copies that `resume(keep_backup=True)` kept. Where less
    memory came back to the device than was released, that is a RuntimeWarning: another process
    maps what it was given of the tag, say.
    """
    _call("memprof_pause", tags, unchanged)


def resume(*tags, keep_backup=False):
    """Takes memory for the tags, or all that are paused, at the same addresses.

    All or nothing, too. The content is what it was where the tag has a backup, and undefined
    elsewhere. `keep_backup` leaves the copies for a next `pause(unchanged=True)`.
    """
    _call("memprof_resume", tags, keep_backup)


def usage():
    """Bytes by tag: live (in blocks, paused or not), mapped, paused, copied (on the host)."""
    lib = _library()
    found = {}
    for tag in _tags if lib is not None else ():
        row = _calls.TagUsage()
        lib.memprof_tag_usage(_hook.encoded(tag), ctypes.byref(row))
        found[tag] = {name: getattr(row, name) for name, _ in row._fields_}
    return found


def _call(function, tags, flag):
    lib = _library()
    if lib is None:
        raise PauseError(PauseError.NOT_ACTIVE, "memprof's allocator is not at work in this process")
    names = [_hook.encoded(tag) for tag in tags]
    code = getattr(lib, function)((ctypes.c_char_p * len(names))(*names), len(names), bool(flag))
    message = lib.memprof_pause_message().decode(errors="replace")
    if code != 0:
        raise PauseError(code, message)
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _lend_to_backward(lib):
    """The engine's run lends the region of the thread that waits for it."""

    def wrap(run):
        @functools.wraps(run)
        def lending(*args, **kwargs):
            if getattr(_here, "depth", 0) == 0:
                return run(*args, **kwargs)
            lib.memprof_region_lend(1)
            try:
                return run(*args, **kwargs)
            finally:
                lib.memprof_region_lend(0)

        return lending

    _autograd.wrap_run(wrap)
