"""An engine goes to sleep and wakes up, over vLLM's cumem allocator and over memprof's regions.

    level 1  the weights are copied to the host, the KV cache is dropped
    level 2  both are dropped, and the weights are loaded again from a state dict on the host
             (pageable memory) when they are back

Both allocators have the tags weights and kv_cache, which wake up one after the other. After each
cycle the weights must be what they were, and a CUDA graph captured before it must give the same
numbers. Each allocator and level has a process of its own, one after the other, and prints one
line of JSON. vLLM's package is looked for on the path and in the folder MEMPROF_FOREIGN; without it
only memprof's regions are timed:

    MEMPROF_FOREIGN=/opt/foreign memprof record -o run -- python3 samples/jobs/engine_sleep.py
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from statistics import median

# Under `memprof record` it is on the path already.
sys.path.append(os.environ.get("MEMPROF_PYTHON", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "hooks", "python")))
if "MEMPROF_FOREIGN" in os.environ:
    sys.path.append(os.environ["MEMPROF_FOREIGN"])
import memprof
import smaller_card

import torch
from torch import nn

WIDTH = 4096


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=smaller_card.parse, default=4 << 30, metavar="SIZE", help="(default 4GiB)")
    parser.add_argument("--kv", type=smaller_card.parse, default=8 << 30, metavar="SIZE", help="(default 8GiB)")
    parser.add_argument("--cycles", type=int, default=3, help="of sleep and wake-up")
    parser.add_argument("--allocator", choices=("memprof", "vllm"), help="default: both, each level in a process of its own")
    parser.add_argument("--level", type=int, choices=(1, 2), default=1)
    return parser.parse_args()


class OfVllm:
    """vLLM's allocator: the tags are those of its pools, and the level is chosen when it goes to sleep."""

    name = "vLLM cumem"

    def __init__(self):
        from vllm.device_allocator.cumem import CuMemAllocator

        self.allocator = CuMemAllocator.get_instance()

    def memory(self, tag, level):
        return self.allocator.use_memory_pool(tag=tag)

    def sleep(self, level):
        self.allocator.sleep(offload_tags=("weights",) if level == 1 else ())

    def wake(self, tag):
        self.allocator.wake_up(tags=[tag])


class OfMemprof:
    """memprof's regions, whose restore mode says what a pause does."""

    name = "memprof"

    def memory(self, tag, level):
        return memprof.region(tag, backup="host" if level == 1 and tag == "weights" else None)

    def sleep(self, level):
        memprof.pause("weights", "kv_cache")

    def wake(self, tag):
        memprof.resume(tag)


class Engine:
    def __init__(self, opts, saver, level):
        self.saver, self.level = saver, level
        layers = max(opts.weights // (2 * WIDTH * WIDTH), 1)
        torch.manual_seed(1)
        with saver.memory("weights", level), torch.device("cuda"):
            self.model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(layers)])
        with saver.memory("kv_cache", level):
            self.cache = torch.zeros(opts.kv // (2 * WIDTH), WIDTH, dtype=torch.bfloat16, device="cuda")
        self.input = torch.randn(64, WIDTH, dtype=torch.bfloat16, device="cuda")
        self.disk = {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}
        self.graph = self.capture()

    @torch.no_grad()
    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.model(self.input)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.output = self.model(self.input)
            self.cache[: len(self.output)].copy_(self.output)
        return graph

    def replay(self):
        self.graph.replay()
        return int(self.cache[:64].view(torch.int16).long().sum()), int(self.output.view(torch.int16).long().sum())

    @torch.no_grad()
    def load(self):
        for name, parameter in self.model.named_parameters():
            parameter.copy_(self.disk[name])

    def same(self):
        return all(torch.equal(tensor.cpu(), self.disk[name]) for name, tensor in self.model.state_dict().items())


def timed(call, *arguments):
    torch.cuda.synchronize()
    start = time.perf_counter()
    call(*arguments)
    torch.cuda.synchronize()
    return round((time.perf_counter() - start) * 1e3, 2)


def cycle(engine, found):
    saver, before = engine.saver, torch.cuda.mem_get_info()[0]
    found["sleep_ms"].append(timed(saver.sleep, engine.level))
    found["released"] = min(found["released"], torch.cuda.mem_get_info()[0] - before)
    found["wake_weights_ms"].append(timed(saver.wake, "weights"))
    if engine.level == 2:
        found["load_ms"].append(timed(engine.load))
    found["wake_kv_ms"].append(timed(saver.wake, "kv_cache"))


def run(opts, saver):
    engine = Engine(opts, saver, opts.level)
    want = engine.replay()
    times = {name: [] for name in ("sleep_ms", "wake_weights_ms", "load_ms", "wake_kv_ms")}
    found = {"allocator": saver.name, "level": opts.level, "weights": opts.weights, "kv": opts.kv, "released": 1 << 62, "same": True, **times}
    for _ in range(opts.cycles):
        with memprof.phase("cycle"):
            cycle(engine, found)
        found["same"] = found["same"] and engine.replay() == want and engine.same()
    times = {name: each for name, each in times.items() if each}
    found = {name: value for name, value in found.items() if value != []}
    found.update({name: median(each[1:] or each) for name, each in times.items()}, first={name: each[0] for name, each in times.items()})
    print(json.dumps(found), flush=True)
    return found["same"]


def main():
    opts = options()
    if opts.allocator:
        good = run(opts, OfVllm() if opts.allocator == "vllm" else OfMemprof())
        os._exit(0 if good else 1)  # vLLM's allocator ends in an order that is not its own
    allocators = ["memprof"] * bool(os.environ.get("MEMPROF_SPOOL")) + ["vllm"] * bool(importlib.util.find_spec("vllm"))
    calls = [(allocator, level) for level in ("1", "2") for allocator in allocators]
    codes = [subprocess.run([sys.executable, __file__, *sys.argv[1:], "--allocator", allocator, "--level", level]).returncode for allocator, level in calls]
    return max(codes, default=1)


if __name__ == "__main__":
    sys.exit(main())
