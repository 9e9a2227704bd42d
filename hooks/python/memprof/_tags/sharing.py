"""Maps the memory of a tag into another process on the same card, without a copy.

    # the trainer                            # the engine, a process of its own
    queue.put(memprof.share("weights"))      weights = memprof.attach(queue.get())
    queue.put((w.data_ptr(), w.shape))       address, shape = queue.get()
                                             w = torch.as_tensor(weights.array(address, shape, "<f4"), device="cuda")

If the owner dies, processes that have attached go on: the memory lasts until nobody maps it. So that others, the
owner's successor for one, can still attach, a keeper process holds it:

    memprof.keep("weights", "/run/user/1000/weights", about=addresses)      # the owner, once
    kept = memprof.kept("/run/user/1000/weights")                           # any process of the user, later
    weights = memprof.attach(kept.shared)
"""

import json
import os
import subprocess
import sys

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


def keep(tag, path, about=None, device=0):
    """Has a process of its own hold the memory of the tag, beyond the end of this one, until `kept(path).end()`.

    Writes the file `path`, by which `kept` finds the memory. `about` is kept beside it: what JSON can hold, such as
    the addresses and shapes of tensors. Do not pause the tag afterwards: its memory would stay with the keeper,
    and a resume would map other memory. Allocate or free nothing under it.
    """
    path = os.path.abspath(path)
    if os.path.exists(path):
        raise RuntimeError("%s exists: end what is kept there, by memprof.kept(path).end(), or take another path" % path)
    wanted = json.dumps({"path": path, "shared": share(tag, device), "device": device, "about": about})
    # Isolated, and without the hook: it is no process of the job, and outlives it.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("MEMPROF_")}
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")
    done = subprocess.run([sys.executable, "-I", program], input=wanted.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    problem = done.stdout.decode(errors="replace").strip()
    if problem or not os.path.exists(path):
        raise RuntimeError("tag %r cannot be kept at %s: %s" % (str(tag), path, problem.splitlines()[-1] if problem else "the keeper has ended"))
    return kept(path)


def kept(path):
    """What `keep` has stored under that path."""
    try:
        with open(path) as f:
            if os.fstat(f.fileno()).st_uid != os.geteuid():
                raise RuntimeError("%s is another user's" % path)
            value = json.load(f)
            return Kept(path, value)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RuntimeError("nothing is kept at %s: %s" % (path, error)) from None


class Kept:
    """Memory that a keeper process holds: `shared` for `attach`, and `about` as it was given to `keep`."""

    def __init__(self, path, value):
        self.path, self.about, self.device, self.pid = path, value["about"], value["device"], value["pid"]
        self.shared = [(name, base, span) for name, base, span in value["shared"]]

    def end(self):
        """Ends the keeper. The memory is free when no process maps it any more."""
        from memprof._tags import keeper

        try:
            with keeper.connect(self.shared[0][0]) as peer:
                peer.sendall(keeper.REQUEST.pack(0, keeper.END))
                peer.recv(1)  # until it has closed the connection
        except OSError:
            if os.path.exists(self.path):  # it was killed
                os.unlink(self.path)


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
