"""The interface of the library torch_memory_saver, implemented by memprof.region, pause and resume.

    from memprof.compat.torch_memory_saver import torch_memory_saver

    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        model = build()
    torch_memory_saver.pause("weights"); torch_memory_saver.resume("weights")

As in that library, pausing or resuming a tag without memory does nothing. Where that library ends
the process or continues in a broken state, this raises memprof.PauseError and changes nothing: for a
tag that is paused already, or is not paused, for no memory to resume, and for graphs without a backup.
"""

from contextlib import contextmanager

from memprof._tags import regions

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]


class TorchMemorySaver:
    enabled = True
    hook_mode = "preload"  # this and the next two are settings of that library, without effect here
    memory_margin_bytes = 0
    retain_cpu_backup = False  # memprof always keeps pinned memory for the next backup

    def region(self, tag="default", enable_cpu_backup=False, enable_disk_backup=False, cpu_backup_backend=None):
        if enable_disk_backup:
            raise NotImplementedError("memprof backs up to host memory only: use enable_cpu_backup")
        return regions.region(tag, "host" if enable_cpu_backup else None)

    @contextmanager
    def cuda_graph(
        self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag="default", enable_cpu_backup=False, cpu_backup_backend=None
    ):
        """torch.cuda.graph, with the memory of its pool under the tag. To pause it, it needs the backup."""
        import torch

        with self.region(tag, enable_cpu_backup):
            with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
                yield

    def disable(self, dispose_mem_pool_after_use=True):
        """Inside a region: allocations in this block get no tag."""
        return regions.region(None)

    def pause(self, tag=None):
        _unless_empty(regions.pause, tag)

    def resume(self, tag=None):
        _unless_empty(regions.resume, tag)


def _unless_empty(call, tag):
    try:
        call(*(() if tag is None else (tag,)))
    except regions.PauseError as error:
        if error.code not in (error.UNKNOWN_TAG, error.WRONG_STATE) or _has_memory(tag):
            raise


def _has_memory(tag):
    return any(row["live"] or row["mapped"] or row["paused"] for name, row in regions.usage().items() if tag is None or name == tag)


@contextmanager
def configure_subprocess():
    """Does nothing: child processes inherit what memprof needs anyway."""
    yield


torch_memory_saver = TorchMemorySaver()
