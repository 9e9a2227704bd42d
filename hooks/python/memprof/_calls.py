"""The C functions of the hook that Python calls, with the types that hooks/capture/memprof.h declares.

Every call of the hook goes through `Hook`. The header lies beside this package wherever the hook is installed, since the
shim is compiled with it.
"""

import ctypes
import os
import re
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_uint64, c_void_p

KV_ALL = -1  # MEMPROF_KV_ALL: every sequence of a cache

# memprof_share_tag calls it for each arena: name, first address, bytes.
EachShared = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64)


class TagUsage(ctypes.Structure):
    """struct memprof_tag_usage, in bytes."""

    _fields_ = [("live", c_uint64), ("mapped", c_uint64), ("paused", c_uint64), ("copied", c_uint64)]


class GraphUsage(ctypes.Structure):
    """struct memprof_graph_usage: bytes, bytes, and a number of ranges."""

    _fields_ = [("physical", c_uint64), ("addresses", c_uint64), ("ranges", c_uint64)]


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


# These return at once. They are called with the GIL held, because releasing it would take longer than the call. All others may
# wait for the device or for another thread, and are called with the GIL released.
QUICK = {
    "memprof_active", "memprof_iteration", "memprof_phase_begin", "memprof_phase_end", "memprof_context", "memprof_context_cell",
    "memprof_set_context", "memprof_label", "memprof_label_many", "memprof_stacks", "memprof_call_as", "memprof_note_framework", "memprof_problem",
    "memprof_watch_sample", "memprof_begin", "memprof_end", "memprof_plugin_prepare", "memprof_kv_cache", "memprof_kv_reserve", "memprof_kv_share", "memprof_kv_append",
    "memprof_watch_device", "memprof_watch_adopt", "memprof_watch_adopt_block", "memprof_watch_alloc", "memprof_watch_free", "memprof_watch_free_done",
    "memprof_watch_map", "memprof_watch_unmap", "memprof_watch_oom", "memprof_stack_node", "memprof_stack_node_at", "memprof_kv_append_many", "memprof_kv_free", "memprof_kv_swap_out", "memprof_kv_swap_in", "memprof_kv_drop", "memprof_kv_end",
}

_NUMBERS = {name: getattr(ctypes, "c_" + name.replace("_t", "")) for name in ("int", "int32_t", "uint32_t", "int64_t", "uint64_t")}
_NUMBERS.update(size_t=ctypes.c_size_t, void=None)

# Name: (result, arguments ...), of the compiled torch shim, hooks/torch/shim.cpp. Each returns why it refused, or None.
SHIM = {
    "memprof_torch_install": (c_char_p,),
    "memprof_torch_watch": (c_char_p,),
    "memprof_torch_unwatch": (None,),
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


def signature(header, name):
    """The ctypes of a function's result and arguments, or None where the text of the header does not declare it."""
    found = re.search(r"\b%s\(" % name, header)
    if found is None:
        return None
    result = header[header.rfind("\n", 0, found.start()) + 1 : found.start()]
    arguments = header[found.end() : header.index(");", found.end())]
    arguments = re.sub(r"\(\*\w+\)\([^()]*\)", "*", arguments)  # functions among them
    return [_kind(result)] + [_kind(argument) for argument in arguments.split(",") if argument != "void"]


def _kind(declared):
    declared = " ".join(declared.split())
    if "*" in declared:
        return c_char_p if re.fullmatch(r"const char ?\*\w*", declared) else c_void_p
    return _NUMBERS[declared.split()[0]]


class Hook:
    """The hook in this process. A function of the header is an attribute, looked up at its first use."""

    def __init__(self, library=None):
        # LD_PRELOAD has put the hook into the global scope, where CDLL(None) looks. Another file is loaded for this object alone, so
        # that its CUDA functions replace nobody's.
        from memprof import _place

        self._quick, self._waiting = ctypes.PyDLL(library), ctypes.CDLL(library)
        with open(os.path.join(_place.hooks(), "capture", "memprof.h")) as file:
            self._header = re.sub(r"//.*", "", file.read())

    def __getattr__(self, name):
        types = signature(self._header, name)
        if types is None:
            raise AttributeError("%s is not declared in memprof.h" % name)
        function = _declared(self._quick if name in QUICK else self._waiting, name, {name: types})
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
