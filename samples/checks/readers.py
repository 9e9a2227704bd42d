"""What a kernel or a copy reads stays as it is, whoever frees it and whenever; and the time of the largest requests."""

import concurrent.futures
import re

from checks.suite import Failed, alone, case

# Programs that are right under torch's own allocator: each hands its tensors to other streams, frees them by one of torch's three rules,
# and adds up what the readers saw. The sums depend on the seed alone.
PROGRAMS = '''
import random, sys, threading, torch
torch.cuda.init()
LATE = 2_000_000  # cycles that a reader may be late

class Thread:
    def __init__(self, seed, bound):
        self.rng = random.Random(seed)
        self.bound = bound
        self.own = [torch.cuda.Stream() for _ in range(2)]
        self.readers = [torch.cuda.Stream() for _ in range(2)]  # copies there have no memory of the allocator
        self.sums = [torch.zeros(2, dtype=torch.int64, device="cuda") for _ in self.readers]
        self.copies, self.wrong, self.failed = [], 0, None
        torch.cuda.synchronize()

    def make(self, stream, value):
        with torch.cuda.stream(stream):
            return torch.full((int(2 ** self.rng.uniform(8, self.bound)),), value, dtype=torch.int32, device="cuda")

    def read(self, stream, x, value):
        """A reader that may be late adds up x, or copies it to the host."""
        k = self.rng.randrange(2)
        reader = self.readers[k]
        reader.wait_stream(stream)
        with torch.cuda.stream(reader):
            if self.rng.random() < 0.5:
                torch.cuda._sleep(self.rng.randrange(LATE))
            if self.rng.random() < 0.4:
                host = torch.empty(x.numel(), dtype=torch.int32, pin_memory=True)
                host.copy_(x, non_blocking=True)
                self.copies.append((host, value))
            else:
                torch.sum(x, 0, keepdim=True, dtype=torch.int64, out=self.sums[k][:1])
                self.sums[k][1:].mul_(31).add_(self.sums[k][:1])
        return reader

    def hand_over(self, stream):
        value = self.rng.randrange(1, 1 << 20)
        x = self.make(stream, value)
        reader = self.read(stream, x, value)
        rule = self.rng.randrange(3)
        if rule == 0:  # the allocator learns of it
            x.record_stream(reader)
            del x
        elif rule == 1:  # the stream waits before the free
            stream.wait_stream(reader)
            del x
        else:  # freed first: the stream allocates, and waits before it writes
            del x
            with torch.cuda.stream(stream):
                later = [torch.empty(int(2 ** self.rng.uniform(8, self.bound)), dtype=torch.int32, device="cuda") for _ in range(self.rng.randint(1, 4))]
                stream.wait_stream(reader)
                for y in later:
                    y.fill_(value ^ 1)
            self.read(stream, later[0], value ^ 1)
            stream.wait_stream(self.readers[0])
            stream.wait_stream(self.readers[1])

    def run(self, steps):
        try:
            held = []
            for _ in range(steps):
                stream = self.rng.choice(self.own)
                self.hand_over(stream)
                held.append((self.make(stream, 7), stream))
                if len(held) > 6:
                    x, owner = held.pop(self.rng.randrange(len(held)))
                    self.own[0].wait_stream(owner)
                    del x
                if self.rng.random() < 0.03:
                    torch.cuda.empty_cache()
                if len(self.copies) > 12:
                    self.look()
            self.look()
        except BaseException as error:
            self.failed = f"{type(error).__name__}: {str(error)[:200]}"

    def look(self):
        for reader in self.readers:
            reader.synchronize()
        self.wrong += sum(int((host != value).sum()) for host, value in self.copies)
        self.copies.clear()

    def found(self):
        return self.wrong, [int(s[1]) for s in self.sums], self.failed

def program(seed):
    rng = random.Random(seed)
    threads = [Thread(seed * 10 + i, rng.choice((16, 20, 22))) for i in range(rng.choice((1, 2, 4)))]
    running = [threading.Thread(target=t.run, args=(rng.randint(6, 16),)) for t in threads]
    [t.start() for t in running]
    [t.join() for t in running]
    torch.cuda.synchronize()
    return [t.found() for t in threads]

for seed in range(int(sys.argv[1])):
    print("result", seed, program(seed), flush=True)
'''
COUNT = 200


@case
def readers_programs(suite):
    """200 random programs: what late readers saw is what they see natively, under both presets and an idle trim."""
    command = suite.script("programs", PROGRAMS) + [str(COUNT)]
    kinds = {"classic": (), "compact": ("--preset", "compact"), "trimmed": ("--preset", "compact", "--trim", "idle:20ms")}
    with concurrent.futures.ThreadPoolExecutor(len(kinds) + 1) as pool:
        native = pool.submit(suite.run, command)
        recordings = {kind: pool.submit(suite.record, f"programs-{kind}", command, *flags) for kind, flags in kinds.items()}
    wanted = re.findall(r"^result .*$", native.result().stdout, re.M)
    if len(wanted) != COUNT:
        raise Failed(f"{len(wanted)} of {COUNT} programs natively")
    for kind, recording in recordings.items():
        directory, done = recording.result()
        found = re.findall(r"^result .*$", done.stdout, re.M)
        if found != wanted:
            raise Failed(f"{kind}: first difference: {next(pair for pair in zip(wanted, found + ['nothing']) if pair[0] != pair[1])}")
        suite.verified(directory)
    suite.figure("programs whose readers saw what they see natively", f"{COUNT} under each of {', '.join(kinds)}", str(COUNT))


# Memory of graphs and pools while what reads it is late, and children that free what they inherited.
POOLS = '''
import ctypes, os, signal, time, torch
M = 2**20
torch.manual_seed(0)
a = torch.randn(1024, 1024, device="cuda")
(a @ a).tanh().sum()  # cuBLAS takes its workspace outside of captures
torch.cuda.synchronize()
pool, graphs = torch.cuda.graph_pool_handle(), []
for k in range(4):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        t = a + k
        for _ in range(5):
            t = (t @ a).tanh()  # each frees the one before within the capture
        graphs.append((graph, t.sum()))
def replayed(k):
    graphs[k][0].replay()
    return float(graphs[k][1])
wanted, wrong = [replayed(k) for k in range(4)], 0
for i in range(60):
    beside = [torch.full((k * M,), 3.0, device="cuda") for k in range(1, 9)]
    if i % 7 == 0:
        torch.cuda.empty_cache()
    wrong += replayed(i % 4) != wanted[i % 4]
    del beside
print("result replays of graphs in one pool that differ:", wrong)

wrong = 0
for i in range(20):
    pool, side = torch.cuda.MemPool(), torch.cuda.Stream()
    with torch.cuda.stream(side), torch.cuda.use_mem_pool(pool):
        t = torch.full((16 * M,), float(i), device="cuda")
        u = t + 1
    outside = torch.empty(16 * M, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        v = u * 2  # behind the sleep, when the pool has ended
    del t, u, pool
    again = torch.full((16 * M,), -1.0, device="cuda")
    torch.cuda.empty_cache()
    side.synchronize()
    wrong += int((v != 2.0 * (i + 1)).sum())
    del v, again, outside
print("result values of pools that ended while their stream was busy:", wrong)

held, ended = [torch.full((M,), 5.0, device="cuda") for _ in range(8)], []
side = torch.cuda.Stream()
for i in range(6):
    with torch.cuda.stream(side):
        torch.cuda._sleep(40_000_000)
    child = os.fork()
    if child == 0:
        held.clear()  # inherited tensors
        del side
        os._exit(0) if i % 2 == 0 else ctypes.CDLL(None).exit(0)  # without and with the C library's exit handlers
    status, until = None, time.monotonic() + 10
    while status is None and time.monotonic() < until:
        done, code = os.waitpid(child, os.WNOHANG)
        status = code if done else None
        time.sleep(0.01)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    ended.append(status)
x = torch.full((64 * M,), 2.0, device="cuda")
print("result children", ended, "the parent", float(x[:10].sum()), bool((held[0] == 5.0).all()))
'''


@case
def pools_and_forks(suite):
    """Graphs in one pool beside other requests, pools that end while their stream is busy, and forks of a busy process: as natively."""
    for kind, flags in {"classic": (), "compact": ("--preset", "compact")}.items():
        suite.same(f"pools-{kind}", POOLS, *flags)


LARGE = '''
import time, torch
torch.cuda.init(); torch.empty(1, device="cuda"); torch.cuda.synchronize()
try:
    import memprof
except ImportError:
    memprof = None
def served(name, make):
    began = time.perf_counter()
    x = make()
    print("seconds", name, time.perf_counter() - began, flush=True)
    del x
    torch.cuda.empty_cache()
def plain(): return torch.empty(70 << 30, dtype=torch.uint8, device="cuda")
def pooled():
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()): return plain()
def tagged():
    with memprof.region("large"): return plain()
served("plain", plain)
served("again", plain)
served("pool", pooled)
if memprof is not None and memprof.recording(): served("tag", tagged)
'''


@alone
def large_requests(suite):
    """70 GiB in one request: plain, in a pool and under a tag."""
    command, wrong = suite.script("large", LARGE), []
    runs = {"native": suite.run(command)}
    for kind, flags in {"classic": (), "compact": ("--preset", "compact")}.items():
        runs[kind] = suite.record(f"large-{kind}", command, *flags)[1]
    for kind, done in runs.items():
        found = re.findall(r"^seconds (\w+) (\S+)$", done.stdout, re.M)
        if len(found) < 3:
            raise Failed(f"{kind}: {done.stdout}{done.stderr[-1000:]}")
        suite.figure(f"large: 70 GiB, {kind}", ", ".join(f"{name} {1e3 * float(seconds):.0f} ms" for name, seconds in found), "500 ms")
        wrong += [f"{kind} {name}: {float(seconds):.2f} s" for name, seconds in found if kind != "native" and float(seconds) > 0.5]
    if wrong:
        raise Failed("; ".join(wrong))
