"""JAX, CuPy and numba: their results with and without memprof, and served by it."""

from checks.side_by_side import MIB, demand_library, judged, results
from checks.suite import Failed, case


# Nothing is freed, so that the accounting at the end has it.
END = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def with_and_without(suite, name, text, environment=()):
    """Runs a script natively, recorded, and served. Returns the reports of the recorded and the served run."""
    job = ["env", *environment, *suite.script(name, text + END)]

    def native():
        return results(suite.run(job).stdout)

    reports = []
    for how, flags in (("observed", ()), ("served", ("--serve",))):
        directory, done = suite.record(f"{name}-{how}", job, *flags)
        suite.lines.append(f"  {name}, {how}: {judged(f'{name}, {how}', native, results(done.stdout))}")
        if how == "served":
            suite.verified(directory)
        reports.append(suite.report(directory))
    return reports


def demand_served(name, report, least):
    """Checks that memprof's arenas had at least so many bytes."""
    served = sum(device["max_requested"] for process in report["processes"] for device in process["devices"])
    if served < least:
        raise Failed(f"{name}: {served / MIB:.1f} MiB were served at most, at least {least / MIB:.1f} expected")


@case
def jax_training(suite):
    """JAX: a network trained with optax, compiled step and donated buffers."""
    observed, served = with_and_without(
        suite,
        "jax_training",
        """
import jax, optax
import jax.numpy as jnp
sizes = [512, 2048, 2048, 512]
keys = jax.random.split(jax.random.key(0), len(sizes))
weights = [jax.random.normal(k, (a, b)) / a**0.5 for k, a, b in zip(keys, sizes, sizes[1:])]
optimizer = optax.adamw(1e-3)
state = optimizer.init(weights)

def loss_of(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean((x - 0.5) ** 2)

def step(weights, state, x):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss
step = jax.jit(step, donate_argnums=(0, 1))

for i in range(20):
    weights, state, loss = step(weights, state, jax.random.normal(jax.random.key(i), (1024, 512)))
    print("result", i, float(loss))
print("result", float(sum(jnp.sum(jnp.abs(w)) for w in weights)), flush=True)
""",
        ["XLA_PYTHON_CLIENT_PREALLOCATE=false", "XLA_FLAGS=--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"],
    )
    least = 3 * 4 * (512 * 2048 + 2048 * 2048 + 2048 * 512)  # weights and two moments
    demand_served("jax_training", served, least)
    demand_library("jax_training", observed, "xla_cuda", least, "end")


@case
def cupy_arrays(suite):
    """CuPy: products, transforms, kernels, its pool and streams."""
    observed, served = with_and_without(
        suite,
        "cupy_arrays",
        """
import cupy
cupy.random.seed(0)
scaled = cupy.RawKernel('extern "C" __global__ void scaled(float *p, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] *= by; }', "scaled")
streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
kept = cupy.arange(8 << 20, dtype=cupy.float32)
for i in range(10):
    with streams[i % 2]:
        a = cupy.arange((1 << 20) + i * 4096, dtype=cupy.float32) / (1 << 20)
        scaled((a.size // 256 + 1,), (256,), (a, cupy.float32(i + 1), cupy.int32(a.size)))
        b = cupy.fft.irfft(cupy.fft.rfft(a[: 1 << 18]) * 0.5)
        c = a[: 1 << 20].reshape(1024, 1024)
        d = c @ c.T
        streams[i % 2].synchronize()
        print("result", i, float(a.astype("f8").sum()), float(b.astype("f8").sum()), float(d.astype("f8").sum()), float(cupy.sort(a)[12345]))
cupy.get_default_memory_pool().free_all_blocks()
print("result", float(kept.astype("f8").sum()), cupy.get_default_memory_pool().used_bytes() == kept.nbytes, flush=True)
""",
    )
    demand_served("cupy_arrays", served, 32 * MIB)
    demand_library("cupy_arrays", observed, "", 32 * MIB, "end")


@case
def numba_kernels(suite):
    """numba: kernels on device, pinned and mapped arrays, streams."""
    observed, served = with_and_without(
        suite,
        "numba_kernels",
        """
import numpy
if not hasattr(numpy, "row_stack"):  # numba-cuda 0.30 asks for it, numpy 2.5 has it no more
    numpy.row_stack = numpy.vstack
from numba import cuda
@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]
@cuda.reduce
def add(a, b):
    return a + b
n = 1 << 20
stream = cuda.stream()
kept = cuda.to_device(numpy.arange(8 << 20, dtype=numpy.float32))
for i in range(10):
    x, y = cuda.pinned_array(n, dtype=numpy.float64), numpy.ones(n)
    x[:] = numpy.arange(n) / n
    there, sums = cuda.to_device(x, stream=stream), cuda.to_device(y, stream=stream)
    axpy[n // 256, 256, stream](float(i), there, sums)
    back = sums.copy_to_host(stream=stream)
    stream.synchronize()
    print("result", i, float(back.sum()), float(add(cuda.to_device(numpy.arange(100000.0)))))
print("result", float(kept.copy_to_host()[-1]), flush=True)
""",
    )
    demand_served("numba_kernels", served, 32 * MIB)
    demand_library("numba_kernels", observed, "", 32 * MIB, "end")
