"""Records torch where the shim cannot be compiled: through torch's plug-in allocator.

torch.cuda.memory.CUDAPluggableAllocator calls C functions of any library, here of the hook, for allocations,
frees, streams and pools, so the trace has all of them. It raises for everything else that torch asks of an
allocator. This module answers what Python code can ask (statistics, limits, snapshots, MemPool) in place of
functions of torch._C, and keeps torch from asking the rest. LACKS names what is missing then.
"""

from memprof import _hook

LACKS = (
    "memory history, sharing CUDA tensors with other processes, and MemPools with NCCL's allocator; "
    "cudnn.benchmark and CUDA graph trees are off"
)

# Setters of torch's object, and functions of the hook. Those of REQUIRED keep memory of graphs and streams apart.
SETTERS = {
    "set_reset_fn": "memprof_plugin_reset",
    "set_base_alloc_fn": "memprof_plugin_base",
}
REQUIRED = {
    "set_record_stream_fn": "memprof_record_stream",
    "set_begin_allocate_to_pool": "memprof_plugin_pool_begin",
    "set_end_allocate_to_pool_fn": "memprof_plugin_pool_end",
    "set_release_pool": "memprof_release_pool",
}


def install(torch, reason):
    """Makes the hook torch's CUDA allocator, without the shim. Raises RuntimeError if that fails, too.

    `reason` is why there is no shim, for the problems of the recording.
    """
    from memprof import _calls, _inject, _plugin_memory

    lib = _hook.library()
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise RuntimeError("%s; torch %s has no plug-in allocator" % (reason, torch.__version__))
    if not lib.memprof_plugin_prepare(torch._C.__file__.encode()):
        raise RuntimeError("%s; torch's libraries do not export the exception for failed requests" % reason)
    allocator = torch._C._cuda_customAllocator(_calls.address("memprof_plugin_malloc"), _calls.address("memprof_free"))
    missing = [name for name in REQUIRED if not hasattr(allocator, name)]
    if missing:
        raise RuntimeError("%s; torch's plug-in allocator has no %s" % (reason, ", ".join(missing)))
    for name, function in list(SETTERS.items()) + list(REQUIRED.items()):
        if hasattr(allocator, name):
            getattr(allocator, name)(_calls.address(function))
    torch._C._cuda_changeCurrentAllocator(allocator)
    _plugin_memory.install(torch, lib)
    _keep_from_benchmark(torch)
    _inject.wait_for("torch._inductor.config", _without_graph_trees, "torch.compile's CUDA graphs may fail")
    lib.memprof_note_framework(b"torch's plug-in allocator")
    _hook.problem("torch %s: %s; recorded by torch's plug-in allocator, without %s" % (torch.__version__, reason, LACKS))


def _keep_from_benchmark(torch):
    """Notes what the job sets cudnn.benchmark to, and leaves it off: it asks for the largest free block, which raises."""
    cudnn = getattr(torch.backends, "cudnn", None)
    if cudnn is None or not hasattr(torch._C, "_set_cudnn_benchmark"):
        return
    wanted = [torch._C._get_cudnn_benchmark()]

    def set_wanted(value):
        wanted[0] = bool(value)

    torch._C._set_cudnn_benchmark(False)
    torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark = (lambda: wanted[0]), set_wanted
    if hasattr(type(cudnn), "benchmark"):  # a descriptor that holds the functions replaced above
        type(cudnn).benchmark = property(lambda self: wanted[0], lambda self, value: set_wanted(value))


def _without_graph_trees(config):
    """Has torch.compile capture plain CUDA graphs: graph trees take checkpoints of pools, which raises."""
    config.triton.cudagraph_trees = False
