"""Write small memory snapshots of a job with streams, a private pool and a failed request.

usage: snapshots.py OUT NAME     (NAME: native or expandable; sets PYTORCH_CUDA_ALLOC_CONF itself)

OUT/NAME.pickle has the whole history, OUT/NAME-cut.pickle the newest 300 entries of it, and
OUT/NAME.json what torch's own counters say at both moments.
"""
import json, os, sys

out, name = sys.argv[1:]
if name == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch

truth = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
memory = torch.cuda.memory
memory._record_memory_history(enabled="all", context="all", stacks=os.environ.get("STACKS", "all"), max_entries=100_000)


def dump(path):
    torch.cuda.synchronize()
    memory._dump_snapshot(os.path.join(out, path))
    stats = torch.cuda.memory_stats(0)
    keys = [f"{n}_bytes.all.{w}" for n in ("allocated", "active", "reserved", "requested", "inactive_split") for w in ("current", "peak")]
    truth[path] = {k: stats[k] for k in keys if k in stats} | {"ooms": stats["num_ooms"], "retries": stats["num_alloc_retries"]}


def step(model, optimizer, x):
    with torch.profiler.record_function("forward"):
        y = model(x)
    y.backward(torch.ones_like(y))
    optimizer.step()
    optimizer.zero_grad()


side = torch.cuda.Stream()


class Scale(torch.nn.Module):
    """Multiplies by its weight: no library but torch allocates for it."""

    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3000, width))

    def forward(self, x):
        return x * self.weight[: x.shape[0]]


model = torch.nn.Sequential(Scale(512), torch.nn.ReLU(), Scale(512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=os.environ.get("FOREACH") != "0")
for i in range(3):
    step(model, optimizer, torch.ones(256, 512, device="cuda"))
    with torch.cuda.stream(side):
        shared = torch.empty(3_000_000, device="cuda").fill_(1)
    shared.record_stream(torch.cuda.current_stream())
    use = shared * 2
    del shared, use

# A private pool: a captured graph, kept; and one that is released before the snapshot.
for keep in (False, True):
    graph = torch.cuda.CUDAGraph()
    static = torch.ones(64, 512, device="cuda")
    with torch.no_grad():
        model(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            result = model(static)
    graph.replay()
    if not keep:
        del graph, result
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

try:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        pooled = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
except Exception as e:  # a torch without pools of its own
    truth["pool"] = repr(e)

try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as e:
    truth["oom"] = str(e)[:80]
torch.cuda.empty_cache()
for i in range(2):
    step(model, optimizer, torch.ones(200 + 50 * i, 512, device="cuda"))
last = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 511, 513, 100_000, 1_500_000, 11_000_001)]
dump(f"{name}.pickle")

memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=300)
for i in range(4):
    step(model, optimizer, torch.ones(100 + 77 * i, 512, device="cuda"))
dump(f"{name}-cut.pickle")
with open(os.path.join(out, name + ".json"), "w") as f:
    json.dump(truth, f, indent=1)
print(name, json.dumps(truth))
