"""The C functions of hooks/capture/memprof.h that Python calls: what each takes and returns.

Every call of the hook goes through this table. tests/test_calls.py compares it with the header,
so that a change of one of them alone fails there and not in a job.
"""

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

KV_ALL = -1  # MEMPROF_KV_ALL: every sequence of a cache

# memprof_share_tag calls it for each arena: name, first address, bytes.
EachShared = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64)


class TagUsage(ctypes.Structure):
    """struct memprof_tag_usage, in bytes."""

    _fields_ = [("live", c_uint64), ("mapped", c_uint64), ("paused", c_uint64), ("copied", c_uint64)]


class GraphUsage(ctypes.Structure):
    """struct memprof_graph_usage: bytes, bytes, and a number of ranges."""

    _fields_ = [("physical", c_uint64), ("addresses", c_uint64), ("ranges", c_uint64)]


class Chunk(ctypes.Structure):
    """struct memprof_chunk."""

    _fields_ = [("addr", c_uint64), ("size", c_uint64), ("requested", c_uint64), ("state", c_int)]


class Stat(ctypes.Structure):
    """struct memprof_stat."""

    _fields_ = [("current", c_int64), ("peak", c_int64), ("allocated", c_int64), ("freed", c_int64)]


class Stats(ctypes.Structure):
    """struct memprof_stats."""

    _fields_ = [(name, Stat) for name in ("allocation", "requested_bytes", "allocated_bytes", "active", "active_bytes", "segment", "reserved_bytes")]
    _fields_ += [(name, Stat) for name in ("inactive_bytes", "torch_bytes", "torch_active")]
    _fields_ += [(name, c_int64) for name in ("retries", "ooms", "device_allocs", "device_frees", "syncs")]


class Listed(ctypes.Structure):
    """struct memprof_listed."""

    _fields_ = [(name, c_uint64) for name in ("addr", "size", "requested", "stream", "pool0", "pool1")] + [("state", c_int), ("first", c_int)]


# Name: (result, arguments ...). These return at once. They are called with the GIL held, because
# releasing it would take longer than the call.
QUICK = {
    "memprof_active": (c_int,),
    "memprof_iteration": (None, c_char_p),
    "memprof_phase_begin": (None, c_char_p),
    "memprof_phase_end": (None, c_char_p),
    "memprof_context": (c_uint32, c_char_p),
    "memprof_context_cell": (c_void_p,),
    "memprof_set_context": (None, c_char_p),
    "memprof_label": (None, c_void_p, c_char_p),
    "memprof_label_many": (None, c_size_t, c_void_p, c_void_p),
    "memprof_stacks": (None, c_int),
    "memprof_note_framework": (None, c_char_p),
    "memprof_problem": (None, c_char_p),
    "memprof_watch_sample": (None,),
    "memprof_plugin_prepare": (c_int, c_char_p),
    "memprof_kv_cache": (c_uint64, c_int, c_uint64, c_uint64, c_char_p),
    "memprof_kv_reserve": (None, c_uint64, c_int64, c_uint64, c_uint64, c_uint64),
    "memprof_kv_share": (None, c_uint64, c_int64, c_uint64, c_uint64, c_int64),
    "memprof_kv_append": (None, c_uint64, c_int64, c_uint64),
    "memprof_kv_append_many": (None, c_uint64, c_size_t, POINTER(c_int64), POINTER(c_uint64)),
    "memprof_kv_free": (None, c_uint64, c_int64, c_uint64),
    "memprof_kv_swap_out": (None, c_uint64, c_int64),
    "memprof_kv_swap_in": (None, c_uint64, c_int64, c_uint64, c_uint64),
    "memprof_kv_drop": (None, c_uint64, c_uint64, c_uint64),
    "memprof_kv_end": (None, c_uint64),
}

# These may wait for the device or for another thread. They are called with the GIL released.
WAITING = {
    # Of memprof_malloc, _malloc_in_pool, _free and _empty_cache, and of a pool's begin and end, only the tests make calls.
    "memprof_malloc": (c_void_p, c_size_t, c_int, c_void_p),
    "memprof_malloc_in_pool": (c_void_p, c_size_t, c_int, c_void_p, c_uint64, c_uint64),
    "memprof_free": (None, c_void_p, c_size_t, c_int, c_void_p),
    "memprof_empty_cache": (c_size_t, c_int),
    "memprof_pool_hold": (None, c_int, c_uint64, c_uint64),
    "memprof_pool_begin": (None, c_int, c_uint64, c_uint64),
    "memprof_pool_end": (None, c_int, c_uint64, c_uint64),
    "memprof_release_pool": (None, c_int, c_uint64, c_uint64),
    "memprof_pool_uses": (c_int64, c_int, c_uint64, c_uint64),
    "memprof_pool_spare": (None, c_int, c_uint64, c_uint64, c_int),
    "memprof_set_limit": (None, c_int, c_uint64),
    "memprof_get_stats": (None, c_int, POINTER(Stats)),
    "memprof_reset_peak": (None, c_int),
    "memprof_reset_accumulated": (None, c_int),
    "memprof_plugin_pool_source": (c_int, c_int, c_uint64, c_uint64, c_void_p, c_void_p),
    "memprof_plugin_reset": (None,),
    "memprof_list": (c_size_t, c_int, POINTER(Listed), c_size_t),
    "memprof_region_begin": (c_int, c_char_p, c_int),
    "memprof_region_end": (None,),
    "memprof_region_lend": (None, c_int),
    "memprof_prepare_backup": (None, c_char_p),
    "memprof_pause": (c_int, POINTER(c_char_p), c_size_t, c_int),
    "memprof_resume": (c_int, POINTER(c_char_p), c_size_t, c_int),
    "memprof_communicators": (c_int, c_int),
    "memprof_pause_message": (c_char_p,),
    "memprof_backup_at": (c_int, c_void_p, c_size_t, POINTER(c_void_p)),
    "memprof_backup_folder": (None, c_char_p),
    "memprof_tags_in_use": (c_int,),
    "memprof_tag_offloaded": (None, c_char_p, c_int),
    "memprof_saver_serves": (None, c_int),
    "memprof_saver_discard": (None, c_int),
    "memprof_tag_usage": (None, c_char_p, POINTER(TagUsage)),
    "memprof_share_tag": (c_int, c_char_p, c_int, c_void_p, EachShared),
    "memprof_open_shared": (c_void_p, c_char_p, c_int),
    "memprof_close_shared": (None, c_void_p, c_int),
    "memprof_graph_memory_open": (c_uint32, c_int, c_uint64),
    "memprof_graph_memory_close": (None, c_int, c_uint32),
    "memprof_graph_shape": (c_int, c_int, c_uint32, c_char_p, c_uint64, c_uint64, c_int),
    "memprof_graph_message": (c_char_p,),
    "memprof_graph_enter": (None, c_int, c_uint64, c_uint64),
    "memprof_graph_live": (c_size_t, c_int, c_uint64, c_uint64, POINTER(Chunk), c_size_t),
    "memprof_graph_usage": (c_int, c_int, c_uint32, POINTER(GraphUsage)),
    "memprof_graph_extent": (c_int, c_int, c_uint64, c_uint64, POINTER(c_uint64), POINTER(c_uint64)),
    "memprof_capture_name": (None, c_char_p, c_uint64, c_uint64, c_uint64),
}

# Functions of the compiled torch shim, hooks/torch/shim.cpp. Each returns why it refused, or None.
SHIM = {
    "memprof_torch_install": (c_char_p,),
    "memprof_torch_watch": (c_char_p,),
}

# Functions of the library torch_memory_saver, which the hook exports, too: hooks/capture/api_saver.c.
SAVER = {
    "tms_set_current_tag": (None, c_char_p),
    "tms_get_current_tag": (c_char_p,),
    "tms_set_interesting_region": (None, ctypes.c_bool),
    "tms_get_interesting_region": (ctypes.c_bool,),
    "tms_set_enable_cpu_backup": (None, ctypes.c_bool),
    "tms_get_enable_cpu_backup": (ctypes.c_bool,),
    "tms_set_cpu_backup_backend": (None, c_char_p),
    "tms_get_cpu_backup_backend": (c_char_p,),
    "tms_set_enable_disk_backup": (None, ctypes.c_bool),
    "tms_get_enable_disk_backup": (ctypes.c_bool,),
    "tms_set_disk_backup_dir": (None, c_char_p),
    "tms_pause": (c_int, c_char_p),
    "tms_resume": (c_int, c_char_p),
    "set_memory_margin_bytes": (None, c_uint64),
    "tms_set_retain_cpu_backup": (None, ctypes.c_bool),
    "tms_get_retain_cpu_backup": (ctypes.c_bool,),
    "tms_get_cpu_backup_pointer": (POINTER(ctypes.c_uint8), POINTER(ctypes.c_uint8), c_uint64),
}


class Hook:
    """The hook in this process. A function of the table is an attribute, looked up at its first use."""

    def __init__(self):
        # LD_PRELOAD has put the hook into the global scope, where CDLL(None) looks.
        self._quick, self._waiting = ctypes.PyDLL(None), ctypes.CDLL(None)

    def __getattr__(self, name):
        if name in QUICK:
            function = _declared(self._quick, name, QUICK)
        elif name in WAITING:
            function = _declared(self._waiting, name, WAITING)
        else:
            raise AttributeError("%s is not in the table of memprof._calls" % name)
        setattr(self, name, function)
        return function


def loaded():
    """Whether the hook is in this process."""
    return hasattr(ctypes.CDLL(None), "memprof_abi")


def address(name):
    """The address of a function of the hook, for code that calls it from C."""
    return ctypes.cast(getattr(ctypes.CDLL(None), name), c_void_p).value


def shim(path):
    """The compiled torch shim in the file, loaded into this process."""
    program = ctypes.CDLL(path)
    for name in SHIM:
        _declared(program, name, SHIM)
    return program


class _WithRuntime(ctypes.CDLL):
    """A library whose functions include those of the CUDA runtime that the process has loaded, as if linked with it."""

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            with open("/proc/self/maps") as maps:
                path = next((line.split(None, 5)[5].strip() for line in maps if "/libcudart" in line), None)
            if path is None or not name.startswith("cuda"):
                raise
            return getattr(ctypes.CDLL(path), name)


def saver(path=None):
    """The functions of SAVER of a library, or of the process."""
    program = _WithRuntime(path)
    for name in SAVER:
        if hasattr(program, name):
            _declared(program, name, SAVER)
    return program


def _declared(program, name, table):
    function = getattr(program, name)
    function.restype, *function.argtypes = table[name]
    return function
