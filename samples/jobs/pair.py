"""Prints the time of a malloc and free in torch's current allocator, in nanoseconds.

Five runs of a million pairs at 1,000 live blocks. It prints the least first, since other work on
the machine can only add time, then all. With --again, or when something is attached to the
allocator, `before` is the time of pairs in the same process before that.
"""

import argparse
import ctypes
import hashlib
import os
import subprocess
import sys

import torch


def compiled():
    root = os.path.dirname(torch.__file__)
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "hooks", "python")
    sys.path.insert(0, os.environ.get("MEMPROF_PYTHON", beside))
    from memprof import _place, _shim

    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pair.cpp")
    with open(source, "rb") as f:
        key = hashlib.sha256(torch.__version__.encode() + f.read()).hexdigest()[:16]
    output = os.path.join(_place.shims(), f"pair-{key}.so")
    command = ["c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    for folder in (os.path.join(root, "include"), _shim._cuda_include(root)):
        command += ["-isystem", folder]
    command += [source, "-L", os.path.join(root, "lib"), "-lc10", "-lc10_cuda"]
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if not os.path.exists(output):  # compiling takes longer than the measurement
        os.makedirs(os.path.dirname(output), exist_ok=True)
        partial = f"{output}.{os.getpid()}"
        subprocess.run([*command, "-o", partial], check=True, env=environment)
        os.replace(partial, output)
    library = ctypes.CDLL(output)
    library.nanoseconds_a_pair.restype = ctypes.c_double
    library.nanoseconds_a_pair.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_uint32]
    return library


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", action="store_true", help="torch's own memory history, Python stacks")
    parser.add_argument("--empty-tracker", action="store_true", help="attach a trace tracker that does nothing")
    parser.add_argument("--again", action="store_true", help="measure twice and attach nothing: how much a second measurement differs")
    parser.add_argument("--observe-later", action="store_true", help="under memprof record --allocator native: observed after a first measurement")
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    opts = parser.parse_args()
    attach = lambda: None
    if opts.observe_later:
        attach = put_off()
    torch.zeros(1, device="cuda")
    if opts.history:
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    library = compiled()
    if opts.again or opts.empty_tracker or opts.observe_later:
        measure("before", library, opts)
    attach()
    if opts.empty_tracker:
        library.attach_empty_tracker()
    measure("pair", library, opts)


def measure(name, library, opts):
    figures = [library.nanoseconds_a_pair(opts.live, opts.pairs, seed) for seed in range(1, 6)]
    print(f"{name} {min(figures):.1f} ns of " + " ".join(f"{f:.1f}" for f in figures), flush=True)


def put_off():
    """Keeps memprof from observing the allocator when CUDA is initialised. Call the result to start observing."""
    from memprof import _watch

    waiting, attach = [], _watch._attach
    _watch._attach = waiting.append
    return lambda: attach(*waiting)


if __name__ == "__main__":
    main()
