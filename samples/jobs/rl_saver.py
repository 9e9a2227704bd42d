"""What pauses and resumes the memory of rl_colocated.py: memprof, or the library torch_memory_saver.

With the library, torch's own allocator serves the job, so it runs without memprof. It takes whole memory
pools, so what lives only for a step has no region of its own there.
"""

import contextlib
import os

import memprof
import torch

_library = None  # torch_memory_saver's object
_UNSAVED = ("training",)


def use(name):
    """Chooses the library, whose preloaded form alone can pause memory of CUDA graphs."""
    global _library
    if name == "torch_memory_saver":
        from torch_memory_saver import torch_memory_saver as _library

        _library.hook_mode = "preload"


def preloaded():
    return "torch_memory_saver" in os.environ.get("LD_PRELOAD", "")


def region(tag, backup=None):
    if _library is None:
        return memprof.region(tag, backup=backup)
    return contextlib.nullcontext() if tag in _UNSAVED else _library.region(tag=tag, enable_cpu_backup=backup == "host")


def graph_region(tag, backup=None):
    """Around captures."""
    return memprof.region(tag, backup=backup) if _library is None else contextlib.nullcontext()


def capture(graph, pool, stream, tag):
    if _library is None:
        return torch.cuda.graph(graph, pool=pool, stream=stream)
    return _library.cuda_graph(graph, pool=pool, stream=stream, tag=tag, enable_cpu_backup=True)


def pause(*tags):
    if _library is None:
        memprof.pause(*tags)
        return
    torch.cuda.synchronize()  # the library does not wait for kernels
    for tag in tags:
        _library.pause(tag)


def resume(*tags):
    if _library is None:
        memprof.resume(*tags)
        return
    for tag in tags:
        _library.resume(tag)
