"""Jobs for the verdict on leaks, on the simulated GPU: `python3 jobs.py NAME`. Those of LEAKS leak in the line that names them."""

import ctypes
import gc
import os
import queue
import random
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import memprof  # noqa: E402
from tensors import K, M, Layer, Tensor, driver, hook  # noqa: E402

STEPS = 40
random.seed(39)


class Model:
    def __init__(self, layers=4):
        self.layers = [Layer("layers.%d" % i) for i in range(layers)]

    def forward(self, x):
        x = self.layers[0](x)
        x = self.layers[1](x)
        for layer in self.layers[2:]:
            x = layer(x)
        return Tensor(4, (x,))

    def train(self, x):
        """One step, whose loss is returned."""
        with memprof.phase("forward"):
            loss = self.forward(x)
        with memprof.phase("backward"):
            for layer in reversed(self.layers):
                layer.backward()
        return loss

    def step(self):
        with memprof.phase("optimizer"):
            for layer in self.layers:
                layer.step()
        for layer in self.layers:
            layer.grad = None


def job(run):
    """A job that trains a model, and calls run(step, model, loss) in each step before it ends."""

    def main():
        model = Model()
        for step in range(STEPS):
            loss = model.train(Tensor(M))
            loss.parents = ()  # backward frees the graph
            run(step, model, loss)
            model.step()
            del loss
            memprof.iteration()

    main.__name__ = run.__name__
    return main


kept = []

# ---- Jobs that leak.


@job
def losses(step, model, loss):
    kept.append(Tensor(4))  # leaks: losses


@job
def closure(step, model, loss):
    data = Tensor(100 * K)  # leaks: closure
    kept.append(lambda: data)


def graph():
    model = Model()
    for _ in range(STEPS):
        x = Tensor(M)
        kept.append(model.forward(x))  # leaks: graph
        memprof.iteration()


@job
def exception(step, model, loss):
    def fails():
        batch = Tensor(200 * K)  # leaks: exception
        raise ValueError(batch.size)

    try:
        fails()
    except ValueError as error:
        kept.append(error)


batches = queue.Queue()


@job
def loader(step, model, loss):
    for _ in range(2):
        batches.put(Tensor(M // 2))  # leaks: loader
    batches.get()


def forward_hook():
    model, outputs = Model(), []
    model.layers[2].hooks.append(lambda out: outputs.append(Tensor(out.size)))  # leaks: forward_hook
    for _ in range(STEPS):
        model.train(Tensor(M)).parents = ()
        model.step()
        memprof.iteration()


cache = {}


@job
def growing_cache(step, model, loss):
    cache[step] = Tensor(random.randrange(10, 90) * K)  # leaks: growing_cache


@job
def graph_output(step, model, loss):
    if step == 0:
        hook.memprof_pool_begin(0, 0, 7)
        cache["output"] = Tensor(64 * K, pool=(0, 7))
        hook.memprof_pool_end(0, 0, 7)
    kept.append(Tensor(cache["output"].size))  # leaks: graph_output


def generate():
    model, history = Model(), Tensor(K)
    for _ in range(STEPS):
        model.forward(Tensor(M)).parents = ()
        history = Tensor(history.size + 64 * K)  # leaks: generate
        memprof.iteration()


class Metric:
    def __init__(self):
        self.predictions = []

    def update(self):
        self.predictions.append(Tensor(10 * K))  # leaks: metric_object


metric = Metric()


@job
def metric_object(step, model, loss):
    if step % 2:
        metric.update()


@job
def average_of_averages(step, model, loss):
    for layer in model.layers:
        kept.append(Tensor(layer.size))  # leaks: average_of_averages


running = []


@job
def running_mean(step, model, loss):
    running[:] = [Tensor(512, tuple(running))]  # leaks: running_mean


class Node:
    def __init__(self):
        self.data = Tensor(M)  # leaks: cycle
        self.me = self


@job
def cycle(step, model, loss):
    gc.disable()
    Node()


@job
def extension(step, model, loss):
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 * M)) == 0


LEAKS = [
    losses, closure, graph, exception, loader, forward_hook, growing_cache, graph_output, generate, metric_object, average_of_averages,
    running_mean, cycle, extension,
]  # fmt: skip

# ---- Jobs that do not.


@job
def warm_up(step, model, loss):
    if step < 9:
        kept.append(Tensor(M))


def thawing():
    model = Model(16)
    for layer in model.layers:
        layer.frozen = True
    for step in range(STEPS):
        if step % 2 == 0 and step // 2 < 16:
            model.layers[15 - step // 2].frozen = False
        model.train(Tensor(M)).parents = ()
        with memprof.phase("optimizer"):
            for layer in model.layers:
                layer.step()
        memprof.iteration()


def lazy_state():
    model = Model(20)
    for step in range(STEPS):
        model.train(Tensor(M)).parents = ()
        with memprof.phase("optimizer"):
            model.layers[step // 2].step()  # one layer at a time
        for layer in model.layers:
            layer.grad = None
        memprof.iteration()


@job
def captured(step, model, loss):
    if step % 2 == 0:
        hook.memprof_pool_begin(0, 0, 1 + step)
        kept.append(Tensor(512 * K, pool=(0, 1 + step)))
        hook.memprof_pool_end(0, 0, 1 + step)


@job
def bounded_cache(step, model, loss):
    if len(cache) < 26:
        cache[step] = Tensor(300 * K)


@job
def oldest_out(step, model, loss):
    cache[step] = Tensor(random.randrange(100, 400) * K)
    if len(cache) > 16:
        del cache[min(cache)]


def curriculum():
    model, following = Model(), Tensor(64 * K)
    for step in range(STEPS):
        batch, following = following, Tensor((2 + step) * 64 * K)
        model.train(batch).parents = ()
        model.step()
        memprof.iteration()


@job
def evaluation(step, model, loss):
    if step % 5 == 4:
        kept[:] = [Tensor(M) for _ in range(10)]
    elif step % 5 == 0:
        kept.clear()


def accumulation():
    model = Model()
    for step in range(STEPS):
        model.train(Tensor(M)).parents = ()
        kept.append(Tensor(256 * K))
        if step % 4 == 3:
            model.step()
            kept.clear()
        memprof.iteration()


@job
def replay_buffer(step, model, loss):
    kept.append(Tensor(700 * K))
    del kept[:-20]


@job
def average(step, model, loss):
    if step in (5, 15):
        kept.extend(Tensor(layer.size) for layer in model.layers)


@job
def checkpoints(step, model, loss):
    if step % 10 == 9:
        kept[:] = [Tensor(layer.size) for layer in model.layers]


@job
def collected_late(step, model, loss):
    gc.disable()
    Node()
    if step % 7 == 6:
        gc.collect()


def ragged():
    model, following = Model(), [Tensor(M)]
    for _ in range(STEPS):
        model.train(following.pop(0)).parents = ()
        following.append(Tensor(random.randrange(1, 64) * 64 * K))
        model.step()
        memprof.iteration()


SOUND = [
    warm_up, thawing, lazy_state, captured, bounded_cache, oldest_out, curriculum, evaluation, accumulation, replay_buffer, average,
    checkpoints, collected_late, ragged,
]  # fmt: skip

if __name__ == "__main__":
    {run.__name__: run for run in LEAKS + SOUND}[sys.argv[1]]()
    kept.clear()
    cache.clear()
