"""Runs our code right after the import of torch, or of another module, before the job can use it."""

import os
import sys

from memprof import _hook


def wait_for_torch():
    """Calls `_on_torch` once torch has been imported: now, if it has been."""
    if "torch" in sys.modules:
        _on_torch(sys.modules["torch"])
        return
    wait_for("torch", _on_torch, "tensors are not recorded")


def wait_for(name, then, lost):
    """Calls `then(module)` once the module called `name` has been imported: now, if it has been.

    If `then` raises, that is a problem of the recording, whose text ends with `lost`: what is missing then.
    """
    finder, module = _Finder(name, then, lost), sys.modules.get(name)
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        sys.meta_path.insert(0, finder)
    else:
        finder.loaded(module)


def offer_memory_saver():
    """`import torch_memory_saver` gives memprof's from now on, as MEMPROF_MEMORY_SAVER says.

    auto (or unset): if that library is not installed. memprof: always. installed: never.
    """
    wanted = os.environ.get("MEMPROF_MEMORY_SAVER", "auto")
    if wanted != "installed":
        sys.meta_path.insert(0, _SaverFinder(always=wanted == "memprof"))


def offer_attach():
    """Opens the socket of `memprof attach` once torch has initialised CUDA: now, if it has."""
    if "torch" in sys.modules:
        _listen_later(sys.modules["torch"])
    else:
        wait_for("torch", _listen_later, "memprof attach does not reach the process")


def _listen_later(torch):
    cuda = getattr(torch, "cuda", None)
    if getattr(getattr(torch, "version", None), "cuda", None) is None or not hasattr(cuda, "_lazy_call"):
        return
    if cuda.is_initialized():
        _listen()
    else:
        cuda._lazy_call(_listen)  # there are threads from then on, so one more does not matter to a fork


def _listen():
    try:
        from memprof import _control

        _control.serve()
    except Exception:  # never break the job
        pass


class _SaverFinder:
    """A meta path finder that gives modules of memprof.compat under the names of that library's."""

    NAME, PREFIX = "torch_memory_saver", "memprof.compat."

    def __init__(self, always):
        self._always = always
        self._asking = False  # within a find_spec of ours

    def find_spec(self, name, path=None, target=None):
        if self._asking or name.partition(".")[0] != self.NAME:
            return None
        import importlib.util

        self._asking = True  # let the ordinary finders answer
        try:
            if not self._ours(name, importlib.util):
                return None
            spec = importlib.util.find_spec(self.PREFIX + name)
        finally:
            self._asking = False
        if spec is None:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=spec.submodule_search_locations is not None)

    def _ours(self, name, util):
        if name != self.NAME:
            return getattr(sys.modules.get(self.NAME), "__name__", "").startswith(self.PREFIX)
        return self._always or util.find_spec(name) is None

    def create_module(self, spec):
        import importlib

        module = importlib.import_module(self.PREFIX + spec.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self._spec  # the import system has put the other name's there


class _Finder:
    """A meta path finder that wraps the loader which the ordinary finders give a module.

    It stays in sys.meta_path until the module has been executed: libraries also ask for torch's
    spec only to see whether torch is installed, and import it later.
    """

    def __init__(self, name, then, lost):
        self._name, self._then, self._lost = name, then, lost
        self._asking = False  # within a find_spec of ours

    def find_spec(self, name, path=None, target=None):
        if name != self._name or self._asking:
            return None
        from importlib.util import find_spec

        self._asking = True  # let the ordinary finders answer
        try:
            spec = find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def loaded(self, module):
        try:
            self._then(module)
        except Exception as error:  # never break the job
            _hook.problem("%s: %s: %s; %s" % (self._name, type(error).__name__, error, self._lost))


class _Loader:
    """Runs the module's own loader, then the finder's `then`. Every other attribute is that of the own loader."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # inspect, pickle and importlib.reload read these two: they get the module's own loader.
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._loader.exec_module(module)
        self._finder.loaded(module)


def _on_torch(torch):
    lib = _hook.library()
    if lib is None:
        return
    lib.memprof_note_framework(("torch " + torch.__version__).encode())
    from memprof import _dryrun

    if _dryrun.wanted():
        _dryrun.install(torch)
        _attribute(torch)
        return
    if torch.version.cuda is None:
        _hook.problem("torch %s is built without CUDA; tensors are not recorded" % torch.__version__)
        return
    from memprof import _shim, _watch

    install = _watch.install if _watch.wanted() else _shim.install
    if _asynchronous(torch):
        install = _leave
    if install is _shim.install:  # there are no tags in another allocator
        wait_for("vllm.device_allocator.cumem", _on_vllm, "memory of its sleep mode has no tags")
    install(torch)
    _attribute(torch)


def _attribute(torch):
    from memprof import _attribution

    _attribution.install(torch)
    if os.environ.get("MEMPROF_ATTRIBUTION") != "none":
        from memprof import _kv

        _kv.wait(wait_for)


def _asynchronous(torch):
    """Whether the job has chosen torch's backend:cudaMallocAsync, which can be neither replaced nor observed by torch's means."""
    try:
        return torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    except Exception:  # a torch without the function has no such backend
        return False


def _leave(torch):
    _hook.problem(
        "torch: the job has chosen backend:cudaMallocAsync, and keeps it: its memory is recorded as calls of CUDA, without tensors; "
        "remove the setting to have tensors recorded"
    )


def _on_vllm(module):
    from memprof._tags import vllm

    vllm.install(module)
