"""The interface of the library torch_memory_saver, implemented by memprof's tags.

    from torch_memory_saver import torch_memory_saver

    with torch_memory_saver.region(tag="weights", enable_cpu_backup=True):
        model = build()
    torch_memory_saver.pause("weights"); torch_memory_saver.resume("weights")

In a recorded job `import torch_memory_saver` gives this package where that library is not installed, or where
`memprof record --memory-saver memprof` asks for it. Elsewhere it is memprof.compat.torch_memory_saver.

As in that library, pausing or resuming a tag without memory does nothing. Where that library ends the process or
continues in a broken state, this raises memprof.PauseError and changes nothing: for a tag that is paused already, or
is not paused, for no memory to resume, and for graphs of a region without a backup. Unlike it, pinned memory of a
copy that a resume does not keep stays pinned for the next pause, until the tag's memory is freed.
"""

from .entrypoint import TorchMemorySaver
from .subprocesses import configure_subprocess

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]

torch_memory_saver = TorchMemorySaver()
