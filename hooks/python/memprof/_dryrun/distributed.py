"""Process groups in a dry run: one rank runs, and its collectives transfer nothing.

torch has such a backend for its own tests. Requests of NCCL, and of the buffers that a collective's work keeps for
another stream, are not in a dry run.
"""

from memprof import _hook


def install(torch):
    distributed = torch.distributed
    if not distributed.is_available():
        return
    begin = distributed.init_process_group

    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, *args, **more):
        import os

        from torch.testing._internal.distributed import fake_pg

        world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        _hook.problem("dry run: rank %d of %d runs alone: collectives transfer nothing, and NCCL's own memory is not counted" % (rank, world_size))
        begin(backend="fake", world_size=world_size, rank=rank, store=fake_pg.FakeStore())

    distributed.init_process_group = init_process_group
    module = distributed.distributed_c10d
    module.init_process_group = init_process_group
    distributed.is_nccl_available = module.is_nccl_available = lambda: True
    distributed._verify_params_across_processes = lambda *_: None  # DDP compares the parameters of all processes; here is one
    distributed.Logger.set_runtime_stats_and_log = lambda _: None  # of times that a build without CUDA does not measure
    data_parallel = torch.nn.parallel.DistributedDataParallel
    make = data_parallel.__init__

    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self.register_comm_hook(None, arrived)

    def arrived(_, bucket):
        """Returns the bucket as if its gradients had been summed: the fake backend's work has no result."""
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    data_parallel.__init__ = __init__
    if not hasattr(module, "ProcessGroupNCCL"):  # of a build without CUDA
        module.ProcessGroupNCCL = type("ProcessGroupNCCL", (), {})
