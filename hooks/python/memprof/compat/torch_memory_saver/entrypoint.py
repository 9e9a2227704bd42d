"""The class TorchMemorySaver: its regions are settings of the calling thread, which the hook keeps (arena/saver.h)."""

import ctypes
import os
import sys
from contextlib import contextmanager

from memprof import _hook
from memprof._tags import regions

from .binary_wrapper import BinaryWrapper

_TAG = "default"
_BACKENDS = ("mmap", "pinned")
_MODES = ("preload", "torch")
_SWITCHES = ("TMS_INIT_ENABLE", "TMS_INIT_ENABLE_CPU_BACKUP", "TMS_INIT_ENABLE_DISK_BACKUP", "TMS_RETAIN_CPU_BACKUP")


class TorchMemorySaver:
    def __init__(self):
        self._impl_ctor_kwargs = {}
        self._impl = None

    @property
    def enabled(self):
        return True

    @property
    def hook_mode(self):
        raise AttributeError("hook_mode can only be set")

    @hook_mode.setter
    def hook_mode(self, mode):
        """In "preload" mode, the default, cudaMalloc of the thread gets the region's tag, too; in "torch" mode only tensors."""
        if mode not in _MODES:
            raise ValueError("unknown hook_mode %r: use one of %s" % (mode, ", ".join(_MODES)))
        assert self._impl is None, "hook_mode %r is set after the first use: set it before" % mode
        self._impl_ctor_kwargs["hook_mode"] = mode

    @property
    def memory_margin_bytes(self):
        raise NotImplementedError("memory_margin_bytes can only be set")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value):
        """Requests in regions fail if they would leave less free memory on the device."""
        self._ensure_initialized()
        self._impl.call("set_memory_margin_bytes", value)

    @property
    def retain_cpu_backup(self):
        self._ensure_initialized()
        return bool(self._impl.call("tms_get_retain_cpu_backup"))

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value):
        """Whether resumes keep the copies, for get_cpu_backup."""
        self._ensure_initialized()
        self._impl.call("tms_set_retain_cpu_backup", bool(value))

    @contextmanager
    def region(self, tag=_TAG, enable_cpu_backup=False, enable_disk_backup=False, cpu_backup_backend=None):
        """Allocations of this thread inside the block get the tag. What it allocates has the region's backup."""
        _check(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        self._ensure_initialized()
        with self._impl.region(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend):
            yield

    @contextmanager
    def cuda_graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag=_TAG, enable_cpu_backup=False, cpu_backup_backend=None):
        """torch.cuda.graph, with the memory of its pool under the tag. Without a backup the caller states that the pool's
        content is dead between replays: no replay reads what it has not written."""
        import torch

        _check(enable_cpu_backup, False, cpu_backup_backend)
        self._ensure_initialized()
        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            with self._impl._with_region_config(tag, enable_cpu_backup, cpu_backup_backend, discard=not enable_cpu_backup):
                yield

    @contextmanager
    def disable(self, dispose_mem_pool_after_use=True):
        """Inside a region: allocations in this block get no tag. Its free memory is unmapped when the block ends."""
        assert dispose_mem_pool_after_use, "the memory of the block is always given back: dispose_mem_pool_after_use=False is not possible"
        self._ensure_initialized()
        with self._impl.disable():
            yield

    def pause(self, tag=None):
        """Unmaps the memory of the tag, or of all tags."""
        self._ensure_initialized()
        _unless_empty(regions.pause_with, tag, 0)

    def resume(self, tag=None):
        """Maps the memory of the tag, or of all paused tags, again."""
        self._ensure_initialized()
        kept = regions.KEEP_COPIES if self._impl.loaded and self.retain_cpu_backup else 0
        _unless_empty(regions.resume_with, tag, regions.MAP_FREE | kept)

    def get_cpu_backup(self, x, zero_copy=False):
        """The content of a tensor whose tag is paused, or was resumed with its copy retained, as a tensor in host memory.

        None: the tag is resident and has no copy, or its backup is in files. With `zero_copy` it is the copy itself,
        valid until the next resume that does not retain it."""
        import torch

        assert x.is_cuda, "%s is no device of a backup: want a CUDA tensor" % x.device
        assert x.is_contiguous(), "the tensor of shape %s is not contiguous, which its copy would be" % (tuple(x.shape),)
        if x.numel() == 0:
            return torch.empty(x.shape, dtype=x.dtype)
        address = regions.backup_at(x.data_ptr(), x.numel() * x.element_size())
        if address is None:
            return None
        buffer = (ctypes.c_uint8 * (x.numel() * x.element_size())).from_address(address)
        copy = torch.frombuffer(buffer, dtype=torch.uint8).view(x.dtype).view(x.shape)
        return copy if zero_copy else copy.clone()

    def set_disk_backup_dir(self, path):
        """The folder of backup files that are made from now on."""
        self._ensure_initialized()
        os.makedirs(path, exist_ok=True)
        self._impl.call("tms_set_disk_backup_dir", os.fsencode(path))

    def _ensure_initialized(self):
        if self._impl is None:
            self._impl = _Impl(**self._impl_ctor_kwargs)


class _Impl:
    """What is there after the first use. Other code reads its private names as it would that library's."""

    def __init__(self, hook_mode="preload"):
        self._hook_mode = hook_mode
        self.loaded = _hook.library() is not None
        self._binary_wrapper = BinaryWrapper()
        self._mem_pools = {}  # settings of regions so far: that library has a pool for each
        for name in _SWITCHES:
            if os.environ.get(name, "0") not in ("1", "true", "TRUE", "yes", "YES", "0", "false", "FALSE", "no", "NO"):
                raise ValueError("%s=%s: want 1 or 0" % (name, os.environ[name]))
        if os.environ.get("TMS_INIT_CPU_BACKUP_BACKEND") not in _BACKENDS + (None, ""):
            raise ValueError("TMS_INIT_CPU_BACKUP_BACKEND=%s: want one of %s" % (os.environ["TMS_INIT_CPU_BACKUP_BACKEND"], ", ".join(_BACKENDS)))
        if self.loaded:
            _hook.library().memprof_saver_serves(hook_mode == "preload")

    def call(self, name, *arguments):
        """Calls a function of the hook; without it does nothing."""
        return getattr(self._binary_wrapper.cdll, name)(*arguments) if self.loaded else None

    @contextmanager
    def region(self, tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend):
        if not self.loaded:
            yield
            return
        backend = cpu_backup_backend or self.call("tms_get_cpu_backup_backend").decode()
        torch = sys.modules.get("torch")
        device = torch.cuda.current_device() if torch is not None and hasattr(torch, "cuda") else 0
        self._mem_pools.setdefault((tag, enable_cpu_backup, enable_disk_backup, backend if enable_cpu_backup else "", device), object())
        with self._with_region_config(tag, enable_cpu_backup, cpu_backup_backend, enable_disk_backup):
            yield

    @contextmanager
    def _with_region_config(self, tag, enable_cpu_backup, cpu_backup_backend=None, enable_disk_backup=False, discard=False):
        if not self.loaded:
            yield
            return
        before = self._binary_wrapper.config()
        with regions.lent_to_backward():
            self._binary_wrapper.set_config(
                tag=tag, interesting_region=True, enable_cpu_backup=enable_cpu_backup, cpu_backup_backend=cpu_backup_backend, enable_disk_backup=enable_disk_backup
            )
            _hook.library().memprof_saver_discard(discard)
            try:
                yield
            finally:
                self._binary_wrapper.set_config(**before)
                _hook.library().memprof_saver_discard(0)

    @contextmanager
    def disable(self):
        if not self.loaded:
            yield
            return
        assert self.call("tms_get_interesting_region"), "disable() is called outside a region: it has nothing to disable"
        self.call("tms_set_interesting_region", False)
        try:
            with regions.region(None):
                yield
        finally:
            self.call("tms_set_interesting_region", True)
            torch = sys.modules.get("torch")
            for device in range(torch.cuda.device_count() if torch is not None and hasattr(torch, "cuda") else 1):
                _hook.library().memprof_empty_cache(device)


def _check(enable_cpu_backup, enable_disk_backup, cpu_backup_backend):
    if cpu_backup_backend is not None and not enable_cpu_backup:
        raise ValueError("cpu_backup_backend=%r requires enable_cpu_backup=True" % cpu_backup_backend)
    if cpu_backup_backend not in _BACKENDS + (None,):
        raise ValueError("unknown cpu_backup_backend %r: use one of %s" % (cpu_backup_backend, ", ".join(_BACKENDS)))
    assert not (enable_cpu_backup and enable_disk_backup), "enable_cpu_backup and enable_disk_backup exclude each other: choose one"


def _unless_empty(call, tag, flags):
    try:
        call([] if not tag else [tag], flags)
    except regions.PauseError as error:
        if error.code not in (error.UNKNOWN_TAG, error.WRONG_STATE) or regions.has_memory(tag):
            raise
