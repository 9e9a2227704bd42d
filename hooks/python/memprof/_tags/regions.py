"""Memory by tag: `region` sets the tag of allocations, `pause` and `resume` unmap and map its memory.

A tag is set for the calling thread. Autograd runs backward functions on threads of its own: while
a thread waits for them inside a region, threads without a tag allocate under that thread's tag.
"""

import ctypes
import functools
import os
import threading
import warnings
from contextlib import contextmanager

from memprof import _autograd, _calls, _hook

_sharing = False  # whether autograd's engine is wrapped
_tags = set()  # names of tags of this process's regions
_BACKUPS = {None: 0, "host": 1, "pageable": 3, "disk": 4, "discard": 5}  # enum memprof_restore
KEEP_COPIES, MAP_FREE = 1, 2  # flags of memprof_resume
_here = threading.local()  # .depth: how many regions the thread is in


class PauseError(RuntimeError):
    """A pause or a resume failed and changed nothing. The text says why. `code` is one of:

    NOT_ACTIVE      `memprof record` does not run the process, or runs it with --allocator native
    UNKNOWN_TAG     no region has had the tag
    WRONG_STATE     the tag is paused already, is not paused, or has no memory
    IN_CAPTURE      a CUDA graph is being captured
    NO_BACKUP       the tag has memory of CUDA graphs and no backup; replays would read undefined content.
                    Or there is no copy of what was asked for
    NO_HOST_MEMORY  the backup needs more host memory than there is, or than --backup-limit allows
    NO_MEMORY       the device has too little memory to resume; the text says what has the rest
    DEVICE_FAILED   the driver refused a call; what was done before is undone
    LEAKED          the exception: the tag is paused, but the driver did not release all handles
    NO_DISK         a backup file cannot be made, written or read; the text has the file and why
    """

    NOT_ACTIVE, UNKNOWN_TAG, WRONG_STATE, IN_CAPTURE, NO_BACKUP, NO_HOST_MEMORY, NO_MEMORY, DEVICE_FAILED, LEAKED, NO_DISK = range(1, 11)

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def _library():
    """The loaded hook, or None. The first call wraps autograd's engine, so that backward gets the tag."""
    global _sharing
    lib = _hook.library()
    if lib is not None and not _sharing:
        _sharing = True
        _share_with_backward(lib)
    return lib


@contextmanager
def region(tag="default", backup=None):
    """Allocations of this thread inside the `with` block get the tag; with None they get no tag. Regions nest.

    `backup` is what the memory of the region has after a pause and a resume:

    None        undefined content. A tag with memory of CUDA graphs cannot be paused: replays would read it
    "discard"   undefined content, and you state that it is dead between replays: no replay of a CUDA graph reads
                what it has not written. It counts for all memory of the tag that has None
    "host"      its content, which each pause copies to pinned host memory, kept for later pauses. It counts for all
                memory of the tag that has None or "discard"
    "pageable"  its content, copied to host memory that is not pinned: slower, and freed at the resume
    "disk"      its content, copied to a file in backup_folder()
    """
    if backup not in _BACKUPS:
        raise ValueError("unknown backup %r: use None or one of %s" % (backup, ", ".join(name for name in _BACKUPS if name)))
    lib = _library()
    if lib is None:
        yield
        return
    name = None if tag is None else _hook.encoded(tag)
    if lib.memprof_region_begin(name, _BACKUPS[backup]) != 0:
        raise MemoryError("tag %r: the host has no memory for another tag" % str(tag))
    if tag is not None:
        _tags.add(str(tag))
    try:
        with lent_to_backward():
            yield
    finally:
        lib.memprof_region_end()


@contextmanager
def lent_to_backward():
    """Inside the block, threads of autograd's engine that work for this thread allocate under its tag."""
    _library()
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1


def pause(*tags, unchanged=False):
    """Unmaps the memory of the tags, or without arguments of all tags. Their addresses stay reserved.

    All or nothing: a PauseError changes nothing. `unchanged=True` promises that the content is
    that of the copies which `resume(keep_backup=True)` kept, so it is not copied again. A
    RuntimeWarning says that less memory became free than was released: another process still maps
    it, for instance.
    """
    pause_with(tags, int(bool(unchanged)))


def resume(*tags, keep_backup=False):
    """Maps memory for the tags, or without arguments for all paused tags, at the same addresses.

    All or nothing: a PauseError changes nothing. The content is that before the pause if the tag
    has a backup, and else undefined. `keep_backup=True` keeps the copies for `pause(unchanged=True)`.
    """
    resume_with(tags, KEEP_COPIES if keep_backup else 0)


def pause_with(tags, flags):
    _call("memprof_pause", tags, flags)


def resume_with(tags, flags):
    _call("memprof_resume", tags, flags)


def backup_folder(path=None):
    """Sets the folder of backup files that are made from now on.

    None: that of the environment, which is TMS_DISK_BACKUP_DIR, else TMPDIR, else /tmp.
    """
    lib = _library()
    if lib is not None:
        lib.memprof_backup_folder(None if path is None else os.fsencode(path))


def backup_at(address, size):
    """The address in host memory of the copy of `size` bytes of device memory, or None. See memprof_backup_at."""
    lib = _active()
    copy = ctypes.c_void_p()
    code = lib.memprof_backup_at(address, size, ctypes.byref(copy))
    if code != 0:
        raise PauseError(code, lib.memprof_pause_message().decode(errors="replace"))
    return copy.value


def has_memory(tag=None):
    """Whether the tag, or any, has memory, mapped or paused."""
    lib = _library()
    if lib is None or tag is None:
        return lib is not None and lib.memprof_tags_in_use() != 0
    row = _calls.TagUsage()
    lib.memprof_tag_usage(_hook.encoded(tag), ctypes.byref(row))
    return bool(row.live or row.mapped or row.paused)


def usage():
    """For each tag the bytes live (in allocations, paused or not), mapped, paused, and copied to the host."""
    lib = _library()
    found = {}
    for tag in _tags if lib is not None else ():
        row = _calls.TagUsage()
        lib.memprof_tag_usage(_hook.encoded(tag), ctypes.byref(row))
        found[tag] = {name: getattr(row, name) for name, _ in row._fields_}
    return found


def _active():
    lib = _library()
    if lib is None:
        raise PauseError(PauseError.NOT_ACTIVE, "memprof's allocator is not loaded in this process: run it under `memprof record`")
    return lib


def _call(function, tags, flag):
    lib = _active()
    names = [_hook.encoded(tag) for tag in tags]
    code = getattr(lib, function)((ctypes.c_char_p * len(names))(*names), len(names), flag)
    message = lib.memprof_pause_message().decode(errors="replace")
    if code != 0:
        raise PauseError(code, message)
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _share_with_backward(lib):
    """While a thread with a tag waits for autograd's engine, the engine's threads allocate under that tag."""

    def wrap(run):
        @functools.wraps(run)
        def sharing(*args, **kwargs):
            if getattr(_here, "depth", 0) == 0:
                return run(*args, **kwargs)
            lib.memprof_region_share(1)
            try:
                return run(*args, **kwargs)
            finally:
                lib.memprof_region_share(0)

        return sharing

    _autograd.wrap_run(wrap)
