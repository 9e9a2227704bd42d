"""Names of that library's module of this name, which its examples use."""

from .utils import is_xpu  # noqa: F401


def get_device():
    """The device of tests."""
    return "cuda"


def empty_cache():
    """Unmaps free memory."""
    import torch

    torch.cuda.empty_cache()


def get_and_print_gpu_memory(message, gpu_id=0):
    """Prints and returns the used bytes of a GPU: those of NVML, or where it cannot be asked, the driver's."""
    import torch

    try:
        used = torch.cuda.device_memory_used(gpu_id)
    except Exception:
        free, total = torch.cuda.mem_get_info(gpu_id)
        used = total - free
    print("GPU %d memory: %.2f GB (%s)" % (gpu_id, used / 1024**3, message))
    return used
