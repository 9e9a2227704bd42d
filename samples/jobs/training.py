"""The common part of the sample jobs: options, determinism, the training loop, and its log.

The jobs use nothing of memprof. For each iteration they print the loss in hexadecimal, so that two
runs can be compared bit by bit, and the peaks of torch's own statistics: bytes requested, allocated
and reserved. The step time and the peaks of the whole run come last.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
import warnings

# cuBLAS is deterministic only with a fixed workspace. It reads the setting when CUDA starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch


def options(description, batch):
    return parser(description, batch).parse_args()


def parser(description, batch):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in-turns", action="store_true", help="train for as many iterations as each line of standard input says, then wait for the next")
    parser.add_argument("--benchmark", action="store_true", help="let cudnn choose among all algorithms by measuring them: losses are no longer the same")
    return parser


def deterministic(opts):
    torch.manual_seed(opts.seed)
    torch.backends.cudnn.benchmark = opts.benchmark
    torch.backends.cudnn.deterministic = not opts.benchmark
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.use_deterministic_algorithms(not opts.benchmark, warn_only=True)
    # The backward pass of this attention adds in the order in which its blocks finish.
    torch.backends.cuda.enable_mem_efficient_sdp(False)


PEAKS = ("requested", "allocated", "reserved")


def peaks():
    """torch's peaks since the last call, in bytes, in the order of PEAKS."""
    stats = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    return [stats[f"{name}_bytes.all.peak"] for name in PEAKS]


def batch_of(opts, *tensors):
    """The tensors that each step copies to the device.

    Where steps are compared they are pinned, as a loader does it: the time of a copy out of pageable memory
    varies by a factor of two, which is more than the differences to be measured.
    """
    return [tensor.pin_memory() for tensor in tensors] if opts.in_turns else tensors


def await_file(path):
    """Waits until a file exists. The job has not used the card yet."""
    print("ready", flush=True)
    while not os.path.exists(path):
        time.sleep(0.01)


def until_file(path):
    """What train() asks before each iteration whether it is to stop: is the file there? None without a file."""
    return (lambda: os.path.exists(path)) if path else None


def turns(seconds):
    """Yields once for each iteration that standard input asks for. Prints the steps of each turn, in ms, at its end."""
    for line in sys.stdin:
        yield from range(int(line))
        print("turn " + " ".join(f"{1e3 * step:.4f}" for step in seconds[-int(line) :]), flush=True)


def train(step, opts, until=None):
    """Calls step() opts.iterations times, or in turns, or until until(); each returns the loss as a tensor."""
    seconds, most = [], [0, 0, 0]
    if opts.in_turns:
        wanted = turns(seconds)
    elif until:
        wanted = itertools.takewhile(lambda _: not until(), itertools.count())
    else:
        wanted = range(opts.iterations)
    for _ in wanted:
        start = time.perf_counter()
        loss = step().item()  # waits for the device
        seconds.append(time.perf_counter() - start)
        found = peaks()
        most = [max(pair) for pair in zip(most, found)]
        print(f"iteration {len(seconds) - 1} loss {loss.hex()}")
        print(f"memory {len(seconds) - 1} " + " ".join(f"{name} {value}" for name, value in zip(PEAKS, found)), flush=True)
    steady = seconds[len(seconds) // 4 :]
    print(f"step {statistics.median(steady) * 1e3:.3f} ms")
    print(f"memory peak {most[1]} allocated {most[2]} reserved")


def classify(description, build, batch):
    """A whole job: trains the image classifier that build() makes, by SGD with momentum."""
    opts = options(description, batch)
    deterministic(opts)
    model = build().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = batch_of(opts, torch.randn(opts.batch, 3, 224, 224), torch.randint(1000, (opts.batch,)))

    def step():
        loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    train(step, opts)
