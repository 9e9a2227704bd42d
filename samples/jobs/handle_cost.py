"""What CUDA's calls take to map and unmap memory in handles of several sizes, in microseconds a GiB.

    python3 handle_cost.py [--beside 7]

Handles are unmapped one by one and all in one call. With --beside, so many processes use the GPU and the
driver meanwhile, as tests that run side by side do. Needs no torch, but for these processes.
"""

import argparse
import ctypes
import subprocess
import sys
import time

MIB, GIB = 1 << 20, 1 << 30
PINNED, POSIX_FD, ON_DEVICE, READ_AND_WRITE = 1, 1, 1, 3
STEPS = ("create", "map", "access", "unmap", "release")

BUSY = """
import torch
x = torch.randn(2048, 2048, device="cuda")
print("up", flush=True)
while True:
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
    del y
    torch.cuda.empty_cache()
"""


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("exported", ctypes.c_int), ("location", Location), ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Driver:
    """The driver's calls, with a context of GPU 0; each raises on an error."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", ctypes.c_uint(0))
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def __call__(self, name, *arguments):
        error = getattr(self.library, name)(*arguments)
        if error != 0:
            raise SystemExit(f"{name}: CUDA error {error}")


def u64(value):
    return ctypes.c_uint64(value)


def measure(driver, total, size, at_once):
    """The microseconds a GiB of each of STEPS, for so many bytes in handles of that size."""
    properties = Properties(type=PINNED, exported=POSIX_FD, location=Location(ON_DEVICE, 0))
    access = Access(Location(ON_DEVICE, 0), READ_AND_WRITE)
    address = ctypes.c_uint64()
    driver("cuMemAddressReserve", ctypes.byref(address), u64(total), u64(0), u64(0), u64(0))
    handles = [ctypes.c_uint64() for _ in range(total // size)]
    places = [u64(address.value + i * size) for i in range(len(handles))]
    times = [time.perf_counter()]
    for handle in handles:
        driver("cuMemCreate", ctypes.byref(handle), u64(size), ctypes.byref(properties), u64(0))
    times.append(time.perf_counter())
    for place, handle in zip(places, handles):
        driver("cuMemMap", place, u64(size), u64(0), handle, u64(0))
    times.append(time.perf_counter())
    driver("cuMemSetAccess", address, u64(total), ctypes.byref(access), u64(1))
    times.append(time.perf_counter())
    for place in places[:1] if at_once else places:
        driver("cuMemUnmap", place, u64(total if at_once else size))
    times.append(time.perf_counter())
    for handle in handles:
        driver("cuMemRelease", handle)
    times.append(time.perf_counter())
    driver("cuMemAddressFree", address, u64(total))
    return [1e6 * (after - before) * GIB / total for before, after in zip(times, times[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=int, default=0, help="processes that use the GPU meanwhile")
    parser.add_argument("--gib", type=int, default=4, help="mapped at a time")
    opts = parser.parse_args()
    driver = Driver()
    measure(driver, GIB, 2 * MIB, False)  # the first calls take longer
    busy = [subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) for _ in range(opts.beside)]
    try:
        for process in busy:
            process.stdout.readline()
        for size in (2, 8, 32, 128):
            for at_once in (False, True):
                times = measure(driver, opts.gib * GIB, size * MIB, at_once)
                steps = ", ".join("%s %.0f" % step for step in zip(STEPS, times))
                print("%3d MiB, unmapped %s: %s, all %.0f us a GiB" % (size, "at once" if at_once else "one by one", steps, sum(times)), flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
