"""Memory by tag: `region` sets the tag of allocations, `pause` and `resume` unmap and map its memory.

A tag is set for the calling thread. Autograd runs backward functions on threads of its own: while
a thread waits for them inside a region, threads without a tag allocate under that thread's tag.
"""

import ctypes
import functools
import threading
import warnings
from contextlib import contextmanager

from memprof import _autograd, _calls, _hook

_lending = False  # whether autograd's engine is wrapped
_tags = {}  # name of a tag: whether a region of it had a backup
_here = threading.local()  # .depth: how many regions the thread is in


class PauseError(RuntimeError):
    """A pause or a resume failed and changed nothing. The text says why. `code` is one of:

    NOT_ACTIVE      `memprof record` does not run the process, or runs it with --allocator native
    UNKNOWN_TAG     no region has had the tag
    WRONG_STATE     the tag is paused already, is not paused, or has no memory
    IN_CAPTURE      a CUDA graph is being captured
    NO_BACKUP       the tag has memory of CUDA graphs and no backup; replays would read undefined content
    NO_HOST_MEMORY  the backup needs more host memory than there is, or than --backup-limit allows
    NO_MEMORY       the device has too little memory to resume; the text says what has the rest
    DEVICE_FAILED   the driver refused a call; what was done before is undone
    LEAKED          the exception: the tag is paused, but the driver did not release all handles
    """

    NOT_ACTIVE, UNKNOWN_TAG, WRONG_STATE, IN_CAPTURE, NO_BACKUP, NO_HOST_MEMORY, NO_MEMORY, DEVICE_FAILED, LEAKED = range(1, 10)

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def _library():
    """The loaded hook, or None. The first call wraps autograd's engine, so that backward gets the tag."""
    global _lending
    lib = _hook.library()
    if lib is not None and not _lending:
        _lending = True
        _lend_to_backward(lib)
    return lib


@contextmanager
def region(tag="default", backup=None):
    """Allocations of this thread inside the `with` block get the tag; with None they get no tag. Regions nest.

    With `backup="host"` each pause of the tag copies its content to pinned host memory, which is
    allocated when the region ends.
    """
    if backup not in (None, "host"):
        raise ValueError('unknown backup %r: use None or "host"' % (backup,))
    lib = _library()
    if lib is None:
        yield
        return
    name = None if tag is None else _hook.encoded(tag)
    if lib.memprof_region_begin(name, backup is not None) != 0:
        raise MemoryError("tag %r: the host has no memory for another tag" % str(tag))
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
    """Unmaps the memory of the tags, or without arguments of all tags. Their addresses stay reserved.

    All or nothing: a PauseError changes nothing. `unchanged=True` promises that the content is
    that of the copies which `resume(keep_backup=True)` kept, so it is not copied again. A
    RuntimeWarning says that less memory became free than was released: another process still maps
    it, for instance.
    """
    _call("memprof_pause", tags, unchanged)


def resume(*tags, keep_backup=False):
    """Maps memory for the tags, or without arguments for all paused tags, at the same addresses.

    All or nothing: a PauseError changes nothing. The content is that before the pause if the tag
    has a backup, and else undefined. `keep_backup=True` keeps the copies for `pause(unchanged=True)`.
    """
    _call("memprof_resume", tags, keep_backup)


def usage():
    """For each tag the bytes live (in allocations, paused or not), mapped, paused, and copied to the host."""
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
        raise PauseError(PauseError.NOT_ACTIVE, "memprof's allocator is not loaded in this process: run it under `memprof record`")
    names = [_hook.encoded(tag) for tag in tags]
    code = getattr(lib, function)((ctypes.c_char_p * len(names))(*names), len(names), bool(flag))
    message = lib.memprof_pause_message().decode(errors="replace")
    if code != 0:
        raise PauseError(code, message)
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def _lend_to_backward(lib):
    """While a thread with a tag waits for autograd's engine, the engine's threads allocate under that tag."""

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
