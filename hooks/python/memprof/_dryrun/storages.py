"""Makes each storage of the device an allocation of the hook, and its end a free.

A fake tensor's storage is a real object of torch without memory. It ends when the last tensor that uses it does,
autograd's saved ones among them, at the same point of the job as on a GPU.
"""

import ctypes
import threading
import weakref

from memprof import _hook
from memprof._dryrun import course


class Storages:
    """The storages of the device that are alive, and other memory that libraries would ask for."""

    def __init__(self, torch, streams):
        self.library = _hook.library()
        self._course = course.Course(self.library, streams.driver.wait)
        self._out_of_memory = torch.OutOfMemoryError
        self._streams = streams
        self._blocks = {}  # address of a storage of torch: its _Block
        self._pools = []  # of captures under way: nested never, one at a time
        self.requests = 0  # so far

    def note(self, tensor):
        """An operator has returned a tensor of the device: its storage may be new, or have another size."""
        if tensor.is_sparse:
            self.note(tensor._indices())
            self.note(tensor._values())
            return
        storage = tensor.untyped_storage()
        block = self._blocks.get(storage._cdata)
        if block is None or block.storage() is not storage:
            self._blocks[storage._cdata] = _Block(storage, tensor.device.index, self._ended)
        self.resized(storage)

    def resized(self, storage):
        """A storage of the device has changed its size: torch copies it to a new block. Other storages are ignored."""
        block = self._blocks.get(storage._cdata)
        if block is not None and block.storage() is storage and block.size != storage.nbytes():
            before = block.address
            block.size, block.address = storage.nbytes(), self.allocate(storage.nbytes(), block.device)
            self.free(before)

    def address(self, tensor):
        """The address of a tensor's data; 0: it has none."""
        start = self.start(tensor.untyped_storage())
        return start and start + tensor.storage_offset() * tensor.element_size()

    def start(self, storage):
        """The address of a storage's block; 0: it has none."""
        block = self._blocks.get(storage._cdata)
        return 0 if block is None else block.address

    def allocate(self, size, device):
        """Requests memory of the current stream. Returns its address, 0 for none."""
        if size == 0:
            return 0
        self._streams.driver.make_current(device)
        self.requests += 1
        self._course.request(size)
        pool = self._pools[-1] if self._pools else (0, 0)
        address = self.library.memprof_malloc_in_pool(size, device, self._streams.current_handle(), *pool)
        if not address:
            raise self._out_of_memory("CUDA out of memory. Tried to allocate %d bytes on the simulated device." % size)
        return address

    def guess(self, result, likely, most):
        """Records that the size of an operator's next workspace is not known: it may have from 0 to `most` bytes, and requests `likely`."""
        self.note(result)
        if most:
            self.library.memprof_label(self.address(result), _hook.fields({"workspace": likely, "workspace_most": most}))

    def workspace(self, result, *sizes):
        """An operator allocates workspaces of these sizes, in bytes, after its result, and frees them at its end."""
        self.note(result)
        for address in [self.allocate(size, result.device.index) for size in sizes][::-1]:
            self.free(address)

    def take_as(self, context, size, device):
        """A library takes memory that is not torch's, and keeps it."""
        self._streams.driver.allocate_as(self.library, context, size, device)

    def enter_pool(self, device, pool):
        """A capture begins: requests go to its pool."""
        self._streams.driver.make_current(device)
        self.library.memprof_pool_begin(device, *pool)
        self._pools.append(pool)

    def leave_pool(self, device):
        self.library.memprof_pool_end(device, *self._pools.pop())

    def capturing(self):
        return bool(self._pools)

    def wait(self):
        """The host waits for the device."""
        self._streams.driver.wait()

    def stream(self):
        """The handle of the current stream."""
        return self._streams.current_handle()

    def free(self, address):
        if address:
            self.library.memprof_free(address, 0, 0, None)

    def use(self, tensor, stream):
        """record_stream of a tensor. The host is ahead of that stream's work until it waits."""
        address = self.address(tensor)
        if address:
            self._streams.driver.lag(stream)
            self.library.memprof_record_stream(address, stream)

    def _ended(self, block):
        if self._blocks.get(block.key) is block:
            del self._blocks[block.key]
        self.free(block.address)


class _Block:
    """A storage and its allocation."""

    __slots__ = ("storage", "key", "device", "size", "address")

    def __init__(self, storage, device, ended):
        self.key, self.device, self.size, self.address = storage._cdata, device, 0, 0
        self.storage = weakref.ref(storage, lambda _: ended(self))


class Driver:
    """The few functions of the simulated driver that are called here."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self._contexts = {}  # of devices in use, by index
        self._threads = threading.local()
        self._lags = False  # work may be under way
        self._check(self._library.cuInit(0))

    def make_current(self, device):
        """Makes the device's context current in this thread, as torch does at a thread's first call of CUDA."""
        if getattr(self._threads, "device", None) != device:
            if device not in self._contexts:
                context = ctypes.c_void_p()
                self._check(self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
                self._contexts[device] = context
            self._check(self._library.cuCtxSetCurrent(self._contexts[device]))
            self._threads.device = device

    def make_stream(self, device):
        self.make_current(device)
        handle = ctypes.c_void_p()
        self._check(self._library.cuStreamCreate(ctypes.byref(handle), 1))  # CU_STREAM_NON_BLOCKING
        return handle.value

    def lag(self, stream):
        self._lags = True
        self._library.simcuda_lag_stream(ctypes.c_void_p(stream))

    def wait(self):
        if self._lags:
            self._lags = False
            for device in list(self._contexts):
                self.make_current(device)
                self._check(self._library.cuCtxSynchronize())

    def allocate_as(self, library, context, size, device):
        """Memory that a library takes from the driver itself."""
        self.make_current(device)
        library.memprof_call_as(context)
        self._check(self._library.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size)))
        library.memprof_call_as(None)

    def _check(self, code):
        if code != 0:
            raise RuntimeError("the simulated driver returned %d" % code)
