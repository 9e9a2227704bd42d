"""Memory of programs and libraries other than torch: observed by name, and served with --serve."""

import json
import os
import shutil
import subprocess

from checks.suite import Failed, case, first_process

MIB = 2**20


def nvcc():
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(found):
        raise Failed("no nvcc on PATH nor in /usr/local/cuda/bin")
    return found


def compiled(suite, name, text, *flags):
    """A CUDA program of a few lines, compiled here."""
    source, program = os.path.join(suite.work, name + ".cu"), os.path.join(suite.work, name)
    with open(source, "w") as f:
        f.write(text)
    done = subprocess.run([nvcc(), "-O1", "-o", program, source, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"nvcc {name}: exit {done.returncode}\n{done.stdout[-3000:]}")
    return program


def device_of(suite, directory):
    devices = first_process(suite.report(directory))["devices"]
    if len(devices) != 1:
        raise Failed(f"one device expected in {directory}, found {[d['device'] for d in devices]}")
    return devices[0]


def left(device):
    """The device accounting at the end: bytes of each library, and what is in no sum."""
    end = device["accounting"]["end"]
    return {library["library"]: library["bytes"] for library in end["libraries"]}, end


def demand(what, found, expected):
    if found != expected:
        raise Failed(f"{what}: {found}, expected {expected}")


def demand_context(end):
    """Checks that the size of the CUDA context was measured by itself."""
    if end["context"] < 50 * MIB or end["context"] > 2048 * MIB:
        raise Failed(f"a context of {end['context'] / MIB:.0f} MiB was measured: {json.dumps(end)}")
    if end["context_is_all"]:
        raise Failed(f"the context was not measured apart from the rest of the device's memory: {json.dumps(end)}")


# Does not free its memory, so that the accounting at the end has it.
RUNTIME = """
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \\
  fprintf(stderr, "%s:%d: %s: %s\\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); exit(1); } } while (0)
const size_t M = 1 << 20;
__global__ void fill(char *p, size_t n) { for (size_t i = threadIdx.x; i < n; i += blockDim.x) p[i] = 7; }
int main() {
  void *a, *b, *c, *managed, *host, *flagged, *gone;
  size_t pitch;
  cudaArray_t array;
  cudaStream_t stream;
  cudaMemPool_t pool;
  CHECK(cudaMalloc(&a, 64 * M));
  CHECK(cudaMallocManaged(&managed, 8 * M));
  CHECK(cudaMallocHost(&host, 16 * M));
  CHECK(cudaHostAlloc(&flagged, 4 * M, cudaHostAllocMapped));
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocAsync(&b, 32 * M, stream));
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaMallocFromPoolAsync(&c, 10 * M, pool, stream));
  void *pitched;
  CHECK(cudaMallocPitch(&pitched, &pitch, 1000, 1000));
  cudaChannelFormatDesc desc = cudaCreateChannelDesc<float4>();
  CHECK(cudaMallocArray(&array, &desc, 512, 256));
  CHECK(cudaMalloc(&gone, 100 * M));
  CHECK(cudaFree(gone));
  CHECK(cudaMallocAsync(&gone, 50 * M, stream));
  CHECK(cudaFreeAsync(gone, stream));
  CHECK(cudaMallocHost(&gone, 3 * M));
  CHECK(cudaFreeHost(gone));
  fill<<<1, 256>>>((char *)a, 64 * M);
  CHECK(cudaDeviceSynchronize());
  printf("pitch %zu\\n", pitch);
  fflush(stdout);
  _Exit(0);
}
"""


def runtime_program(suite, name, cudart):
    program = compiled(suite, name, RUNTIME, "-cudart", cudart)
    directory, done = suite.record("observed-" + name, [program])
    pitch = int(done.stdout.split("pitch ")[1])
    device = device_of(suite, directory)
    libraries, end = left(device)
    demand(f"{name}: bytes by library at the end", libraries, {name: (64 + 32 + 10) * MIB + pitch * 1000 + 512 * 256 * 16})
    demand(f"{name}: host memory", end["host_pinned"], 20 * MIB)
    demand(f"{name}: managed memory", end["managed"], 8 * MIB)
    # The runtime may allocate for itself, too.
    if not 11 + 3 <= device["other_libraries"]["calls"] <= 20:
        raise Failed(f"{name}: {device['other_libraries']['calls']} calls were seen, 11 allocations and 3 frees made")
    demand_context(end)


@case
def watch_runtime_shared(suite):
    """A program on the runtime API, linked with libcudart.so."""
    runtime_program(suite, "runtime_shared", "shared")


@case
def watch_runtime_static(suite):
    """The same with the runtime linked statically: only its calls of the driver can be observed."""
    runtime_program(suite, "runtime_static", "static")


DRIVER = """
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <dlfcn.h>
#include <cuda.h>
#define CHECK(call) do { CUresult e = (call); if (e != CUDA_SUCCESS) { \\
  fprintf(stderr, "%s:%d: %s: %d\\n", __FILE__, __LINE__, #call, (int)e); exit(1); } } while (0)
const size_t M = 1 << 20;
int main() {
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUdeviceptr linked, looked_up, asked, by_version, stream_ordered, gone;
  CHECK(cuMemAlloc(&linked, 64 * M));
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  auto allocate = (CUresult(*)(CUdeviceptr *, size_t))dlsym(library, "cuMemAlloc_v2");
  CHECK(allocate(&looked_up, 32 * M));
  void *found = nullptr;
  CUdriverProcAddressQueryResult status;
  CHECK(cuGetProcAddress("cuMemAlloc", &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  CHECK(((CUresult(*)(CUdeviceptr *, size_t))found)(&asked, 16 * M));
  auto get = (CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))dlsym(library, "cuGetProcAddress_v2");
  CHECK(get("cuMemAlloc", &found, 11040, 0, &status));
  CHECK(((CUresult(*)(CUdeviceptr *, size_t))found)(&by_version, 8 * M));
  CHECK(get("cuMemAllocAsync", &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  CHECK(((CUresult(*)(CUdeviceptr *, size_t, CUstream))found)(&stream_ordered, 4 * M, nullptr));
  CHECK(cuMemAlloc(&gone, 100 * M));
  CHECK(cuMemFree(gone));

  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  CUmemGenericAllocationHandle kept, mapped, released;
  CUdeviceptr range;
  CHECK(cuMemCreate(&kept, 20 * M, &prop, 0));
  CHECK(cuMemCreate(&mapped, 40 * M, &prop, 0));
  CHECK(cuMemAddressReserve(&range, 80 * M, 0, 0, 0));
  CHECK(cuMemMap(range, 40 * M, 0, mapped, 0));
  CHECK(cuMemRelease(mapped));  // lives as long as it is mapped
  CHECK(cuMemCreate(&released, 60 * M, &prop, 0));
  CHECK(cuMemMap(range + 40 * M, 20 * M, 0, kept, 0));
  CHECK(cuMemRelease(released));
  void *host;
  CHECK(cuMemHostAlloc(&host, 12 * M, 0));
  printf("done\\n");
  fflush(stdout);
  _Exit(0);
}
"""


@case
def watch_driver_program(suite):
    """A program on the driver API: linked, dlsym, cuGetProcAddress, and memory management of its own."""
    program = compiled(suite, "driver_program", DRIVER, "-lcuda", "-ldl")
    directory, _ = suite.record("observed-driver", [program])
    device = device_of(suite, directory)
    libraries, end = left(device)
    demand("bytes by library at the end", libraries, {"driver_program": (64 + 32 + 16 + 8 + 4 + 20 + 40) * MIB})
    demand("host memory", end["host_pinned"], 12 * MIB)
    demand_context(end)


CUPY = """
import os
import cupy
%s
blocks = [cupy.empty(megabytes * 2**20, dtype=cupy.uint8) for megabytes in (10, 20, 40)]
blocks[1] = None
x = cupy.arange(1000, dtype=cupy.float32)
assert float(x.sum()) == 499500.0
del x
print("done", flush=True)
os._exit(0)
"""


def within(what, found, least, most):
    if not least <= found <= most:
        raise Failed(f"{what}: {found / MIB:.2f} MiB, expected {least / MIB:.2f} to {most / MIB:.2f}")


@case
def watch_cupy(suite):
    """CuPy without its pool: each array is a cudaMalloc."""
    job = suite.script("cupy_plain", CUPY % "cupy.cuda.set_allocator(None)")
    directory, _ = suite.record("observed-cupy", job)
    device = device_of(suite, directory)
    libraries, end = left(device)
    within("CuPy's memory at the end", sum(libraries.values()), 50 * MIB, 51 * MIB)
    if device["other_libraries"]["calls"] < 6:
        raise Failed(f"{device['other_libraries']['calls']} calls were seen, at least 6 made")
    demand_context(end)


JAX = """
import os
import jax
import jax.numpy as jnp
keep = [jnp.full((megabytes * 2**18,), 1.5, dtype=jnp.float32).block_until_ready() for megabytes in (8, 16, 32)]
gone = jnp.zeros((64 * 2**18,), dtype=jnp.float32).block_until_ready()
del gone
@jax.jit
def step(x):
    return x * 2 + 1
y = step(keep[2]).block_until_ready()
assert float(y[7]) == 4.0
print("done", flush=True)
os._exit(0)
"""


@case
def watch_jax(suite):
    """JAX allocates buffer by buffer, not one block of three quarters of the card."""
    directory, done = suite.record("observed-jax", suite.script("jax_plain", JAX))
    for setting in ("XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async", "XLA_PYTHON_CLIENT_PREALLOCATE=false"):
        if setting not in done.stderr:
            raise Failed(f"record does not say that it sets {setting}:\n{done.stderr[-1000:]}")
    device = device_of(suite, directory)
    libraries, end = left(device)
    # The compiled steps have constants and scratch memory, too.
    within(f"JAX's memory at the end, {libraries}", sum(libraries.values()), (8 + 16 + 32 + 32) * MIB, 160 * MIB)
    if device["other_libraries"]["calls"] < 5:
        raise Failed(f"{device['other_libraries']['calls']} calls were seen, of five buffers at least")
    suite.figure("JAX: idle in the driver's pools at the end", f"{end['pools'] / MIB:.1f} MiB")
    demand_context(end)


@case
def serve_jax(suite):
    """JAX's buffers come from memprof's arenas."""
    directory, _ = suite.record("served-jax", suite.script("jax_plain", JAX), "--serve")
    suite.verified(directory)
    device = device_of(suite, directory)
    if device["allocs"] < 5:
        raise Failed(f"{device['allocs']} buffers were served, at least 5 expected; {device['other_libraries']} came from elsewhere")
    within("JAX's memory at most", device["max_requested"], (8 + 16 + 32 + 64) * MIB, 240 * MIB)


@case
def serve_cupy(suite):
    """CuPy's pool and plain arrays come from memprof's arenas."""
    directory, _ = suite.record("served-cupy", suite.script("cupy_served", CUPY % "cupy.cuda.set_allocator(None)"), "--serve")
    suite.verified(directory)
    device = device_of(suite, directory)
    within("CuPy's memory at most", device["max_requested"], 70 * MIB, 72 * MIB)
    directory, _ = suite.record("served-cupy-pool", suite.script("cupy_pool", CUPY % ""), "--serve")
    suite.verified(directory)
    within("the memory of CuPy's pool at most", device_of(suite, directory)["max_requested"], 70 * MIB, 80 * MIB)


# Every block is written and later checked on its stream, while others come and go.
SERVED = """
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>
#define CHECK(call) do { int e = (int)(call); if (e != 0) { \\
  fprintf(stderr, "%s:%d: %s: %d\\n", __FILE__, __LINE__, #call, e); exit(1); } } while (0)
__device__ unsigned long long wrong;
__global__ void write(unsigned *p, size_t n, unsigned v) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = v;
}
__global__ void wait(long long cycles) { long long start = clock64(); while (clock64() - start < cycles) {} }
__global__ void verify(const unsigned *p, size_t n, unsigned v) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    if (p[i] != v) atomicAdd(&wrong, 1ull);
}
static void churn(unsigned seed) {
  cudaStream_t stream, other;
  cudaEvent_t event;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (int i = 0; i < 400; i++) {
    const unsigned v = seed * 100000u + i;
    const size_t n = 1000 + (size_t)(v * 2654435761u % 500000u);
    unsigned *p;
    const bool ordered = i % 4 != 0;
    if (ordered) CHECK(cudaMallocAsync((void **)&p, n * 4, stream)); else CHECK(cudaMalloc((void **)&p, n * 4));
    write<<<32, 128, 0, stream>>>(p, n, v);
    wait<<<1, 1, 0, stream>>>(20000);
    if (i % 3 == 0) {  // used and freed on another stream
      CHECK(cudaEventRecord(event, stream));
      CHECK(cudaStreamWaitEvent(other, event, 0));
      verify<<<32, 128, 0, other>>>(p, n, v);
      if (ordered) CHECK(cudaFreeAsync(p, other)); else CHECK(cudaFree(p));
    } else {
      verify<<<32, 128, 0, stream>>>(p, n, v);
      if (ordered) CHECK(cudaFreeAsync(p, stream)); else CHECK(cudaFree(p));
    }
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamSynchronize(other));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
}
static void pointers() {
  char *p;
  CHECK(cudaMalloc((void **)&p, 100000));
  CUdeviceptr base;
  size_t size;
  CHECK(cuMemGetAddressRange(&base, &size, (CUdeviceptr)(p + 777)));
  if (base != (CUdeviceptr)p || size != 100000) { fprintf(stderr, "range %llx of %zu, want %p of 100000\\n", base, size, p); exit(1); }
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, p + 777));
  if (attributes.type != cudaMemoryTypeDevice || attributes.device != 0 || attributes.devicePointer != p + 777) {
    fprintf(stderr, "type %d device %d pointer %p\\n", attributes.type, attributes.device, attributes.devicePointer);
    exit(1);
  }
  CUcontext context = nullptr, current = nullptr;
  CHECK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)p));
  CHECK(cuCtxGetCurrent(&current));
  if (context != current) { fprintf(stderr, "context %p, current %p\\n", (void *)context, (void *)current); exit(1); }
  CHECK(cudaFree(p));
}
int main() {
  CHECK(cudaSetDevice(0));
  pointers();
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 4; t++) threads.emplace_back(churn, t);
  for (auto &t : threads) t.join();
  CHECK(cudaDeviceSynchronize());
  unsigned long long found;
  CHECK(cudaMemcpyFromSymbol(&found, wrong, sizeof found));
  if (found != 0) { fprintf(stderr, "%llu words were wrong\\n", found); return 1; }
  printf("done\\n");
}
"""


@case
def serve_programs(suite):
    """Patterns in served memory on many streams, with the runtime shared and static."""
    for name, cudart in (("served_shared", "shared"), ("served_static", "static")):
        program = compiled(suite, name, SERVED, "-cudart", cudart, "-lcuda", "-std=c++17")
        suite.run([program])
        directory, _ = suite.record(name + "-run", [program], "--serve")
        suite.verified(directory)
        device = device_of(suite, directory)
        demand(f"{name}: blocks that were served", device["allocs"], 1 + 4 * 400)
        demand(f"{name}: blocks that were freed", device["frees"], 1 + 4 * 400)
        demand(f"{name}: bytes left at the end", device["final"]["requested"], 0)


@case
def serve_beside_torch(suite):
    """With --serve torch and a library that calls cudaMalloc share the arenas."""
    job = suite.script(
        "serve_torch",
        """
import ctypes, torch
x = torch.ones(10 * 2**20, device="cuda")
program = ctypes.CDLL(None)
runtime = program if hasattr(program, "cudaMalloc") else ctypes.CDLL("libcudart.so.13")
pointer = ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(33 * 2**20)) == 0
assert float(x.sum()) == 10 * 2**20
assert runtime.cudaFree(pointer) == 0
print("done")
""",
    )
    directory, _ = suite.record("served-torch", job, "--serve")
    suite.verified(directory)
    device = device_of(suite, directory)
    within("memory at most", device["max_requested"], (40 + 33) * MIB, (40 + 33 + 100) * MIB)
    if device["other_libraries"]["live"] >= 33 * MIB:
        raise Failed(f"the library's memory was not served: {device['other_libraries']}")
