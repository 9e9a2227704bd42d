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
        self._course = course.Course(self.library)
        self._out_of_memory = torch.OutOfMemoryError
        self._streams = streams
        self._blocks = {}  # address of a storage of torch: its _Block
        self._pools = []  # of captures under way: nested never, one at a time
        self.requests = 0  # so far

    def note(self, tensor):
        """An operator has returned a tensor of the device: its storage may be new, or have another size."""
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
        block = self._blocks.get(tensor.untyped_storage()._cdata)
        if block is None or not block.address:
            return 0
        return block.address + tensor.storage_offset() * tensor.element_size()

    def allocate(self, size, device):
        """Requests memory of the current stream. Returns its address, 0 for none."""
        if size == 0:
            return 0
        self._streams.driver.make_current()
        self.requests += 1
        self._course.request(size)
        pool = self._pools[-1] if self._pools else (0, 0)
        address = self.library.memprof_malloc_in_pool(size, device or 0, self._streams.current_handle(), *pool)
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

    def take_as(self, context, size):
        """A library takes memory that is not torch's, and keeps it."""
        self._streams.driver.allocate_as(self.library, context, size)

    def enter_pool(self, device, pool):
        """A capture begins: requests go to its pool."""
        self._streams.driver.make_current()
        self.library.memprof_pool_begin(device, *pool)
        self._pools.append(pool)

    def leave_pool(self, device):
        self.library.memprof_pool_end(device, *self._pools.pop())

    def capturing(self):
        return bool(self._pools)

    def stream(self):
        """The handle of the current stream."""
        return self._streams.current_handle()

    def free(self, address):
        if address:
            self.library.memprof_free(address, 0, 0, None)

    def use(self, tensor, stream):
        """record_stream of a tensor."""
        address = self.address(tensor)
        if address:
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
        self._context = ctypes.c_void_p()
        self._threads = threading.local()
        self._check(self._library.cuInit(0))
        self._check(self._library.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), 0))

    def make_current(self):
        """Makes the device's context current in this thread, as torch does at a thread's first call of CUDA."""
        if not getattr(self._threads, "ready", False):
            self._check(self._library.cuCtxSetCurrent(self._context))
            self._threads.ready = True

    def make_stream(self):
        self.make_current()
        handle = ctypes.c_void_p()
        self._check(self._library.cuStreamCreate(ctypes.byref(handle), 1))  # CU_STREAM_NON_BLOCKING
        return handle.value

    def allocate_as(self, library, context, size):
        """Memory that a library takes from the driver itself."""
        self.make_current()
        library.memprof_call_as(context)
        self._check(self._library.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(size)))
        library.memprof_call_as(None)

    def _check(self, code):
        if code != 0:
            raise RuntimeError("the simulated driver returned %d" % code)
