"""Compiles hooks/torch/shim.cpp against the installed torch, caches and loads it.

    python3 -m memprof._shim            build if needed, print the file
    python3 -m memprof._shim --check    the same without output; exit 1 says why on stderr

The cache is keyed by everything the object depends on: torch's version and C++ ABI,
the shim's source and the hook's header. Several processes may want it at once (the
ranks of a job): one compiles, under a file lock, the others wait; the file appears
under its name only when it is whole.
"""

import os
import sys

from memprof import _native

# Newer torch needs a newer C++; the first that compiles is right.
STANDARDS = ("c++17", "c++20")


REMEDY = "install one, or build the shim elsewhere with `memprof hooks build` and pass it with --shim FILE"


class BuildError(Exception):
    """The shim could not be compiled; the text says why and what to do."""


def install(torch):
    """Makes the hook torch's CUDA allocator. Raises when that is impossible."""
    import ctypes

    shim = ctypes.CDLL(path(torch))
    shim.memprof_torch_install.restype = ctypes.c_char_p
    refusal = shim.memprof_torch_install()
    if refusal is not None:
        raise RuntimeError(refusal.decode(errors="replace"))


def path(torch):
    """The shim for this torch, compiled now if it is not in the cache."""
    given = os.environ.get("MEMPROF_SHIM")
    if given:
        return given
    target = cached_path(torch)
    if not os.path.exists(target):
        _build_once(torch, target)
    return target


def cached_path(torch):
    """Where the cache keeps the shim for this torch."""
    import hashlib

    key = hashlib.sha256()
    sources = sorted(os.listdir(_source("torch")))
    for file in [_source("torch", s) for s in sources] + [_source("capture", "memprof.h")]:
        with open(file, "rb") as f:
            key.update(f.read())
    name = "%s|abi%d|%s" % (torch.__version__, _abi(torch), sys.platform)
    key.update(name.encode())
    return os.path.join(_cache(), "shim-%s-%s.so" % (torch.__version__.replace("/", "_"), key.hexdigest()[:16]))


def _abi(torch):
    return int(torch._C._GLIBCXX_USE_CXX11_ABI)


def _hooks():
    return os.environ.get("MEMPROF_HOOKS") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _source(*parts):
    return os.path.join(_hooks(), *parts)


def _cache():
    return os.environ.get("MEMPROF_SHIM_CACHE") or os.path.join(_hooks(), "shims")


def _build_once(torch, target):
    import fcntl

    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(target):  # another rank has built it meanwhile
            return
        temporary = "%s.%d" % (target, os.getpid())
        try:
            _compile(torch, temporary)
            os.replace(temporary, target)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)


def _compile(torch, output):
    import shutil
    import subprocess

    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise BuildError("no C++ compiler found; %s" % REMEDY)
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    errors = ""
    for standard in STANDARDS:
        command = compiler.split() + _arguments(torch, standard, output)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        except OSError as error:
            raise BuildError("cannot run the C++ compiler %s: %s; %s" % (compiler, error.strerror, REMEDY))
        if done.returncode == 0:
            return
        errors = errors or done.stdout.decode(errors="replace")
    raise BuildError("%s could not compile the shim: %s" % (compiler, _first_error(errors)))


def _first_error(text):
    for line in text.splitlines():
        if "error" in line:
            return line.strip()
    return text.strip()[-200:]


def _arguments(torch, standard, output):
    root = os.path.dirname(torch.__file__)
    includes = [os.path.join(root, "include"), _cuda_include(root)]
    arguments = ["-std=" + standard, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    arguments.append("-D_GLIBCXX_USE_CXX11_ABI=%d" % _abi(torch))
    for folder in includes:
        arguments += ["-isystem", folder]
    arguments += ["-I", _source("capture"), "-I", _source("torch"), _source("torch", "shim.cpp"), "-o", output]
    arguments += ["-L", os.path.join(root, "lib"), "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"]
    return arguments


def _cuda_include(torch_root):
    """A folder with cuda_runtime_api.h: a toolkit's, or one of the wheels beside torch."""
    import glob

    site = os.path.dirname(torch_root)
    candidates = [os.path.join(os.environ[v], "include") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    candidates += sorted(glob.glob(os.path.join(site, "nvidia", "cu*", "include")), reverse=True)
    candidates += [os.path.join(site, "nvidia", "cuda_runtime", "include")]
    candidates += ["/usr/local/cuda/include"]
    candidates += sorted(glob.glob("/usr/local/cuda-*/targets/*/include"), reverse=True)
    candidates += [os.path.join(site, "triton", "backends", "nvidia", "include")]
    for folder in candidates:
        if os.path.exists(os.path.join(folder, "cuda_runtime_api.h")):
            return folder
    raise BuildError("no cuda_runtime_api.h found; install the CUDA toolkit or the nvidia-cuda-runtime wheel, or set CUDA_HOME")


def main(arguments):
    try:
        import torch

        file = path(torch)
    except (ImportError, BuildError, OSError) as error:
        print("memprof: %s" % error, file=sys.stderr)
        return 1
    if "--check" not in arguments:
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
