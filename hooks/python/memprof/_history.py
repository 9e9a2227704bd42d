"""Records torch's own allocator from torch's history, where the shim cannot be compiled.

Torch keeps the allocator's decisions as entries, each with a stack if asked. `_snapshot` returns the entries, and then the segments
with their blocks. A drain takes both before each mark, and when the entries may soon be more than torch keeps. It writes the entries as the
events that the shim writes (hooks/torch/native.h), at their times, and begins a new history. What other threads do between a
snapshot and the new history is in no entry, and neither is what torch has dropped. So a drain ends with the memory and the blocks that the
snapshot has: what differs is written as if it happened then. Other events come between the drains: an entry that is half a second older
than one of these gets the time of half a second before it (hooks/capture/base/clock.h), so that a drain comes each quarter at least.
"""

import atexit
import bisect
import ctypes
import functools
import os
import sys
import threading
import time

from memprof import _hook

MOST_ENTRIES = 200000  # that torch keeps of each device, a tenth of a kilobyte each, and stacks
LOOKS = 0.05  # seconds between two looks at how many have come
LONGEST = 0.25  # seconds from one drain to the next, where there are new entries
COST = "torch's own history is recorded, which adds about 1 us to an allocation and its free, and about 10 us more as it is read, at each mark"

AT, UNKNOWN = 1 << 63, 2**64 - 1  # MEMPROF_AT, MEMPROF_SUMS_UNKNOWN
PAGE = 21  # bits of the smallest piece that torch maps of an expandable segment
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

_current = None  # the History that marks drain


class Sums(ctypes.Structure):
    """struct memprof_watch_sums."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("provided", "provided_peak", "active", "reserved")]


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(Sums))
def _read_sums(number, out):
    """A memprof_watch_read: the sums after the last drain. While entries are written they are not known."""
    sums = None if _current is None else _current.sums(number)
    out[0] = Sums(*sums) if sums else Sums(reserved=UNKNOWN)


class Hook:
    """The hook. Calls that have to come after the allocations before them drain first."""

    def __init__(self, hook):
        self._hook = hook

    def __getattr__(self, name):
        return getattr(self._hook, name)

    def memprof_stacks(self, wanted):
        if _current is not None:
            _current.stacks = bool(wanted)
            _current.drain()  # and the new history has stacks, or none


def _draining(name):
    def call(self, *arguments):
        mark = functools.partial(getattr(self._hook, name), *arguments)
        return mark() if _current is None or not _current.drain(mark) else None

    return call


for _name in ("iteration", "phase_begin", "phase_end", "watch_sample", "label", "label_many"):
    setattr(Hook, "memprof_" + _name, _draining("memprof_" + _name))


class _Device:
    """What has been written of a device."""

    def __init__(self, number, watch):
        self.number, self.watch = number, watch
        self.memory = {}  # number of a page: the piece of memory there, (first address, end, stream, pool, whether blocks span it and the next)
        self.blocks = {}  # address: (bytes requested, stream, pool, whether its free is pending)
        self.layout = None  # of the last snapshot's segments
        self.segments = self.starts = ()  # of the snapshot that is being written, by address, and their addresses
        self.sums = None  # those of struct memprof_watch_sums, after the last drain
        self.allocated = self.entries = 0  # allocations, and entries about them and frees, by the last drain
        self.unseen = 0  # allocations that torch counts since the first drain, less those that were written

    def piece(self, addr):
        found = self.memory.get(addr >> PAGE)
        return found if found is not None and found[0] <= addr < found[1] else None


class History:
    """What the shim does (the functions of _calls.SHIM), by torch's history."""

    def __init__(self, torch, hook, stacks):
        self._torch, self._hook, self.stacks = torch, hook, stacks
        self._lock, self._busy, self._ended = threading.RLock(), False, threading.Event()
        self._devices, self._nodes, self._marks = [], {}, []
        self._restated = 0  # blocks
        self._now = time.monotonic_ns()  # at the last drain
        self._owner = os.getpid()

    def memprof_torch_watch(self):
        """Begins; returns the reason why not, or None."""
        global _current
        if not hasattr(self._torch.cuda.memory, "_record_memory_history"):
            return b"this torch has no history either"
        if getattr(self._torch._C, "_cuda_isHistoryEnabled", bool)():
            return b"the job itself uses torch's history"
        read = ctypes.cast(_read_sums, ctypes.c_void_p)
        watches = [self._hook.memprof_watch_device(i, b"native", read) for i in range(self._torch.cuda.device_count())]
        if None in watches:
            return b"this process is not recorded"
        self._hook.memprof_note_framework(b"torch's history")
        self._devices = [_Device(number, watch) for number, watch in enumerate(watches)]
        _current = self
        self.drain()
        self._hook.memprof_watch_sample()
        atexit.register(self.memprof_torch_unwatch)
        threading.Thread(target=self._look, name="memprof history", daemon=True).start()
        return None

    def memprof_torch_unwatch(self):
        global _current
        atexit.unregister(self.memprof_torch_unwatch)
        if _current is not self or os.getpid() != self._owner:
            return
        self._ended.set()
        self.drain()
        self._hook.memprof_watch_sample()
        with self._lock:
            _current = None
            self._torch.cuda.memory._record_memory_history(enabled=None)
        unseen = sum(max(device.unseen, 0) for device in self._devices)
        if unseen or self._restated:
            _hook.problem(
                "torch's history: %d allocations are not in it, since they came while it was read or were too many to keep; "
                "%d blocks are recorded where it was read" % (unseen, self._restated)
            )

    def _look(self):
        """Drains when half of the entries that torch keeps may have come, or the last drain was long ago."""
        while not self._ended.wait(LOOKS) and os.getpid() == self._owner:
            new = max(self._counts(device)[1] - device.entries for device in self._devices)
            if new > MOST_ENTRIES // 2 or new > 0 and time.monotonic_ns() - self._now > LONGEST * 1e9:
                interval = sys.getswitchinterval()
                sys.setswitchinterval(max(interval, 0.5))  # a loop of allocations would else be faster than the reading
                self.drain()
                sys.setswitchinterval(interval)

    def _counts(self, device):
        """By torch's statistics: allocations so far; entries, one for each and two for a free; the most bytes of blocks."""
        stats = self._torch.cuda.memory.memory_stats_as_nested_dict(device.number)
        if not stats:  # CUDA is being initialised
            return 0, 0, 0
        blocks = stats["allocation"]["all"]
        return blocks["allocated"], blocks["allocated"] + 2 * blocks["freed"], stats["allocated_bytes"]["all"]["peak"]

    def sums(self, number):
        return self._devices[number].sums

    @_hook.harmless
    def drain(self, mark=None):
        """Writes what has come. Returns True where this thread is writing already, as when the collector ends an object: it makes the mark afterwards."""
        if os.getpid() != self._owner:
            return False
        with self._lock:
            if self._busy:
                self._marks += [mark] if mark else []
                return True
            if _current is not self:
                return False
            self._busy = True
            try:
                self._drain()
            finally:
                self._busy = False
                while self._marks:
                    self._marks.pop(0)()
        return False

    def _drain(self):
        counts = [self._counts(device) for device in self._devices]
        snapshot = self._torch.cuda.memory._snapshot()
        # Only the end of a history clears it in all versions of torch.
        record = self._torch.cuda.memory._record_memory_history
        record(enabled=None)
        record(enabled="all", context="alloc" if self.stacks else None, stacks="python", max_entries=MOST_ENTRIES)
        self._before, self._now = self._now, time.monotonic_ns()
        self._offset = self._now - time.time_ns()
        self._known = {}  # context by the frames' identities, which are those of this snapshot alone
        self._cell = ctypes.c_uint32.from_address(self._hook.memprof_context_cell())
        before, self._cell.value = self._cell.value, 0
        first, timed = self._devices[0].layout is None, []
        for device in self._devices:
            device.sums = None
            device.segments = sorted((s for s in snapshot["segments"] if s["device"] == device.number), key=lambda s: s["address"])
            trace = snapshot["device_traces"][device.number] if device.number < len(snapshot["device_traces"]) else []
            device.starts = [s["address"] for s in device.segments]
            if first:
                self._adopt(device)
            elif len(trace) < MOST_ENTRIES:  # else torch has dropped older ones
                timed += self._timed(device, trace)
        for tick, device, entry in sorted(timed, key=lambda one: one[0]):  # by time, whatever the device
            self._write(device, entry, AT | tick)
        for device, (allocated, entries, peak) in zip(self._devices, counts):
            self._settle(device)
            device.sums = [sum(s[name] for s in device.segments) for name in ("allocated_size", "active_size", "total_size")]
            device.sums.insert(1, max(peak, device.sums[0]))
            device.unseen = 0 if first else device.unseen + allocated - device.allocated
            device.allocated, device.entries, device.segments = allocated, entries, ()
        self._cell.value, self._now = before, time.monotonic_ns()  # what is written next comes after all of this

    def _timed(self, device, trace):
        """The entries with their times, in ns of CLOCK_MONOTONIC, in which none is before the one before it."""
        latest = self._before
        for entry in trace:
            latest = max(latest, min(entry.get("time_us", 0) * 1000 + self._offset, self._now))
            yield latest, device, entry

    def _adopt(self, device):
        """Writes what there is at the beginning, in the order that memprof_watch_adopt asks for."""
        for s in device.segments:
            self._hook.memprof_watch_adopt(device.watch, s["address"], s["segment_type"] == "small")
            self._map(device, _piece(s), 0)
        for s in device.segments:
            for addr, size, block in reversed(list(_blocks(s))):
                self._hook.memprof_watch_adopt_block(device.watch, addr, size)
                self._alloc(device, addr, block, 0)

    def _write(self, device, entry, tick):
        action, addr, size = entry["action"], entry.get("addr", 0), entry["size"]
        if action == "alloc":
            piece = device.piece(addr)
            if piece is None or addr in device.blocks:
                return  # an entry before it was lost
            self._cell.value = self._context(entry.get("frames"), tick)
            self._alloc(device, addr, (size, piece[2], piece[3], False), tick)
            self._cell.value = 0
        elif action in ("free_requested", "free_completed"):
            self._free(device, addr, action == "free_completed", tick)
        elif action in ("segment_alloc", "segment_map"):
            at = bisect.bisect_right(device.starts, addr) - 1
            there = at >= 0 and addr < device.starts[at] + device.segments[at]["total_size"]
            pool = device.segments[at].get("segment_pool_id") if there else entry.get("pool_id")
            self._map(device, (addr, addr + size, entry["stream"], tuple(pool or (0, 0)), action == "segment_map"), tick)
        elif action in ("segment_free", "segment_unmap"):
            self._unmap(device, addr, addr + size, tick)
        elif action == "oom":
            self._cell.value = self._context(entry.get("frames"), tick)
            self._hook.memprof_watch_oom(device.watch, tick, size, entry["stream"], 0, 0)
            self._cell.value = 0

    def _settle(self, device):
        """Writes what the snapshot has and the entries do not lead to."""
        blocks = {addr: block for s in device.segments for addr, _, block in _blocks(s)}
        for addr in [a for a, block in device.blocks.items() if blocks.get(a) != block]:
            self._free(device, addr, True, 0)
            self._restated += 1
        layout = [(s["address"], s["total_size"]) for s in device.segments]
        if layout != device.layout:
            memory = {}
            for s in device.segments:
                _lay(memory, _piece(s))
            before, after = set(device.memory.values()), set(memory.values())
            for piece in sorted(before - after):
                self._unmap(device, piece[0], piece[1], 0)
            for piece in sorted(after - before):
                self._map(device, piece, 0)
            device.layout = layout
        for addr, block in blocks.items():
            if addr not in device.blocks:
                self._alloc(device, addr, block, 0)
                self._restated += 1

    def _map(self, device, piece, tick):
        start, end, stream, pool, joins = piece
        self._hook.memprof_watch_map(device.watch, tick, start, end - start, stream, *pool, joins)
        _lay(device.memory, piece)
        device.layout = ()

    def _unmap(self, device, start, end, tick):
        piece = device.piece(start)
        if piece is None:
            return
        self._hook.memprof_watch_unmap(device.watch, tick, start, end - start, piece[2], *piece[3], piece[4])
        for page in range(start >> PAGE, (end - 1 >> PAGE) + 1):
            device.memory.pop(page, None)
        device.layout = ()

    def _alloc(self, device, addr, block, tick):
        size, stream, pool, pending = block
        self._hook.memprof_watch_alloc(device.watch, tick, addr, size, stream, *pool)
        device.blocks[addr] = (size, stream, pool, False)
        device.unseen -= 1
        if pending:
            self._free(device, addr, False, tick)

    def _free(self, device, addr, completed, tick):
        if addr not in device.blocks:
            return
        size, stream, pool, pending = device.blocks.pop(addr)
        if not pending:
            self._hook.memprof_watch_free(device.watch, tick, addr, size, stream, *pool)
        if completed:
            self._hook.memprof_watch_free_done(device.watch, tick, addr, size, stream, *pool)
        else:
            device.blocks[addr] = (size, stream, pool, True)

    def _context(self, frames, tick):
        """The number of the context with an entry's stack, innermost frame first."""
        if not frames:
            return 0
        key = tuple(map(id, frames))
        if key not in self._known:
            node = 0
            for frame in reversed(frames):
                step = (node, frame["name"], frame["filename"], frame["line"])
                if step not in self._nodes and not frame["filename"].startswith(HERE):
                    self._nodes[step] = self._hook.memprof_stack_node_at(tick, node, _hook.encoded("%s (%s:%d)" % step[1:] if step[2] else step[1]))
                node = self._nodes.get(step) or node
            self._known[key] = self._hook.memprof_context(b"stack=%d" % node)
        return self._known[key]


def _piece(segment):
    start = segment["address"]
    joins = bool(segment.get("is_expandable"))
    return start, start + segment["total_size"], segment["stream"], tuple(segment.get("segment_pool_id") or (0, 0)), joins


def _lay(memory, piece):
    """Puts a piece into the pages of _Device.memory: as a piece for each, where it may be unmapped page by page."""
    start, end, stream, pool, joins = piece
    for page in range(start >> PAGE, (end - 1 >> PAGE) + 1):
        memory[page] = (page << PAGE, page + 1 << PAGE, stream, pool, joins) if joins else piece


def _blocks(segment):
    """The address, the size, and what _Device.blocks has, of each block that is in use."""
    addr = segment["address"]
    stream, pool = _piece(segment)[2:4]
    for block in segment["blocks"]:
        addr = block.get("address", addr)
        if block["state"] != "inactive":
            yield addr, block["size"], (block["requested_size"], stream, pool, block["state"] != "active_allocated")
        addr += block["size"]
