"""Dry runs of one rank of a distributed job. Bytes are computed by hand from the sizes of the model.

Two blocks of three weights of float32: a norm's 64, and two of 64 x 320. Activations are of 35 rows.
"""

import json
import os
import unittest

from dry_run import DryRunCase

JOB = """
import os
import torch.distributed as dist
from torch import nn
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64, bias=False), nn.Linear(64, 320, bias=False), nn.Linear(320, 64, bias=False)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))
model = nn.Sequential(Block(), Block()).cuda()
PARALLEL
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, foreach=False)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(5, 7, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""
NORM, WEIGHT = 4 * 64, 4 * 64 * 320
BLOCK = NORM + 2 * WEIGHT


class RanksTest(DryRunCase):
    def job(self, parallel, ranks, rank):
        """The requests of the first and of a later iteration, and what the job prints."""
        plan, printed = self.script(JOB.replace("PARALLEL", parallel), flags=("--card", "H200", "--ranks", str(ranks), "--rank", str(rank), "--iterations", "0"))
        self.assertIn("rank %d of %d runs alone" % (rank, ranks), printed)
        found = [[]]
        for event in self.events(plan):
            if event["kind"] == "alloc":
                self.assertEqual(event["device"], str(rank % 8))
                found[-1].append(int(event["requested"]))
            elif event["kind"] == "iteration":
                found.append([])
        return found[0], found[1], printed, plan

    def test_sharded_parameters(self):
        for rank in (3, 7):
            first, later, printed, plan = self.job("from torch.distributed.fsdp import fully_shard\n[fully_shard(block) for block in model]\nfully_shard(model)", 8, rank)
            self.assertIn("NCCL is assumed to take 776 MiB of a device, as the communicator of two ranks did", printed)
            self.assertEqual(first.count(WEIGHT // 8), 4 + 4)  # the rank's eighth of weights and momenta
            # Each block is gathered in forward and, but for the last, which stays, again in backward; its gradients are
            # gathered for one reduction, whose result is the shard of the block.
            self.assertEqual(later.count(BLOCK), 2 + 2 + 2)
            self.assertEqual(later.count(BLOCK // 8), 2)
            # Gathered weights are copied out, each time, and have gradients.
            self.assertEqual(later.count(WEIGHT), 4 + 4 + 4)
            self.assertEqual(later.count(WEIGHT // 8), 0)
        with open(os.path.join(plan, "run.json")) as f:
            info = json.load(f)
        self.assertEqual((info["options"]["ranks"], info["options"]["rank"], len(info["gpus"])), ("8", "7", 8))

    def test_sharded_within_hosts(self):
        mesh = "from torch.distributed.fsdp import fully_shard\nmesh = dist.init_device_mesh('cuda', (4, 4), mesh_dim_names=('replicate', 'shard'))\n"
        first, later, _, _ = self.job(mesh + "[fully_shard(block, mesh=mesh) for block in model]", 16, 9)
        self.assertEqual(first.count(WEIGHT // 4), 4 + 4)
        self.assertEqual(later.count(BLOCK // 4), 2)

    def test_tensor_parallel(self):
        plan = "from torch.distributed.tensor.parallel import parallelize_module, ColwiseParallel, RowwiseParallel\nmesh = dist.init_device_mesh('cuda', (4,))\n"
        first, later, _, _ = self.job(plan + "[parallelize_module(b, mesh, {'up': ColwiseParallel(), 'down': RowwiseParallel()}) for b in model]", 4, 1)
        # A quarter of each gradient; what is between both weights is a quarter as wide: in each block two results and
        # their gradients.
        self.assertEqual(later.count(WEIGHT // 4), 4)
        self.assertEqual(later.count(4 * 35 * 320 // 4), 2 * 4)
        self.assertEqual(later.count(WEIGHT), 0)

    def test_buckets_of_gradients(self):
        first, later, _, _ = self.job("model = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])", 8, 3)
        # All weights are sent at once. Gradients have a block each and one bucket, which is made again in their order.
        self.assertEqual((first.count(2 * BLOCK), later.count(2 * BLOCK)), (2, 1))
        self.assertEqual(later.count(WEIGHT), 4)

    def test_torchrun(self):
        command = ("-m", "torch.distributed.run", "--nproc-per-node", "4", "--no-python", "python3", "-c", "import os, torch; print('rank', os.environ['RANK'], torch.cuda.device_count())")
        _, printed = self.record(*command, flags=("--ranks", "4", "--rank", "2"))
        self.assertIn("rank 2 4", printed)
        _, printed = self.record(*command, status=2)
        self.assertIn("torchrun starts a process for each rank, and a dry run is of one: add --ranks", printed)

    def test_a_group_that_names_its_device(self):
        _, printed = self.script(
            "torch.distributed.init_process_group('nccl', rank=0, world_size=1, store=torch.distributed.HashStore(), device_id=torch.device('cuda', 0))"
        )
        self.assertIn("NCCL is assumed to take 488 MiB of a device, as the communicator of one rank did on an H200", printed)

    def test_objects_and_messages(self):
        plan, _ = self.script(
            """
            import os, torch.distributed as dist, torch.multiprocessing as processes
            import torch.distributed._functional_collectives as functional
            def work(rank, ranks):
                dist.init_process_group("nccl", rank=rank, world_size=ranks, init_method="tcp://127.0.0.1:1")
                assert (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == ("nccl", 2, 4)
                found = [None] * 4
                dist.all_gather_object(found, rank)
                assert found == [2] * 4
                group = dist.new_group(backend="gloo")
                sizes = [torch.zeros(1, dtype=torch.long) for _ in range(4)]
                dist.all_gather(sizes, torch.tensor([7]), group=group)
                assert [int(size) for size in sizes] == [7] * 4 and dist.get_backend(group) == "gloo"
                x = torch.ones(3, device=rank)
                for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 3), dist.P2POp(dist.irecv, x.clone(), 1)]):
                    work.wait()
                given = torch.zeros(1000, device=rank)
                found = [functional.all_reduce(given, "sum", dist.group.WORLD), functional.all_gather_tensor(given, 0, dist.group.WORLD)]
                found += [functional.reduce_scatter_tensor(given, "sum", 0, dist.group.WORLD)]
                found = [each.wait() for each in found]
                dist.destroy_process_group()
            processes.spawn(work, args=(4,), nprocs=4)
            """,
            flags=("--ranks", "4", "--rank", "2"),
        )
        self.assertEqual([size for size in self.requests(plan) if size >= 1000], [4000, 4000, 16000, 1000])  # to wait takes no memory


if __name__ == "__main__":
    unittest.main()
