"""What of an installed torch's allocator interface the shim does not know: read from torch's headers, without a compiler.

    python3 -m memprof._interface FOLDER     FOLDER: of the torch package; prints the lines of missing()

Each version of torch adds virtual functions. One that the shim does not override answers as torch's plug-in allocator
does: mostly by an error when a job calls it.
"""

import os
import re
import sys

# Where the interface is declared, below torch's include folder; older versions lack the second.
HEADERS = ("c10/cuda/CUDACachingAllocator.h", "c10/core/CachingDeviceAllocator.h")
CLASSES = ("CUDAAllocator", "DeviceAllocator")

# Functions that the shim leaves to torch's plug-in allocator on purpose: it answers them as a job needs.
INHERITED = {
    "init": "notes that CUDA is initialised",
    "initialized": "",
    "memcpyAsync": "copies by cudaMemcpyAsync",
    "getMemoryInfo": "asks the driver",
    "markCaptureBegin": "the hook sees captures by the driver's calls",
    "markCaptureEnd": "",
}

# Functions that the shim does not have, and what a job loses.
LACKED = {
    "allocateWithAddress": "tensors resized to an address",
}


def missing(folder):
    """What a torch has and the shim lacks, a line each. `folder` is that of the torch package."""
    names = functions(folder)
    if not names:
        return ["torch's headers are not in %s, so its allocator interface was not read" % os.path.join(folder, "include")]
    with open(os.path.join(_source(), "shim.cpp")) as f:
        served = set(re.findall(r"\b(\w+)\(", f.read()))
    lacked = [name for name in names if name not in INHERITED and name not in served]
    return ["%s (%s)" % (name, LACKED.get(name, "not known to this memprof")) for name in lacked]


def functions(folder):
    """The virtual functions of torch's CUDA allocators, in the order of their declaration; empty: no headers."""
    names = []
    for header in HEADERS:
        try:
            with open(os.path.join(folder, "include", header), errors="replace") as f:
                text = re.sub(r"//[^\n]*|/\*.*?\*/", "", f.read(), flags=re.S)
        except OSError:
            continue
        for body in re.findall(r"\b(?:class|struct)\b[^;{]*\b(?:%s)\b[^;{]*\{(.*?)\n\};" % "|".join(CLASSES), text, re.S):
            for name in re.findall(r"\bvirtual\b[^;{(]*?(\w+)\s*\(", body):
                if name not in names:
                    names.append(name)
    return names


def _source():
    hooks = os.environ.get("MEMPROF_HOOKS") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.join(hooks, "torch")


if __name__ == "__main__":
    print("\n".join(missing(sys.argv[1])))
