"""Maps the memory of a tag into another process on the same card, without a copy.

    # the trainer                            # the engine, a process of its own
    queue.put(memprof.share("weights"))      weights = memprof.attach(queue.get())
    queue.put((w.data_ptr(), w.shape))       address, shape = queue.get()
                                             w = torch.as_tensor(weights.array(address, shape, "<f4"), device="cuda")

If the owner dies, processes that have attached go on: the memory lasts until nobody maps it.
"""

from memprof import _calls, _hook


def _library():
    lib = _hook.library()
    if lib is None:
        raise RuntimeError("memprof's allocator is not loaded in this process: run it under `memprof record`")
    return lib


def share(tag, device=0):
    """What another process of the same user needs to map all memory of the tag on the device.

    Returns a list of (name, first address, bytes), to be sent to `attach` as it is. Until `attach` has
    returned there, do not pause the tag, and do not allocate or free under it.
    """
    found = []
    each = _calls.EachShared(lambda _, name, base, span: found.append((name.decode(), base, span)))
    _library().memprof_share_tag(_hook.encoded(tag), device, None, each)
    if not found:
        raise RuntimeError("tag %r has no mapped memory on GPU %d that can be shared: allocate under it, or resume it first" % (str(tag), device))
    return found


def attach(shared, device=0):
    """Maps into this process the memory that `share` returned in another one."""
    return Attached(shared, device)


class Attached:
    """Memory of another process, mapped into this one until `close`."""

    def __init__(self, shared, device):
        self._device = device
        self._parts = []  # (first address in the other process, bytes, first address in this one)
        library = _library()
        for name, base, span in shared:
            here = library.memprof_open_shared(name.encode(), device)
            if not here:
                self.close()
                raise RuntimeError("%s cannot be mapped: its process has ended, or has unmapped the memory" % name)
            self._parts.append((base, span, here))

    def address(self, there):
        """The address in this process of an address `there` in the other one."""
        for base, span, here in self._parts:
            if base <= there < base + span:
                return here + there - base
        raise ValueError("%#x is not an address of the shared memory" % there)

    def array(self, there, shape, typestr, strides=None):
        """The memory at address `there` as an array for torch.as_tensor, CuPy and others."""
        return _Array(self, self.address(there), tuple(shape), typestr, strides)

    def close(self):
        library = _library()
        for _, _, here in self._parts:
            library.memprof_close_shared(here, self._device)
        self._parts = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class _Array:
    def __init__(self, memory, address, shape, typestr, strides):
        self._memory = memory  # do not close it before the last use of this array
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3}
