"""A card with less memory: another process, which is not recorded, allocates the rest.

The driver then refuses every allocation that does not fit: of tensors, libraries and contexts. A
limit inside one allocator would not bind the others.

    with smaller_card.of(16 << 30):   # before this process first uses CUDA
        ...
"""

import contextlib
import os
import subprocess
import sys

HOLD = """
import ctypes, sys
cu = ctypes.CDLL("libcuda.so.1")
def demand(code):
    if code != 0:
        sys.exit("the driver says %d" % code)
device, context = ctypes.c_int(), ctypes.c_void_p()
free, total, address = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
demand(cu.cuInit(0))
demand(cu.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])))
demand(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
demand(cu.cuCtxSetCurrent(context))
demand(cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
rest = free.value - int(sys.argv[2])
if rest < 0:
    sys.exit("only %d bytes are free" % free.value)
if rest >= 2 << 20:
    demand(cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(rest)))
demand(cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
print(total.value - free.value, flush=True)
sys.stdin.read()
"""


def parse(text):
    """Bytes of "16GiB", "16GB" or a plain number."""
    for unit, bytes_of in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("KB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * bytes_of)
    return int(text)


@contextlib.contextmanager
def of(size, device=0):
    """Leaves `size` bytes of the card to this process, its context included; 0: all of it.

    Gives the bytes that are in use without this process.
    """
    if size == 0:
        yield 0
        return
    ours = ("LD_PRELOAD", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in ours and not name.startswith("MEMPROF_")}
    command = [sys.executable, "-c", HOLD, str(device), str(size)]
    holder = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        used = holder.stdout.readline()
        if not used:
            raise RuntimeError("no card of %d bytes: %s" % (size, holder.stderr.read().strip()))
        yield int(used)
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
        holder.stderr.close()
