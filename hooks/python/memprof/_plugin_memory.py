"""What torch.cuda answers about memory under the plug-in allocator: torch._C's functions, from the hook's counters."""

import ctypes
import functools

from memprof import _calls, _hook

STATES = ("inactive", "active_allocated", "active_pending_free")  # of enum memprof_chunk_state


def install(torch, lib):
    """Replaces those functions of torch._C that would ask the allocator and raise, and torch.cuda.MemPool."""
    memory = Memory(torch, lib)
    for name, function in memory.functions().items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, _plain(name, function))
    _replace_pools(torch, lib, memory)


def _plain(name, function):
    """A function of Python's own for each name: torch.compile has tables of them, and ctypes' cannot be hashed."""

    def answer(*args, **kwargs):
        return function(*args, **kwargs)

    answer.__name__ = answer.__qualname__ = name
    return answer


class Memory:
    """Answers from the hook. Sizes are in bytes."""

    def __init__(self, torch, lib):
        self.torch, self.lib = torch, lib
        self.fractions = {}

    def functions(self):
        return {
            "_cuda_getAllocatorBackend": lambda: "native",  # as the shim answers
            "_cuda_memoryStats": self.stats,
            "_cuda_resetPeakMemoryStats": self.lib.memprof_reset_peak,
            "_cuda_resetAccumulatedMemoryStats": self.lib.memprof_reset_accumulated,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_getMemoryFraction": lambda device: self.fractions.get(device, 1.0),
            "_cuda_memorySnapshot": self.snapshot,
            "_cuda_isHistoryEnabled": lambda: False,
            "_cuda_record_memory_history": functools.partial(_ignored, "_record_memory_history"),
            "_cuda_record_memory_history_legacy": functools.partial(_ignored, "_record_memory_history"),
            "_cuda_attach_out_of_memory_observer": functools.partial(_ignored, "observers of failed requests"),
            # torch.accelerator asks the allocator of the device type, which is still torch's own.
            "_accelerator_isAllocatorInitialized": self.torch.cuda.is_initialized,
            "_accelerator_getDeviceStats": self.stats,
            "_accelerator_resetPeakStats": self.lib.memprof_reset_peak,
            "_accelerator_resetAccumulatedStats": self.lib.memprof_reset_accumulated,
            "_accelerator_emptyCache": self.lib.memprof_plugin_reset,
            "_accelerator_getMemoryInfo": self.torch.cuda.mem_get_info,
        }

    def stats(self, device):
        ours = _calls.Stats()
        self.lib.memprof_get_stats(device, ctypes.byref(ours))
        stats = {name: _of_pools(getattr(ours, name)) for name in ("allocation", "segment", "active", "reserved_bytes", "requested_bytes")}
        stats["allocated_bytes"], stats["active_bytes"] = _of_pools(ours.torch_bytes), _of_pools(ours.torch_active)
        inactive = _as_dict(ours.inactive_bytes)
        inactive["current"] = max(0, ours.reserved_bytes.current - ours.torch_active.current)
        stats["inactive_split_bytes"] = dict(_of_pools(ours.inactive_bytes), all=inactive, large_pool=inactive)
        stats["inactive_split"] = _of_pools(_calls.Stat())
        stats["oversize_allocations"] = stats["oversize_segments"] = _as_dict(_calls.Stat())
        stats.update(num_alloc_retries=ours.retries, num_ooms=ours.ooms, num_sync_all_streams=ours.syncs)
        stats.update(num_device_alloc=ours.device_allocs, num_device_free=ours.device_frees, max_split_size=-1)
        return stats

    def set_fraction(self, fraction, device):
        self.fractions[device] = fraction
        total = self.torch.cuda.mem_get_info(device)[1]
        self.lib.memprof_set_limit(device, max(int(fraction * total), 1))  # 0 would be no limit

    def snapshot(self, pool=(0, 0), *_):
        devices = range(self.torch.cuda.device_count())
        segments = [s for device in devices for s in self.segments(device) if pool == (0, 0) or s["segment_pool_id"] == tuple(pool)]
        return {"segments": segments, "device_traces": [[] for _ in devices], "external_annotations": [], "allocator_settings": {"expandable_segments": True}}

    def segments(self, device):
        """The mapped ranges of a device as torch's segments, with their blocks."""
        found = []
        for chunk in self.chunks(device):
            if chunk.first:
                found.append(
                    dict(device=device, address=chunk.addr, total_size=0, allocated_size=0, active_size=0, requested_size=0, stream=chunk.stream,
                         segment_type="large", segment_pool_id=(chunk.pool0, chunk.pool1), is_expandable=True, frames=[], blocks=[])
                )
            segment, state = found[-1], STATES[chunk.state]
            segment["total_size"] += chunk.size
            segment["requested_size"] += chunk.requested
            # As torch's statistics have them, which are compared with these sums; blocks have the bytes of their chunks.
            counted = (chunk.requested + 511) // 512 * 512
            segment["allocated_size"] += counted if state == "active_allocated" else 0
            segment["active_size"] += counted if state != "inactive" else 0
            segment["blocks"].append(dict(address=chunk.addr, size=chunk.size, requested_size=chunk.requested, state=state, frames=[]))
        return found

    def chunks(self, device):
        """All chunks of a device. Between two calls there may be more, so it asks until they fit."""
        room = 1024
        while True:
            buffer = (_calls.Listed * room)()
            count = self.lib.memprof_list(device, buffer, room)
            if count <= room:
                return buffer[:count]
            room = count + count // 8


def _as_dict(stat):
    return {name: getattr(stat, name) for name, _ in stat._fields_}


def _of_pools(stat):
    """torch divides statistics by small and large blocks. The hook does not: all of its segments are of the large pool."""
    return {"all": _as_dict(stat), "small_pool": _as_dict(_calls.Stat()), "large_pool": _as_dict(stat)}


def _ignored(what, *_args, **_kwargs):
    """Stands for a function of torch's that has no effect. The first call becomes a problem of the recording."""
    if what not in _ignored_before:
        _ignored_before.add(what)
        _hook.problem("torch's plug-in allocator: %s has no effect" % what)


_ignored_before = set()


def _replace_pools(torch, lib, memory):
    """torch's MemPool asks the allocator for a pool, which raises. The hook needs no more than an id."""
    make = torch._C._cuda_customAllocator
    known = []  # (torch's object, addresses of its C functions): of plug-ins that the job makes, for its MemPools

    def make_noted(allocate, free):
        known.append((make(allocate, free), allocate, free))
        return known[-1][0]

    torch._C._cuda_customAllocator = make_noted

    def take_from(allocator, device, pool):
        """Has the pool take its memory from the job's own plug-in."""
        for plugin, allocate, free in known:
            if plugin is allocator and lib.memprof_plugin_pool_source(device, *pool, allocate, free):
                return
        _ignored("the allocator of a MemPool, which is not a CUDAPluggableAllocator,")

    class MemPool:
        """As torch.cuda.MemPool."""

        def __init__(self, allocator=None, use_on_oom=False, no_split=False, **_others):
            self.allocator = allocator
            self.id = tuple(torch.cuda.graph_pool_handle())
            self.device = torch.cuda.current_device()
            lib.memprof_pool_hold(self.device, *self.id)
            if allocator is not None:
                take_from(allocator, self.device, self.id)
            if use_on_oom:
                lib.memprof_pool_may_unmap(self.device, *(self.id + (1,)))

        def use_count(self):
            return lib.memprof_pool_uses(self.device, *self.id)

        def snapshot(self, *_args, **_kwargs):
            return memory.snapshot(self.id)["segments"]

        def __del__(self):
            if hasattr(self, "device"):
                lib.memprof_release_pool(self.device, *self.id)

    class MemPoolContext:
        """As torch.cuda.MemPoolContext of torch 2.6: which pool is active."""

        active = []

        def __init__(self, pool):
            self.active.append(pool)

        def __del__(self):
            self.active.pop()

        @classmethod
        def active_pool(cls):
            return cls.active[-1] if cls.active else None

    for replacement in (MemPool, MemPoolContext):
        for module in (torch.cuda, torch.cuda.memory):
            if hasattr(module, replacement.__name__):
                setattr(module, replacement.__name__, replacement)
