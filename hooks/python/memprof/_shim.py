"""Compiles hooks/torch/shim.cpp against the installed torch, caches and loads it.

    python3 -m memprof._shim            build if needed, print the file
    python3 -m memprof._shim --check    the same without output; exit 1 says why on stderr

The cache is keyed by everything the object depends on: torch's version and C++ ABI,
the shim's source and the hook's header. Several processes may want it at once (the
ranks of a job): one compiles, under a file lock, the others wait; the file appears
under its name only when it is whole. It is loaded only if nobody but this user and root can
change it or a folder above it, and if its digest is the one that was noted when it was
built; otherwise it is built again, in a folder of the user's own.
"""

import os
import stat
import sys

from memprof import _hook

# Newer torch needs a newer C++; the first that compiles is right.
STANDARDS = ("c++17", "c++20")


REMEDY = "install one, or build the shim elsewhere with `memprof hooks build` and pass it with --shim FILE"


class BuildError(Exception):
    """The shim could not be compiled; the text says why and what to do."""


def install(torch):
    """Makes the hook torch's CUDA allocator. Raises when that is impossible."""
    from memprof import _calls

    refusal = _calls.shim(path(torch)).memprof_torch_install()
    if refusal is not None:
        raise RuntimeError(refusal.decode(errors="replace"))


def path(torch):
    """The shim for this torch, compiled now if it is not in the cache."""
    given = os.environ.get("MEMPROF_SHIM")
    if given:
        return given
    target = cached_path(torch)
    if not _intact(target):
        _build_once(torch, target)
    return target


def cached_path(torch):
    """Where the cache keeps the shim for this torch, in a folder that nobody else can change."""
    import hashlib

    key = hashlib.sha256()
    sources = sorted(os.listdir(_source("torch")))
    for file in [_source("torch", s) for s in sources] + [_source("capture", "memprof.h")]:
        with open(file, "rb") as f:
            key.update(f.read())
    name = "%s|abi%d|%s" % (torch.__version__, _abi(torch), sys.platform)
    key.update(name.encode())
    return os.path.join(_own_folder(), "shim-%s-%s.so" % (torch.__version__.replace("/", "_"), key.hexdigest()[:16]))


def _abi(torch):
    return int(torch._C._GLIBCXX_USE_CXX11_ABI)


def _hooks():
    return os.environ.get("MEMPROF_HOOKS") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _source(*parts):
    return os.path.join(_hooks(), *parts)


def _cache():
    return os.environ.get("MEMPROF_SHIM_CACHE") or os.path.join(_hooks(), "shims")


def _own_folder():
    """The cache, or where others can change that a folder of the user's own for its temporary files."""
    import tempfile

    own = "memprof-%d" % os.geteuid()
    folders = [_cache()] + [os.path.join(f, own, "shim") for f in (tempfile.gettempdir(), "/dev/shm", "/var/tmp")]
    for folder in folders:
        try:
            real = os.path.realpath(folder)
            missing = []
            above = real
            while not os.path.lexists(above):
                missing.append(above)
                above = os.path.dirname(above)
            if not _trusted(above, sticky=bool(missing)):
                continue
            for part in reversed(missing):
                try:
                    os.mkdir(part, 0o700)
                except FileExistsError:  # another rank was faster
                    pass
            if _trusted(real):
                return real
        except OSError:
            continue
    return tempfile.mkdtemp(prefix="memprof-shim-")


def _trusted(path, sticky=False):
    """Whether only this user and root can change a path, which has no links, and the folders above it. A sticky folder
    above it keeps what is in it for its owners; the path itself may be one with sticky=True."""
    owners = (0, os.geteuid(), os.lstat("/").st_uid)
    while True:
        found = os.lstat(path)
        kept = sticky and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_uid not in owners or found.st_mode & 0o022 and not kept:
            return False
        if path == os.path.dirname(path):
            return True
        path, sticky = os.path.dirname(path), True


def _digest(file):
    import hashlib

    with open(file, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def _intact(target):
    """Whether the shim is there, as it was built, and nobody else can change it."""
    try:
        if not stat.S_ISREG(os.lstat(target).st_mode) or not _trusted(target) or not _trusted(target + ".sha256"):
            return False
        with open(target + ".sha256") as f:
            return f.read().strip() == _digest(target)
    except OSError:
        return False


def _build_once(torch, target):
    import fcntl

    with open(target + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _intact(target):  # another rank has built it meanwhile
            return
        temporary = "%s.%d" % (target, os.getpid())
        try:
            _compile(torch, temporary)
            os.chmod(temporary, 0o755)  # whatever the umask
            digest = _digest(temporary)
            os.replace(temporary, target)
            with open(temporary, "w") as f:
                f.write(digest + "\n")
            os.chmod(temporary, 0o644)
            os.replace(temporary, target + ".sha256")
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
