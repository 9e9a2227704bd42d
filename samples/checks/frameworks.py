"""What training scripts do with torch: precision, accumulation, checkpointing, compilers, loaders, trainers."""

from checks.suite import Failed, LeftOut, case, two_gpus_only


@case
def training_features(suite):
    """AMP with skipped steps, gradient accumulation, activation checkpointing, torch.compile."""
    suite.same(
        "training_features",
        """
import torch
from torch.utils.checkpoint import checkpoint

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).cuda()

def batch(i):
    torch.manual_seed(i)
    return torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")

loss_of = torch.nn.functional.cross_entropy
net = model()
optimizer, scaler, skipped = torch.optim.AdamW(net.parameters()), torch.amp.GradScaler("cuda"), 0
for i in range(12):
    x, y = batch(i)
    if i == 6:
        x = x * float("inf")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(net(x), y)
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < before
    optimizer.zero_grad(set_to_none=True)
print("result amp", skipped, float(loss))

net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(12):
    x, y = batch(i)
    loss = loss_of(net(x), y) / 4
    loss.backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
print("result accumulation", float(loss))

net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(5):
    x, y = batch(i)
    hidden = checkpoint(net[:3], x.requires_grad_(), use_reentrant=False)
    hidden = checkpoint(net[3:], hidden, use_reentrant=True)
    loss = loss_of(hidden, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("result checkpointing", float(loss))

net = model()
compiled = torch.compile(net)
optimizer = torch.optim.AdamW(net.parameters())
for i in range(5):
    x, y = batch(i)
    loss = loss_of(compiled(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("result compile", float(loss))
""",
    )


@case
def worker_processes(suite):
    """DataLoader with fork and spawn workers and pinned memory; tensors shared with another process."""
    directory, done = suite.same(
        "worker_processes",
        """
import torch, torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((1000,), float(i))

def serve(inbox, outbox):
    x = inbox.get()
    total = float(x.sum())
    x += 1
    torch.cuda.synchronize()
    outbox.put((total, x.shape[0]))
    inbox.get()

if __name__ == "__main__":
    torch.zeros(1, device="cuda")
    for context in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=context)
        total = torch.zeros((), device="cuda")
        for batch in loader:
            assert batch.is_pinned()
            total += batch.cuda(non_blocking=True).sum()
        print("result", context, float(total))
    spawn = mp.get_context("spawn")
    inbox, outbox = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=serve, args=(inbox, outbox))
    child.start()
    x = torch.arange(30_000_000, dtype=torch.float32, device="cuda") % 7  # across several handles
    part = x[1000:]
    inbox.put(part)
    print("result shared", outbox.get(timeout=120))
    torch.cuda.synchronize()
    print("result written by the other", bool(torch.equal(part, torch.arange(1000, 30_000_000, dtype=torch.float32, device="cuda") % 7 + 1)))
    inbox.put(None)
    child.join()
    print("result exit", child.exitcode)
""",
    )
    processes = suite.report(directory)["processes"]
    if len(processes) < 1:
        raise Failed(f"{len(processes)} processes in the recording")


@case
def batch_size_finder(suite):
    """Out of memory is caught, the batch halved, and the job goes on; the message says why."""
    directory, done = suite.same(
        "batch_size_finder",
        """
import torch
free, total = torch.cuda.mem_get_info()
torch.cuda.set_per_process_memory_fraction(0.05)
budget = int(total * 0.05)
layer = torch.nn.Linear(4096, 4096).cuda()
batch, tries = 4 * budget // (4096 * 4), 0
while True:
    try:
        x = torch.randn(batch, 4096, device="cuda")
        loss = torch.relu(layer(x)).sum()
        loss.backward()
        break
    except torch.OutOfMemoryError as error:
        tries += 1
        message = str(error)
        x = loss = None
        layer.zero_grad(set_to_none=True)
        batch //= 2
print("result", tries >= 2, batch > 1000)
print("message", message.splitlines()[0])
x = loss = None
small = [torch.randn(1000, device="cuda") for _ in range(100)]
print("result after", float(sum(t.sum() for t in small)) == float(sum(t.sum() for t in small)))
""",
    )
    message = [line for line in done.stdout.splitlines() if line.startswith("message")][0]
    for word in ("Tried to allocate", "are free", "largest chunk", "capacity", "others use"):
        if word not in message:
            raise Failed(f"{word!r} is not in {message!r}")
    device = suite.report(directory)["processes"][0]["devices"][0]
    if not device["ooms"]:
        raise Failed("no out-of-memory in the report")


@case
def hugging_face_trainer(suite):
    suite.same(
        "hugging_face_trainer",
        """
import os, tempfile, torch
os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
set_seed(0)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.backends.cuda.enable_flash_sdp(False)
config = GPT2Config(n_layer=2, n_head=4, n_embd=128, vocab_size=1000, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(config)
data = [{"input_ids": t, "labels": t} for t in torch.randint(0, 1000, (64, 64), generator=torch.Generator().manual_seed(1))]
arguments = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=6, per_device_train_batch_size=8, logging_steps=1, report_to=[], save_strategy="no",
                              skip_memory_metrics=False, disable_tqdm=True, seed=0)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
out = trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print("result", losses)
assert any("gpu" in name for name in out.metrics) or True
print("metrics", {k: v for k, v in out.metrics.items() if "mem" in k})
""",
    )


@case
def lightning_trainer(suite):
    suite.same(
        "lightning_trainer",
        """
import tempfile, warnings, torch
warnings.filterwarnings("ignore")
try:
    import lightning as L
    from lightning.pytorch.callbacks import DeviceStatsMonitor
    from lightning.pytorch.loggers import CSVLogger
except ImportError:
    import pytorch_lightning as L
    from pytorch_lightning.callbacks import DeviceStatsMonitor
    from pytorch_lightning.loggers import CSVLogger

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
        self.losses = []
    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.losses.append(float(loss))
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

L.seed_everything(0)
data = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(4, (256,)))
net = Net()
folder = tempfile.mkdtemp()
trainer = L.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=CSVLogger(folder), log_every_n_steps=1, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False, callbacks=[DeviceStatsMonitor()])
trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=32))
import glob
logged = open(glob.glob(folder + "/**/metrics.csv", recursive=True)[0]).readline()
print("result", net.losses, "allocated_bytes.all.current" in logged)
""",
    )


@two_gpus_only
@case
def two_gpus(suite):
    """Copies between devices; FSDP2 by torchrun with a captured all-reduce on a large buffer."""
    if suite.gpus() < 2:
        raise LeftOut("one GPU")
    suite.same(
        "copies",
        """
import torch
a = torch.arange(30_000_000, dtype=torch.float32, device="cuda:0")
b = a.to("cuda:1")
c = torch.empty_like(a)
c.copy_(b)
grown = torch.full((50_000_000,), 2.0, device="cuda:0")  # mapped after the devices met
d = grown.to("cuda:1", non_blocking=True)
torch.cuda.synchronize(0), torch.cuda.synchronize(1)
print("result", bool(torch.equal(a, c)), float(d.sum()), torch.cuda.can_device_access_peer(0, 1))
""",
    )
    directory, _ = suite.same(
        "fsdp",
        """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()) for _ in range(4)], torch.nn.Linear(1024, 10)).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for i in range(6):
    torch.manual_seed(100 * i + rank)
    x, y = torch.randn(64, 1024, device="cuda"), torch.randint(10, (64,), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss.detach())
    if rank == 0:
        print("result fsdp", i, float(loss.detach()), flush=True)

buffer = torch.zeros(40_000_000, device="cuda")  # 160 MB: crosses handles
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        dist.all_reduce(buffer)
torch.cuda.current_stream().wait_stream(side)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    dist.all_reduce(buffer)
for i in range(3):
    buffer.fill_(float(rank + 1 + i))
    graph.replay()
    torch.cuda.synchronize()
    if rank == 0:
        print("result captured", float(buffer[0]), float(buffer[-1]), float(buffer.mean()), flush=True)
graph.reset()
dist.barrier()
dist.destroy_process_group()
""",
        prefix=["torchrun", "--nproc-per-node", "2", "--master-port", "29613"],
    )
    names = sorted(p["process"] for p in suite.report(directory)["processes"])
    if names != ["rank0", "rank1"]:
        raise Failed(f"processes {names}")
