"""Compiles hooks/torch/shim.cpp against the installed torch, caches and loads it.

    python3 -m memprof._shim            build if needed, print the file
    python3 -m memprof._shim --check    the same without output; exit 1 says why on stderr

The name in the cache contains a digest of everything the object depends on: torch's version
and C++ ABI, the shim's source and the hook's header. When several processes (the ranks of a
job) need it at once, one compiles under a file lock and the others wait. The file gets its
name only when it is complete. It is loaded only if nobody but this user and root can change
it or a folder above it, and if its digest is the one written at its build. Otherwise it is
built again, in a folder that only this user can change.
"""

import os
import stat
import sys

from memprof import _place

# Tried in this order: newer versions of torch need the newer standard.
STANDARDS = ("c++17", "c++20")

# Where distributions put torch's and CUDA's headers.
SYSTEM_INCLUDE = "/usr/include"

REMEDY = "install one, or build the shim elsewhere with `memprof doctor hooks build` and pass it with --shim FILE"


class BuildError(Exception):
    """The shim could not be compiled. The text says why, and what to do."""


def install(torch):
    """Makes the hook torch's CUDA allocator, without the shim where there is none. Raises RuntimeError with torch's reason."""
    from memprof import _calls

    try:
        shim = _calls.shim(path(torch))
    except (BuildError, OSError) as error:
        from memprof import _plugin

        return _plugin.install(torch, str(error))
    refusal = shim.memprof_torch_install()
    if refusal is not None:
        raise RuntimeError(refusal.decode(errors="replace"))


def path(torch):
    """The file of the shim for this torch: $MEMPROF_SHIM, the wheel's, or that in the cache, compiled now if it is missing."""
    given = os.environ.get("MEMPROF_SHIM") or _of_the_wheel(torch)
    if given:
        return given
    target = cached_path(torch)
    if not _intact(target):
        _build_once(torch, target)
    return target


def _of_the_wheel(torch):
    """The shim that the wheel has for this version of torch and C++ ABI (.ci/dist/shims); None: it has none."""
    name = "shim-%s-abi%d.so" % (".".join(torch.__version__.split(".")[:2]), _abi(torch))
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_shims", name)
    return file if os.path.exists(file) else None


def cached_path(torch):
    """The shim's file name in the cache, in a folder that only this user and root can change."""
    import hashlib

    key = hashlib.sha256()
    sources = sorted(s for s in os.listdir(_source("torch")) if s != "test")
    for file in [_source("torch", s) for s in sources] + [_source("capture", "memprof.h")]:
        with open(file, "rb") as f:
            key.update(f.read())
    name = "%s|abi%d|%s" % (torch.__version__, _abi(torch), sys.platform)
    key.update(name.encode())
    return os.path.join(_own_folder(), "shim-%s-%s.so" % (torch.__version__.replace("/", "_"), key.hexdigest()[:16]))


def _abi(torch):
    return int(torch._C._GLIBCXX_USE_CXX11_ABI)


def _source(*parts):
    return os.path.join(_place.hooks(), *parts)


def _own_folder():
    """The cache folder; where other users can change it, a temporary folder that only this user can change."""
    import tempfile

    own = "memprof-%d" % os.geteuid()
    folders = [_place.shims()] + [os.path.join(f, own, "shim") for f in (tempfile.gettempdir(), "/dev/shm", "/var/tmp")]
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
                    os.mkdir(part, 0o755)  # users may share what root has built
                except FileExistsError:  # another rank has made it
                    pass
            if _trusted(real):
                return real
        except OSError:
            continue
    return tempfile.mkdtemp(prefix="memprof-shim-")


def _trusted(path, sticky=False):
    """Whether only this user, root and the owner of / can change a path without links, and each folder above it.

    A folder above it may be writable by all if it is sticky, like /tmp: there only owners can remove or rename. With
    `sticky` that holds for the path itself, too.
    """
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
    """Whether the shim exists with the digest of its build, and no other user can change it."""
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
        if _intact(target):  # another rank has built it while this one waited
            return
        temporary = "%s.%d" % (target, os.getpid())
        try:
            _compile(torch, temporary)
            os.chmod(temporary, 0o755)  # a wide umask would make it writable by others
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
    raise BuildError("%s could not compile the shim: %s" % (compiler, _first_error(errors) or "it ended with %d and said nothing" % done.returncode))


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
        if os.path.realpath(folder) != SYSTEM_INCLUDE:  # named, it would come before libstdc++'s own folders
            arguments += ["-isystem", folder]
    arguments += ["-I", _source("capture"), "-I", _source("torch"), _source("torch", "shim.cpp"), "-o", output]
    arguments += ["-L", os.path.join(root, "lib"), "-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"]
    # By its name: the hook that the process has loaded, in whatever way.
    arguments += ["-L", os.path.dirname(_place.library()), "-l:libmemprof.so"]
    return arguments


def _cuda_include(torch_root):
    """A folder with cuda_runtime_api.h: of a CUDA toolkit, or of a wheel that is installed beside torch."""
    import glob

    site = os.path.dirname(torch_root)
    candidates = [os.path.join(os.environ[v], "include") for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    candidates += sorted(glob.glob(os.path.join(site, "nvidia", "cu*", "include")), reverse=True)
    candidates += [os.path.join(site, "nvidia", "cuda_runtime", "include")]
    candidates += ["/usr/local/cuda/include"]
    candidates += sorted(glob.glob("/usr/local/cuda-*/targets/*/include"), reverse=True)
    candidates += [os.path.join(site, "triton", "backends", "nvidia", "include"), SYSTEM_INCLUDE]
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
