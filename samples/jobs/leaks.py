"""Small training jobs for the verdict on leaks: the first 14 leak, each in the line that names it, the other 14 do not.

    python3 samples/jobs/leaks.py --job closure
    python3 samples/jobs/leaks.py --list

They are those of cmd/memprof/testdata/leaks, which run on the simulated GPU, as PyTorch programs.
"""

import argparse
import ctypes
import gc
import queue
import random

import torch
from torch import nn

STEPS, WIDTH, BATCH = 40, 512, 256
kept, cache = [], {}


class Model(nn.Sequential):
    """Its layers' memory is of the line that calls it: no line between is the user's."""

    def __init__(self, layers=4):
        super().__init__(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(layers)])


def batch(rows=BATCH):
    return torch.randn(rows, WIDTH, device="cuda")


def trained(model, optimizer, x):
    """One step but for what the optimizer does."""
    optimizer.zero_grad()
    out = model(x)
    loss = out.square().mean()
    loss.backward()
    return out.detach(), loss.detach()


def job(run):
    """A job that trains a model, and calls run(step, model, out, loss) in each step before the optimizer's."""

    def main():
        model = Model().cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(STEPS):
            out, loss = trained(model, optimizer, batch())
            run(step, model, out, loss)
            optimizer.step()

    main.__name__ = run.__name__
    return main


# --- jobs that leak ------------------------------------------------------------------------------------------------


@job
def losses(step, model, out, loss):
    kept.append(loss + 0)  # leaks: losses


@job
def closure(step, model, out, loss):
    data = out * 2  # leaks: closure
    kept.append(lambda: data)


def graph():
    import memprof

    model = Model().cuda()
    for _ in range(STEPS):
        kept.append(model(batch()).sum())  # leaks: graph
        memprof.iteration()


@job
def exception(step, model, out, loss):
    def fails():
        batches = torch.cat([out] * 8)  # leaks: exception
        raise ValueError(batches.shape)

    try:
        fails()
    except ValueError as error:
        kept.append(error)


batches = queue.Queue()


@job
def loader(step, model, out, loss):
    for _ in range(2):
        batches.put(torch.zeros(BATCH, WIDTH, device="cuda"))  # leaks: loader
    batches.get()


def forward_hook():
    model, outputs = Model().cuda(), []
    model[2].register_forward_hook(lambda module, given, out: outputs.append(out.detach().clone()))  # leaks: forward_hook
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        trained(model, optimizer, batch())
        optimizer.step()


@job
def growing_cache(step, model, out, loss):
    cache[step] = torch.zeros(random.randrange(10, 90) << 10, device="cuda")  # leaks: growing_cache


def captured_graph(rows):
    """A graph that squares its input, and its output. All graphs have one input."""
    if "input" not in cache:
        cache["input"] = batch()
    torch.cuda.synchronize()
    found = torch.cuda.CUDAGraph()
    with torch.cuda.graph(found):
        out = cache["input"][:rows].square()
    return found, out


@job
def graph_output(step, model, out, loss):
    if step == 0:
        cache["graph"] = captured_graph(BATCH)
    replayed, squares = cache["graph"]
    replayed.replay()
    kept.append(squares.clone())  # leaks: graph_output


@torch.no_grad()
def generate():
    import memprof

    model, history = Model().cuda(), torch.zeros(8, WIDTH, device="cuda")
    for _ in range(STEPS):
        new = model(history[-8:])
        history = torch.cat((history, new))  # leaks: generate
        memprof.iteration()


class Metric:
    def __init__(self):
        self.predictions = []

    def update(self, out):
        self.predictions.append(out.argmax(-1))  # leaks: metric_object


metric = Metric()


@job
def metric_object(step, model, out, loss):
    if step % 2:
        metric.update(out)


@job
def average_of_averages(step, model, out, loss):
    before = kept[-1] if kept else list(model.parameters())
    kept.append([torch.lerp(a, p.detach(), 0.1) for a, p in zip(before, model.parameters())])  # leaks: average_of_averages


@job
def running_mean(step, model, out, loss):
    mean = cache.get("mean", torch.ones((), device="cuda", requires_grad=True))
    cache["mean"] = torch.tanh(mean + model[0][0].bias * loss)  # leaks: running_mean


class Node:
    def __init__(self):
        self.data = torch.zeros(BATCH, WIDTH, device="cuda")  # leaks: cycle
        self.me = self


@job
def cycle(step, model, out, loss):
    gc.disable()
    Node()


@job
def extension(step, model, out, loss):
    address = ctypes.c_uint64()
    if ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 20)) != 0:
        raise RuntimeError("cuMemAlloc failed")


LEAKS = [
    losses, closure, graph, exception, loader, forward_hook, growing_cache, graph_output, generate, metric_object, average_of_averages,
    running_mean, cycle, extension,
]  # fmt: skip

# --- jobs that do not ----------------------------------------------------------------------------------------------


@job
def warm_up(step, model, out, loss):
    if step < 9:
        kept.append(batch())


def thawing():
    """Layers thaw one after another, from the last."""
    model = Model(16).cuda().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(STEPS):
        if step % 2 == 0 and step // 2 < 16:
            model[15 - step // 2].requires_grad_()
        trained(model, optimizer, batch())
        optimizer.step()


def lazy_state():
    """An optimizer for each layer, of which each makes its state when its turn comes."""
    import memprof

    model = Model(20).cuda()
    optimizers = [torch.optim.Adam(layer.parameters()) for layer in model]
    for step in range(STEPS):
        model.zero_grad()
        model(batch()).square().mean().backward()
        optimizers[step // 2].step()
        memprof.iteration()  # several optimizers: which of them ends an iteration, nobody but the script knows


@job
def captured(step, model, out, loss):
    if step % 2 == 0:
        kept.append(captured_graph(64 + 4 * step))


@job
def bounded_cache(step, model, out, loss):
    if len(cache) < 26:
        cache[step] = batch()


@job
def oldest_out(step, model, out, loss):
    cache[step] = torch.zeros(random.randrange(100, 400) << 10, device="cuda")
    if len(cache) > 16:
        del cache[min(cache)]


def curriculum():
    model = Model().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(STEPS):
        trained(model, optimizer, batch(32 * (2 + step)))
        optimizer.step()


@job
def evaluation(step, model, out, loss):
    if step % 5 == 4:
        with torch.no_grad():
            kept[:] = [model(batch()) for _ in range(10)]
    elif step % 5 == 0:
        kept.clear()


def accumulation():
    model = Model().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(STEPS * 2):
        out = model(batch())
        out.square().mean().backward()
        kept.append(out.detach())
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
            kept.clear()


@job
def replay_buffer(step, model, out, loss):
    kept.append(out * 2)
    del kept[:-20]


@job
def average(step, model, out, loss):
    if step in (5, 15):
        kept.extend(p.detach().clone() for p in model.parameters())


@job
def checkpoints(step, model, out, loss):
    if step % 10 == 9:
        kept[:] = [p.detach().clone() for p in model.parameters()]


@job
def collected_late(step, model, out, loss):
    gc.disable()
    Node()
    if step % 7 == 6:
        gc.collect()


def ragged():
    model = Model().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        trained(model, optimizer, batch(random.randrange(1, 64) * 16))
        optimizer.step()


SOUND = [
    warm_up, thawing, lazy_state, captured, bounded_cache, oldest_out, curriculum, evaluation, accumulation, replay_buffer, average,
    checkpoints, collected_late, ragged,
]  # fmt: skip

if __name__ == "__main__":
    jobs = {run.__name__: run for run in LEAKS + SOUND}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=list(jobs))
    parser.add_argument("--list", action="store_true", help="list the jobs, those that leak first")
    opts = parser.parse_args()
    if opts.list or not opts.job:
        for run in LEAKS + SOUND:
            print(run.__name__, "leak" if run in LEAKS else "none")
    else:
        random.seed(39)
        jobs[opts.job]()
