"""A tag's memory in another process on the same card, without a copy.

    # the trainer                            # the engine, a process of its own
    queue.put(memprof.share("weights"))      weights = memprof.attach(queue.get())
    queue.put((w.data_ptr(), w.shape))       address, shape = queue.get()
                                             w = torch.as_tensor(weights.array(address, shape, "<f4"), device="cuda")
"""

from memprof import _calls, _hook


def _library():
    lib = _hook.library()
    if lib is None:
        raise RuntimeError("memprof's allocator is not at work in this process")
    return lib


def share(tag, device=0):
    """What another process of the user needs to attach all that the tag has on the device.

    A list of (name, first address, bytes), to be sent as it is. Until it has been attached
    the tag must not be paused, grown or freed.
    """
    found = []
    each = _calls.EachShared(lambda _, name, base, span: found.append((name.decode(), base, span)))
    _library().memprof_share_tag(_hook.encoded(tag), device, None, each)
    if not found:
        raise RuntimeError("the tag %r has nothing on GPU %d that is awake and can be shared" % (str(tag), device))
    return found


def attach(shared, device=0):
    """Maps what `share` named into this process."""
    return Attached(shared, device)


class Attached:
    """Another process's memory, at addresses of this one; usable until `close`."""

    def __init__(self, shared, device):
        self._device = device
        self._parts = []  # (first address there, bytes, first address here)
        library = _library()
        for name, base, span in shared:
            here = library.memprof_open_shared(name.encode(), device)
            if not here:
                self.close()
                raise RuntimeError("%s cannot be opened: its process has ended, or the memory was given back" % name)
            self._parts.append((base, span, here))

    def address(self, there):
        """Where in this process an address of the other one lies."""
        for base, span, here in self._parts:
            if base <= there < base + span:
                return here + there - base
        raise ValueError("%#x is not of the memory that was shared" % there)

    def array(self, there, shape, typestr, strides=None):
        """An object that torch.as_tensor, CuPy and others take for an array on the device."""
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
        self._memory = memory  # which must not be closed before
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3}
