"""All-reduces captured in CUDA graphs, replayed after pauses and resumes of everything that they use.

    memprof record -o run -- torchrun --nproc-per-node 2 samples/jobs/nccl_graphs.py

Each rank multiplies an input by its weights and reduces the product with the other ranks, in one
graph. Each cycle pauses the weights (backed up on the host), the input and the graph's memory, resumes
them, fills the input and replays. The output has to be, bit by bit, what the graph gave for the
same input before the first pause.

NCCL registers the buffers of captured collectives with the other ranks (NCCL_GRAPH_REGISTER=1, its
default): these map the memory that the buffers had then, and a resume maps other memory. So this
job sets NCCL_GRAPH_REGISTER=0, unless --register. Prints one line of JSON.
"""

import argparse
import json
import os
import sys
import time
import warnings

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--cycles", type=int, default=1000)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--rows", type=int, default=4096)
parser.add_argument("--register", action="store_true", help="let NCCL register the buffers of graphs")
opts = parser.parse_args()
os.environ["NCCL_GRAPH_REGISTER"] = str(int(opts.register))

# Under `memprof record` it is on the path already.
sys.path.append(os.environ.get("MEMPROF_PYTHON", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "hooks", "python")))
import memprof
import torch
import torch.distributed as dist

TAGS = ("weights", "input", "graph")
INPUTS = 4
WRONG = 16  # cycles with wrong results after which there is no more to learn


class Layer:
    """A product and its all-reduce, captured."""

    def __init__(self, rank):
        generator = torch.Generator("cuda").manual_seed(rank)
        random = lambda *shape: torch.randn(*shape, generator=generator, device="cuda", dtype=torch.bfloat16)
        self.given = [random(opts.rows, opts.width) for _ in range(INPUTS)]
        with memprof.region("weights", backup="host"):
            self.weights = random(opts.width, opts.width)
        with memprof.region("input"):
            self.input = torch.zeros_like(self.given[0])
        self.other = dist.new_group()  # a second communicator, for reductions of results
        self.run()  # makes the communicator, and loads kernels
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with memprof.region("graph", backup="discard"), torch.cuda.graph(self.graph):
            self.output = self.run()

    def run(self):
        output = self.input @ self.weights
        dist.all_reduce(output)
        return output

    def replay(self, number):
        self.input.copy_(self.given[number % INPUTS])
        self.graph.replay()
        return self.output


def microseconds(layer, times=50):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        layer.graph.replay()
    torch.cuda.synchronize()
    return round((time.perf_counter() - start) / times * 1e6, 1)


def cycles(layer, want, found):
    pauses = []
    for cycle in range(opts.cycles):
        start = time.perf_counter()
        memprof.pause(*TAGS)
        memprof.resume(*TAGS)
        pauses.append((time.perf_counter() - start) * 1e3)
        dist.barrier(group=layer.other)  # no rank reads another's memory before that is mapped
        same = torch.equal(layer.replay(cycle), want[cycle % INPUTS])
        wrong = torch.tensor([int(not same)], device="cuda")
        dist.all_reduce(wrong, group=layer.other)
        found["cycles"], found["wrong"] = cycle + 1, found["wrong"] + int(wrong.item() > 0)
        if found["wrong"] >= WRONG:
            break
    found["pause_and_resume_ms"] = round(sorted(pauses)[len(pauses) // 2], 2)


def main():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    layer = Layer(rank)
    want = [layer.replay(number).clone() for number in range(INPUTS)]
    found = {"register": opts.register, "nccl": ".".join(map(str, torch.cuda.nccl.version())), "ranks": dist.get_world_size(), "cycles": 0, "wrong": 0, "error": None}
    found["replay_us"] = microseconds(layer)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            cycles(layer, want, found)
        except memprof.PauseError as error:
            found["error"] = str(error)
    found["warned"] = next((str(warning.message) for warning in said if issubclass(warning.category, RuntimeWarning)), None)
    found["replay_us_after"] = microseconds(layer) if found["error"] is None else None
    if rank == 0:
        print(json.dumps(found), flush=True)
    layer.graph.reset()  # NCCL does not destroy a communicator that a graph uses
    dist.destroy_process_group()
    return int(not opts.register and (found["wrong"] > 0 or found["cycles"] < opts.cycles))


if __name__ == "__main__":
    sys.exit(main())
