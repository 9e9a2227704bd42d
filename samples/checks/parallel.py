"""torch's parallel training, unchanged: on two GPUs, and on one where that makes sense."""

import json

from checks.pools import NCCL_ALLOCATOR
from checks.side_by_side import MIB, PEAK, TORCHRUN, demand_library, side_by_side
from checks.suite import PYTHON, Failed, LeftOut, alone, case, two_gpus_only

# NVLink multicast stays off: a process that fails while it is in use can put all GPUs of the host out of service.
NO_MULTICAST = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0", "NVSHMEM_DISABLE_NVLS": "1"}

START = """
import os, torch, torch.distributed as dist
def print(*words, flush=True):  # by one write, since the ranks share a pipe
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
import torch.nn as nn
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(0)
"""

END = """
torch.cuda.synchronize()
dist.barrier()
dist.destroy_process_group()
"""


def ranks(suite, name, text, least=1):
    """Runs a script on each of two GPUs, or on one if there is one and `least` allows. Returns the report."""
    count = min(2, suite.gpus())
    if count < least:
        raise LeftOut("one GPU")
    report, _ = side_by_side(suite, name, START + text + PEAK + END, prefix=[*TORCHRUN, str(count)], environment=NO_MULTICAST)
    suite.lines.append(f"  {name}: {count} ranks")
    return report


@case
def fsdp2_checkpointed(suite):
    """FSDP2 with mixed precision, activation checkpointing and weights offloaded to the host."""
    ranks(
        suite,
        "fsdp2_checkpointed",
        """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.mlp = nn.MultiheadAttention(512, 8, batch_first=True), nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.mlp(x)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.backends.cuda.enable_cudnn_sdp(False)
for offload in (OffloadPolicy(), CPUOffloadPolicy()):
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(4)]).cuda()
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: isinstance(module, Block))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mp_policy=policy, offload_policy=offload)
    fully_shard(model, mp_policy=policy, offload_policy=offload)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in range(5):
        torch.manual_seed(10 * i + rank)
        loss = (model(torch.randn(8, 128, 512, device=device)).float() - 0.5).square().mean()
        loss.backward()
        if type(offload) is OffloadPolicy:  # norms of parameters on the host would need a backend for the host
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print("result", rank, type(offload).__name__, i, float(loss), flush=True)
    del model, optimizer
""",
    )


@case
def tensor_parallel(suite):
    """Columns and rows of linear layers on a device mesh, with sequence parallelism."""
    ranks(
        suite,
        "tensor_parallel",
        """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(512), nn.Linear(512, 2048), nn.Linear(2048, 512)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))
mesh = init_device_mesh("cuda", (world,))
model = nn.ModuleList([Block() for _ in range(4)]).cuda()
for block in model:
    parallelize_module(block, mesh, {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    })
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
for i in range(5):
    torch.manual_seed(i)
    x = distribute_tensor(torch.randn(8, 128, 512, device=device), mesh, [Shard(1)])
    for block in model:
        x = block(x)
    loss = (x - 0.5).square().mean().full_tensor()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("result", rank, i, float(loss), flush=True)
""",
    )


@two_gpus_only
@case
def pipeline_parallel(suite):
    """Two stages of a pipeline, one forward and one backward in turns."""
    ranks(
        suite,
        "pipeline_parallel",
        """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
for Schedule in (ScheduleGPipe, Schedule1F1B):
    torch.manual_seed(rank)
    part = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(4)]).cuda()
    stage = PipelineStage(part, rank, world, device)
    schedule = Schedule(stage, n_microbatches=4, loss_fn=lambda found, wanted: (found - wanted).square().mean())
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    for i in range(5):
        torch.manual_seed(100 + i)
        x, y = torch.randn(256, 1024, device=device), torch.randn(256, 1024, device=device)
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
            print("result", Schedule.__name__, i, float(sum(losses)), flush=True)
        optimizer.step()
        optimizer.zero_grad()
""",
        least=2,
    )


@two_gpus_only
@case
def symmetric_memory(suite):
    """Buffers that all ranks map, written by copies and reduced in place; NVLink multicast is off."""
    report = ranks(
        suite,
        "symmetric_memory",
        """
import time
import torch.distributed._symmetric_memory as symmetric
group = dist.group.WORLD.group_name
buffer = symmetric.empty(16 << 20, dtype=torch.float32, device=device)
handle = symmetric.rendezvous(buffer, group)
assert handle.multicast_ptr == 0, "multicast must be off"
for i in range(4):
    buffer.copy_(torch.arange(buffer.numel(), device=device) % 1000 + rank + i)
    handle.barrier()
    reduced = torch.ops.symm_mem.one_shot_all_reduce(buffer[: 1 << 14], "sum", group)
    handle.barrier()
    torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", group)
    handle.barrier()
    print("result", rank, i, float(reduced.double().sum()), float(buffer.double().sum()), flush=True)
peer = (rank + 1) % world
buffer.fill_(rank)
handle.barrier()
theirs = handle.get_buffer(peer, (1 << 20,), torch.float32)
print("result", rank, "peer", float(theirs.double().mean()), flush=True)
handle.barrier()
time.sleep(0.3)  # used memory is read every 100 ms
""",
        least=2,
    )
    if report:
        demand_library("symmetric_memory", report, "torch", 64 * MIB)


@case
def nccl_pools(suite):
    """Tensors in NCCL's own memory, registered with it, reduced while others come and go."""
    ranks(
        suite,
        "nccl_pools",
        """
backend = dist.group.WORLD._get_backend(device)
"""
        + NCCL_ALLOCATOR
        + """
pool = torch.cuda.MemPool(allocator)
with torch.cuda.use_mem_pool(pool):
    large, small = torch.empty(16 << 20, device=device), torch.empty(1 << 10, device=device)
backend.register_mem_pool(pool)
for i in range(6):
    large.copy_(torch.arange(large.numel(), device=device) % 1000 + rank + i)
    small.fill_(rank + i)
    dist.all_reduce(large)
    dist.all_reduce(small)
    part = torch.empty((world, 1 << 20), device=device)
    dist.all_gather_into_tensor(part, large[: 1 << 20].clone())
    print("result", rank, i, float(large.double().sum()), float(small.double().sum()), float(part.double().sum()), flush=True)
backend.deregister_mem_pool(pool)
with torch.cuda.use_mem_pool(pool):
    more = torch.full((4 << 20,), float(rank), device=device)
dist.all_reduce(more)
print("result", rank, float(more.double().sum()), flush=True)
del large, small, more, part
torch.cuda.synchronize()
del pool
""",
    )


@two_gpus_only
@alone
def nccl_graphs_paused(suite):
    """All-reduces captured on two GPUs are bit-identical over 1,000 pauses of all that they use."""
    if suite.gpus() < 2:
        suite.lines.append("  one GPU here: nothing to reduce with")
        return
    directory, done = suite.record("nccl_graphs", [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *suite.job("nccl_graphs")[1:]])
    suite.verified(directory)
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    suite.figure("captured all-reduces: cycles, wrong, median of pause and resume", f"{found['cycles']}, {found['wrong']}, {found['pause_and_resume_ms']} ms", "0 wrong")
    if found["wrong"] or found["cycles"] != 1000:
        raise Failed(f"{found}")
    for process in suite.report(directory)["processes"]:
        libraries = {library["library"]: library for library in process["devices"][0]["accounting"]["peak"]["libraries"]}
        nccl = next((library for name, library in libraries.items() if name.startswith("libnccl")), None)
        if nccl is None:
            raise Failed(f"{process['process']}: NCCL's memory, and not {libraries}")
        suite.figure(f"{process['process']}: NCCL's memory, MiB", nccl["bytes"] >> 20)
