"""Drives torch's own allocator with random operations and writes its answers to a file.

    python3 samples/jobs/allocator_twin.py --seed 1 --operations 100000 -o twin.txt
    go test ./analysis/torchalloc -run TestTwin -twin twin.txt

The settings are those of PYTORCH_CUDA_ALLOC_CONF. One line is one operation and, behind it,
torch's reserved, active, allocated and requested bytes afterwards:

    a SLOT BYTES STREAM ADDRESS   a tensor of BYTES, by the stream of that number
    o BYTES STREAM                one that torch refused: out of memory
    u SLOT STREAM                 record_stream
    f SLOT                        its free
    h STREAM                      from now on the stream waits
    s                             streams stop waiting, and finish their work
    e                             empty_cache
    n POOL, d POOL                a MemPool is made, ends
    b POOL, c POOL                use_mem_pool begins, ends

There are as many lines as --operations says: what cannot be done at the moment, such as a free where
nothing is live, is chosen again and does not count. The first line has that number, so that the test
refuses a file that is cut off.

A stream waits for a word of host memory, so it is known at every operation which events have
completed, and which frees are pending.
"""

import argparse
import ctypes
import os
import random

import torch

STREAMS = 4


class Gate:
    """A gate at which streams wait until it is opened."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.word = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.count = 0
        self.held = set()

    def hold(self, stream):
        wait = self.driver.cuStreamWaitValue32_v2
        wait.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
        if wait(stream.cuda_stream, self.word.data_ptr(), self.count + 1, 0) != 0:
            raise RuntimeError("cuStreamWaitValue32 failed")
        self.held.add(stream)

    def open(self):
        self.count += 1
        self.word[0] = self.count
        torch.cuda.synchronize()
        self.held.clear()


class Twin:
    def __init__(self, opts, out):
        self.opts, self.out = opts, out
        self.random = random.Random(opts.seed)
        self.streams = [torch.cuda.Stream() for _ in range(STREAMS)]
        self.gate = Gate()
        self.live, self.shared, self.next = {}, set(), 0
        self.pools, self.scope, self.pool_count = {}, None, 0
        self.mean = opts.live
        self.left = opts.operations

    def write(self, *words):
        self.left -= 1
        stats = torch._C._cuda_memoryStats(0)
        sums = [stats[name]["all"]["current"] for name in ("reserved_bytes", "active_bytes", "allocated_bytes", "requested_bytes")]
        print(*words, *sums, file=self.out)

    def size(self):
        kind = self.random.random()
        if kind < 0.1:  # sizes at the borders of pools and segments
            return max(1, self.random.choice([512, 1 << 20, 10 << 20, 20 << 20, 2 << 20]) + self.random.randint(-2, 2))
        if kind < 0.5:
            return self.random.choice([4096, 65536, 300_000, 1_500_000, 3 << 20, 12 << 20])
        return int(2 ** self.random.uniform(0, self.opts.log))

    def finish_streams(self):
        for stream in self.streams:
            if stream not in self.gate.held:
                stream.synchronize()

    def malloc(self):
        size, number = self.size(), self.random.randrange(STREAMS)
        self.finish_streams()
        try:
            with torch.cuda.stream(self.streams[number]):
                tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            self.write("o", size, number)
            return
        self.live[self.next] = tensor
        self.write("a", self.next, size, number, tensor.data_ptr())
        self.next += 1

    def free(self):
        if self.live:
            slot = self.random.choice(list(self.live)[-200:] if self.random.random() < 0.7 else list(self.live))
            if self.scope is not None and slot in self.shared:
                return  # torch asks for its events in the very call that records them: a race
            del self.live[slot]
            self.shared.discard(slot)
            self.write("f", slot)

    def share(self):
        if self.live and self.opts.share and self.scope is None:
            slot, number = self.random.choice(list(self.live)), self.random.randrange(STREAMS)
            self.live[slot].record_stream(self.streams[number])
            self.shared.add(slot)
            self.write("u", slot, number)

    def open_gate(self):
        """Opens the gate if streams wait, and says whether operations are left."""
        if self.gate.held:
            self.gate.open()
            self.write("s")
        return self.left > 0

    def hold(self):
        if not self.opts.share:
            return
        if self.gate.held:
            self.open_gate()
            return
        number = self.random.randrange(STREAMS)
        self.streams[number].synchronize()
        self.gate.hold(self.streams[number])
        self.write("h", number)

    def empty(self):
        if self.scope is None and self.random.random() < 0.2 and self.open_gate():
            torch.cuda.empty_cache()
            self.write("e")

    def pool(self):
        if not self.opts.pools:
            return
        if self.scope is not None:
            scope, name = self.scope
            self.scope = None
            scope.__exit__(None, None, None)
            self.write("c", name)
        elif len(self.pools) < 3 and self.random.random() < 0.5:
            self.pool_count += 1
            self.pools[self.pool_count] = torch.cuda.MemPool()
            self.write("n", self.pool_count)
        elif self.pools and self.random.random() < 0.15:
            if not self.open_gate():
                return
            name = self.random.choice(list(self.pools))
            del self.pools[name]
            self.write("d", name)
        elif self.pools:
            name = self.random.choice(list(self.pools))
            scope = torch.cuda.use_mem_pool(self.pools[name])
            scope.__enter__()
            self.scope = scope, name
            self.write("b", name)

    def run(self):
        while self.left > 0:
            if self.random.random() < 0.001:
                self.mean = self.random.randint(1, 2 * self.opts.live)
            chance = self.random.random()
            if chance < 0.02:
                self.hold()
            elif chance < 0.021:
                self.empty()
            elif chance < 0.03:
                self.pool()
            elif chance < 0.09:
                self.share()
            elif self.random.random() * 2 * self.mean > len(self.live):
                self.malloc()
            else:
                self.free()
        self.gate.open()
        if self.scope is not None:  # torch aborts where a MemPool ends within its scope
            self.scope[0].__exit__(None, None, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--live", type=int, default=300, help="allocations at a time, in the mean")
    parser.add_argument("--log", type=float, default=26, help="base-2 logarithm of the largest random size")
    parser.add_argument("--fraction", type=float, default=0, help="of the card; nothing is shared then, since a retry waits for all streams")
    parser.add_argument("--pools", action="store_true", help="MemPools, too")
    parser.add_argument("-o", "--output", required=True)
    opts = parser.parse_args()
    opts.share = not opts.fraction
    torch.cuda.init()
    if opts.fraction:
        torch.cuda.set_per_process_memory_fraction(opts.fraction)
    conf = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    total = torch.cuda.mem_get_info()[1]
    with open(opts.output, "w") as out:
        print(f"torch={torch.__version__} total={total} fraction={opts.fraction} operations={opts.operations} conf={conf}", file=out)
        Twin(opts, out).run()


if __name__ == "__main__":
    main()
