"""The memory of this process in a few numbers, for loggers of training jobs."""

import ctypes
import sys

from memprof import _calls, _hook


def scalars(device=None):
    """Bytes and counts of a device of this process, by name; empty where the process is not recorded.

    `memprof/requested` (T), `provided` (C) and `reserved` (R) are bytes now, `reserved_peak` is the
    greatest R so far, `waste` is 1 - T/R, from 0 to 1, and `failed_requests` counts. `device` is an
    index; without one, torch's current device.
    """
    if not _hook.active():
        return {}
    if device is None:
        device = _current_device()
    found = _of_hook(device) or _of_torch(device)
    if not found:
        return {}
    if found["reserved"] > 0:
        found["waste"] = 1 - found["requested"] / found["reserved"]
    return {"memprof/" + name: value for name, value in found.items()}


def _current_device():
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return 0
    return torch.cuda.current_device()


def _of_hook(device):
    """What memprof's own allocator says; None where it has nothing."""
    ours = _calls.Stats()
    _hook.library().memprof_get_stats(device, ctypes.byref(ours))
    if ours.reserved_bytes.peak == 0:
        return None
    return {
        "requested": ours.requested_bytes.current,
        "provided": ours.allocated_bytes.current,
        "reserved": ours.reserved_bytes.current,
        "reserved_peak": ours.reserved_bytes.peak,
        "failed_requests": ours.ooms,
    }


def _of_torch(device):
    """What PyTorch's own allocator says, under --allocator native; None without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats(device)
    return {
        "requested": stats.get("requested_bytes.all.current", 0),
        "provided": stats.get("active_bytes.all.current", 0),
        "reserved": stats.get("reserved_bytes.all.current", 0),
        "reserved_peak": stats.get("reserved_bytes.all.peak", 0),
        "failed_requests": stats.get("num_ooms", 0),
    }
