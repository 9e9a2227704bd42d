"""The interface of torch_memory_saver over memprof's regions.

    from memprof.compat.torch_memory_saver import torch_memory_saver

Where that library ends the process, this raises memprof.PauseError and changes nothing.
"""

from contextlib import contextmanager

from memprof import _regions

__all__ = ["TorchMemorySaver", "torch_memory_saver"]


class TorchMemorySaver:
    enabled = True

    def region(self, tag="default", enable_cpu_backup=False):
        return _regions.region(tag, "host" if enable_cpu_backup else None)

    @contextmanager
    def cuda_graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global", tag="default", enable_cpu_backup=False):
        """torch.cuda.graph with the memory of its pool in the tag; to be paused it needs the backup."""
        import torch

        with self.region(tag, enable_cpu_backup):
            with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
                yield

    def disable(self):
        """Inside a region: what is allocated in here belongs to no tag."""
        return _regions.region(None)

    def pause(self, tag=None):
        _regions.pause(*(() if tag is None else (tag,)))

    def resume(self, tag=None):
        _regions.resume(*(() if tag is None else (tag,)))


torch_memory_saver = TorchMemorySaver()
