"""Process groups in a dry run: one rank runs, and its collectives transfer nothing.

The rank and the size of the job are those of --rank and --ranks, or the script's. torch has a backend for its own tests
that stands for all others. What a collective's work keeps for another stream is not in a dry run.
"""

import contextlib
import os

from memprof import _dryrun, _hook, _inject


def install(torch, report, communicators):
    """`report(kind, text)` reports an assumption, the first of its kind."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    module = distributed.distributed_c10d

    def replace(name, function):
        setattr(distributed, name, function)
        setattr(module, name, function)

    _groups(torch, module, replace, communicators)
    _objects(module, replace, report)
    _data_parallel(torch)
    _inject.wait_for("torch.distributed.launcher.api", _launcher, "torchrun starts all ranks")
    torch.multiprocessing.spawn = _spawned


# Bytes of a device that a communicator takes, torch 2.11 with CUDA 13 on H200s: of one rank 388 MiB of buffers and 100 MiB of code,
# of two, without multicast, 484 and 292.
ONE_RANK, RANKS = 488 << 20, 776 << 20


class Communicators:
    """NCCL makes a communicator at the first collective on a device, or with the group where the script names its device."""

    def __init__(self, torch, storages, report):
        self._distributed = torch.distributed
        self._storages = storages
        self._report = report
        self._devices = set()

    def connect(self, tensors):
        self.make(t.device.index for t in tensors if t.device.type == "cuda")

    def make(self, devices):
        for device in set(devices) - self._devices:
            self._devices.add(device)
            alone = self._distributed.get_world_size() == 1
            bytes = ONE_RANK if alone else RANKS
            self._storages.take_as(b"call=cuMemAlloc\tlibrary=libnccl.so", bytes, device)
            measured = "one rank did on an H200" if alone else "two ranks did on H200s"
            self._report("nccl", "NCCL is assumed to take %d MiB of a device, as the communicator of %s" % (bytes >> 20, measured))


def ways(torch, _storages):
    """wait_tensor returns its operand, and all_gather_into_tensor_out its `out`, where torch's fake kernels return new tensors."""
    if not torch.distributed.is_available():
        return {}
    functional = torch.ops._c10d_functional
    return {
        functional.wait_tensor.default: lambda operator, tensor: tensor,
        functional.all_gather_into_tensor_out.default: lambda operator, *args, out: out,
    }


def _groups(torch, module, replace, communicators):
    begin, make = module.init_process_group, module._new_process_group_helper

    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, *_, device_id=None, **more):
        world_size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
        rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
        _hook.problem("dry run: rank %d of %d runs alone: collectives transfer nothing" % (rank, world_size))
        begin(backend=backend, world_size=world_size, rank=rank, store=torch.distributed.HashStore())
        if device_id is not None:
            communicators.make([getattr(device_id, "index", device_id)])

    def new_group(size, rank, ranks, backend, store, group_name, *_, **more):
        from torch.testing._internal.distributed import fake_pg  # registers the backend

        given = {name: more[name] for name in ("timeout", "pg_tag", "group_desc") if name in more}
        group, store = make(size, rank, ranks, "fake", store, group_name, **given)
        if group in module._world.pg_map:
            module._world.pg_map[group] = module.Backend(backend or "undefined"), store
        return group, store

    module._new_process_group_helper = new_group
    replace("init_process_group", init_process_group)
    replace("is_nccl_available", lambda: True)
    replace("_coalescing_manager", contextlib.contextmanager(lambda *_, **__: (yield module._CoalescingManager())))  # each on its own
    replace("monitored_barrier", lambda *_, **__: None)
    replace("_verify_params_across_processes", lambda *_: None)  # DDP compares the parameters of all processes; here is one
    module.default_pg_nccl_timeout = module.default_pg_nccl_timeout or module.default_pg_timeout
    if not hasattr(module, "ProcessGroupNCCL"):  # of a build without CUDA
        module.ProcessGroupNCCL = type("ProcessGroupNCCL", (), {"Options": type("Options", (), {"__init__": lambda *_, **__: None})})


def _objects(module, replace, report):
    """Objects travel as tensors of the device, of which there are no values: this rank's stand for those of all."""

    def assume():
        report("objects", "objects of other ranks were asked for: they are assumed to be like this rank's")

    def all_gather_object(object_list, obj, group=None):
        assume()
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, *_, **__):
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, **__):
        assume()
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[module.get_rank(group)]

    def keep(*_, **__):
        assume()

    for function in (all_gather_object, gather_object, scatter_object_list):
        replace(function.__name__, function)
    for name in ("broadcast_object_list", "send_object_list", "recv_object_list"):
        replace(name, keep)


def _data_parallel(torch):
    # Times of its own, which a build without CUDA does not measure, and one with CUDA by events.
    torch.distributed.Logger.set_runtime_stats_and_log = torch.distributed.Reducer.prepare_for_forward = lambda _: None
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


def _launcher(module):
    """torchrun becomes the process of the one rank."""

    def launch(launcher, *args):
        if "WORLD_SIZE" not in os.environ:
            _dryrun.refuse("torchrun starts a process for each rank, and a dry run is of one: add --ranks, and --rank for another than 0")
        os.execvp(launcher._entrypoint, (launcher._entrypoint, *args))

    module.elastic_launch.__call__ = launch


def _spawned(function, args=(), nprocs=1, *_, **__):
    """torch.multiprocessing.spawn: this process is the one rank."""
    function(int(os.environ.get("RANK", "0")) % nprocs, *args)
