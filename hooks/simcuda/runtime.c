// runtime.c - the CUDA runtime over the driver.
//
// Like the real libcudart, it looks the driver's functions up in libcuda at run time and calls
// them through pointers. So a hook that interposes dlsym sees a driver call inside each runtime
// call. Results are the driver's numbers, which cudaError_t shares.
//
// The first call that needs a device initialises the driver and makes the primary context
// of the thread's device current.
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef CUresult cudaError_t;

// The driver's functions that the runtime calls: name, the version's suffix, parameters.
#define DRIVER_FUNCTIONS(_) \
  _(cuInit, , (unsigned)) \
  _(cuDeviceGetCount, , (int *)) \
  _(cuDevicePrimaryCtxRetain, , (CUcontext *, CUdevice)) \
  _(cuCtxSetCurrent, , (CUcontext)) \
  _(cuCtxGetCurrent, , (CUcontext *)) \
  _(cuCtxGetDevice, , (CUdevice *)) \
  _(cuCtxSynchronize, , (void)) \
  _(cuCtxEnablePeerAccess, , (CUcontext, unsigned)) \
  _(cuMemGetInfo, _v2, (size_t *, size_t *)) \
  _(cuMemAlloc, _v2, (CUdeviceptr *, size_t)) \
  _(cuMemFree, _v2, (CUdeviceptr)) \
  _(cuMemAllocAsync, , (CUdeviceptr *, size_t, CUstream)) \
  _(cuMemFreeAsync, , (CUdeviceptr, CUstream)) \
  _(cuMemAllocManaged, , (CUdeviceptr *, size_t, unsigned)) \
  _(cuMemAllocPitch, _v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
  _(cuMemHostAlloc, , (void **, size_t, unsigned)) \
  _(cuMemFreeHost, , (void *)) \
  _(cuMemcpy, , (CUdeviceptr, CUdeviceptr, size_t)) \
  _(cuMemcpyAsync, , (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
  _(cuMemsetD8, _v2, (CUdeviceptr, unsigned char, size_t)) \
  _(cuStreamCreate, , (CUstream *, unsigned)) \
  _(cuStreamDestroy, _v2, (CUstream)) \
  _(cuStreamSynchronize, , (CUstream)) \
  _(cuStreamWaitEvent, , (CUstream, CUevent, unsigned)) \
  _(cuEventCreate, , (CUevent *, unsigned)) \
  _(cuEventRecord, , (CUevent, CUstream)) \
  _(cuGetErrorString, , (CUresult, const char **)) \
  _(cuGetProcAddress, _v2, (const char *, void **, int, uint64_t, int *))

#define FIELD(name, suffix, parameters) CUresult(*name) parameters;
static struct {
  DRIVER_FUNCTIONS(FIELD)
} driver;

static pthread_once_t linked = PTHREAD_ONCE_INIT;
static void *driver_library;
static CUresult driver_state;
static CUcontext primary[SIM_MAX_DEVICES];  // guarded by sim_lock

static _Thread_local int thread_device;
static _Thread_local cudaError_t last_error;

// Stores the driver function `name` at `target`, which is one of the pointers above.
static void look_up(void *library, const char *name, void *target) {
  void *found = dlsym(library, name);
  if (found == NULL) driver_state = CUDA_ERROR_UNKNOWN;
  memcpy(target, &found, sizeof found);
}

static void link_driver(void) {
  Dl_info self;
  void *library = dladdr((void *)(uintptr_t)&link_driver, &self) != 0 ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (library == NULL) {
    driver_state = CUDA_ERROR_NO_DEVICE;
    return;
  }
  driver_library = library;
#define LOOK_UP(name, suffix, parameters) look_up(library, #name #suffix, &driver.name);
  DRIVER_FUNCTIONS(LOOK_UP)
  if (driver_state == CUDA_SUCCESS) driver_state = driver.cuInit(0);
}

static cudaError_t remember(cudaError_t result) {
  if (result != CUDA_SUCCESS) last_error = result;
  return result;
}

// Makes the primary context of `device` the calling thread's.
static cudaError_t make_current(int device) {
  int count = 0;
  cudaError_t result = driver.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return result;
  if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
  sim_lock();
  CUcontext context = primary[device];
  sim_unlock();
  if (context == NULL) {
    result = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS) return result;
    sim_lock();
    primary[device] = context;
    sim_unlock();
  }
  return driver.cuCtxSetCurrent(context);
}

// Starts a runtime call: the injected failure of its name, then the driver.
static cudaError_t begin(const char *name) {
  cudaError_t result = sim_enter(name, false);
  sim_unlock();
  pthread_once(&linked, link_driver);
  return result != CUDA_SUCCESS ? result : driver_state;
}

// As begin, for a call that needs the context of the thread's device.
static cudaError_t begin_on_device(const char *name) {
  cudaError_t result = begin(name);
  CUcontext current = NULL;
  if (result == CUDA_SUCCESS) result = driver.cuCtxGetCurrent(&current);
  if (result == CUDA_SUCCESS && current == NULL) result = make_current(thread_device);
  return result;
}

static cudaError_t end(const char *name, cudaError_t result, uint64_t a, uint64_t b) {
  sim_lock();
  return remember(sim_leave(name, result, "pointer=0x%llx value=%llu", (unsigned long long)a, (unsigned long long)b));
}

CUresult sim_runtime_begin(const char *name) { return begin_on_device(name); }

CUresult sim_runtime_end(const char *name, CUresult result, uint64_t pointer, uint64_t value) { return end(name, result, pointer, value); }

void sim_runtime_driver(const char *name, void *target) { look_up(driver_library, name, target); }

static uint64_t number(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

// A runtime call that is one of the driver's, in the context of the thread's device. Its log has a pointer and a value.
#define FORWARD(name, parameters, call, pointer, value)     \
  SIM_API cudaError_t name parameters {                     \
    cudaError_t result = begin_on_device(#name);            \
    if (result == CUDA_SUCCESS) result = driver.call;       \
    return end(#name, result, pointer, value);              \
  }

SIM_API cudaError_t cudaGetDeviceCount(int *count) {
  cudaError_t result = begin("cudaGetDeviceCount");
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetCount(count);
  if (result != CUDA_SUCCESS && count != NULL) *count = 0;
  return end("cudaGetDeviceCount", result, 0, count != NULL ? (uint64_t)*count : 0);
}

SIM_API cudaError_t cudaSetDevice(int device) {
  cudaError_t result = begin("cudaSetDevice");
  if (result == CUDA_SUCCESS) result = make_current(device);
  if (result == CUDA_SUCCESS) thread_device = device;
  return end("cudaSetDevice", result, 0, (uint64_t)device);
}

SIM_API cudaError_t cudaGetDevice(int *device) {
  cudaError_t result = begin("cudaGetDevice");
  CUcontext current = NULL;
  if (result == CUDA_SUCCESS && device == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = driver.cuCtxGetCurrent(&current);
  if (result == CUDA_SUCCESS) {
    *device = thread_device;
    if (current != NULL) result = driver.cuCtxGetDevice(device);
  }
  return end("cudaGetDevice", result, 0, 0);
}

FORWARD(cudaDeviceSynchronize, (void), cuCtxSynchronize(), 0, 0)
FORWARD(cudaMemGetInfo, (size_t *free_bytes, size_t *total), cuMemGetInfo(free_bytes, total), 0, 0)

// Size 0 gives NULL and no error, unlike the driver.
SIM_API cudaError_t cudaMalloc(void **out, size_t size) {
  cudaError_t result = begin_on_device("cudaMalloc");
  CUdeviceptr addr = 0;
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && size > 0) result = driver.cuMemAlloc(&addr, size);
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)addr;
  return end("cudaMalloc", result, addr, size);
}

SIM_API cudaError_t cudaFree(void *pointer) {
  cudaError_t result = begin_on_device("cudaFree");
  if (result == CUDA_SUCCESS && pointer != NULL) result = driver.cuMemFree(number(pointer));
  return end("cudaFree", result, number(pointer), 0);
}

SIM_API cudaError_t cudaMallocAsync(void **out, size_t size, CUstream stream) {
  cudaError_t result = begin_on_device("cudaMallocAsync");
  CUdeviceptr addr = 0;
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && size > 0) result = driver.cuMemAllocAsync(&addr, size, stream);
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)addr;
  return end("cudaMallocAsync", result, addr, size);
}

SIM_API cudaError_t cudaFreeAsync(void *pointer, CUstream stream) {
  cudaError_t result = begin_on_device("cudaFreeAsync");
  if (result == CUDA_SUCCESS && pointer != NULL) result = driver.cuMemFreeAsync(number(pointer), stream);
  return end("cudaFreeAsync", result, number(pointer), 0);
}

SIM_API cudaError_t cudaMallocManaged(void **out, size_t size, unsigned int flags) {
  cudaError_t result = begin_on_device("cudaMallocManaged");
  CUdeviceptr addr = 0;
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = driver.cuMemAllocManaged(&addr, size, flags);
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)addr;
  return end("cudaMallocManaged", result, addr, size);
}

SIM_API cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
  cudaError_t result = begin_on_device("cudaMallocPitch");
  CUdeviceptr addr = 0;
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = driver.cuMemAllocPitch(&addr, pitch, width, height, 4);
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)addr;
  return end("cudaMallocPitch", result, addr, width);
}

FORWARD(cudaHostAlloc, (void **out, size_t size, unsigned int flags), cuMemHostAlloc(out, size, flags), 0, size)
FORWARD(cudaMallocHost, (void **out, size_t size), cuMemHostAlloc(out, size, 0), 0, size)

SIM_API cudaError_t cudaFreeHost(void *pointer) {
  cudaError_t result = begin_on_device("cudaFreeHost");
  if (result == CUDA_SUCCESS && pointer != NULL) result = driver.cuMemFreeHost(pointer);
  return end("cudaFreeHost", result, 0, 0);
}

FORWARD(cudaMemset, (void *pointer, int value, size_t size), cuMemsetD8(number(pointer), (unsigned char)value, size), number(pointer), size)

// The kind (0 to 4: host to host, ..., default) is ignored: with unified addressing the pointers decide.
SIM_API cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  cudaError_t result = begin_on_device("cudaMemcpy");
  if (result == CUDA_SUCCESS && (kind < 0 || kind > 4)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = driver.cuMemcpy(number(to), number(from), size);
  return end("cudaMemcpy", result, number(to), size);
}

SIM_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, CUstream stream) {
  cudaError_t result = begin_on_device("cudaMemcpyAsync");
  if (result == CUDA_SUCCESS && (kind < 0 || kind > 4)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = driver.cuMemcpyAsync(number(to), number(from), size, stream);
  return end("cudaMemcpyAsync", result, number(to), size);
}

SIM_API cudaError_t cudaStreamCreateWithFlags(CUstream *stream, unsigned int flags) {
  cudaError_t result = begin_on_device("cudaStreamCreate");
  if (result == CUDA_SUCCESS) result = driver.cuStreamCreate(stream, flags);
  return end("cudaStreamCreate", result, 0, flags);
}

SIM_API cudaError_t cudaStreamCreate(CUstream *stream) { return cudaStreamCreateWithFlags(stream, 0); }

FORWARD(cudaStreamDestroy, (CUstream stream), cuStreamDestroy(stream), number(stream), 0)
FORWARD(cudaStreamSynchronize, (CUstream stream), cuStreamSynchronize(stream), number(stream), 0)
FORWARD(cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), cuStreamWaitEvent(stream, event, flags), number(stream), flags)

SIM_API cudaError_t cudaEventCreateWithFlags(CUevent *event, unsigned int flags) {
  cudaError_t result = begin_on_device("cudaEventCreate");
  if (result == CUDA_SUCCESS) result = driver.cuEventCreate(event, flags);
  return end("cudaEventCreate", result, 0, flags);
}

FORWARD(cudaEventRecord, (CUevent event, CUstream stream), cuEventRecord(event, stream), number(event), 0)

SIM_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  cudaError_t result = begin_on_device("cudaDeviceEnablePeerAccess");
  int count = 0;
  CUcontext context = NULL;
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetCount(&count);
  if (result == CUDA_SUCCESS && (peer < 0 || peer >= count)) result = CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS) result = driver.cuDevicePrimaryCtxRetain(&context, peer);
  if (result == CUDA_SUCCESS) result = driver.cuCtxEnablePeerAccess(context, flags);
  return end("cudaDeviceEnablePeerAccess", result, (uint64_t)peer, flags);
}

SIM_API cudaError_t cudaGetLastError(void) {
  cudaError_t result = last_error;
  last_error = CUDA_SUCCESS;
  return result;
}

SIM_API const char *cudaGetErrorString(cudaError_t error) {
  const char *text = NULL;
  pthread_once(&linked, link_driver);
  return driver.cuGetErrorString(error, &text) == CUDA_SUCCESS ? text : "unrecognized error code";
}

// Names of the errors that occur here. The runtime's names differ from the driver's.
SIM_API const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case CUDA_SUCCESS: return "cudaSuccess";
    case CUDA_ERROR_INVALID_VALUE: return "cudaErrorInvalidValue";
    case CUDA_ERROR_OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case CUDA_ERROR_NOT_INITIALIZED: return "cudaErrorInitializationError";
    case CUDA_ERROR_NO_DEVICE: return "cudaErrorNoDevice";
    case CUDA_ERROR_INVALID_DEVICE: return "cudaErrorInvalidDevice";
    case CUDA_ERROR_INVALID_CONTEXT: return "cudaErrorDeviceUninitialized";
    case CUDA_ERROR_INVALID_HANDLE: return "cudaErrorInvalidResourceHandle";
    case CUDA_ERROR_NOT_READY: return "cudaErrorNotReady";
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: return "cudaErrorPeerAccessAlreadyEnabled";
    case CUDA_ERROR_NOT_SUPPORTED: return "cudaErrorNotSupported";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: return "cudaErrorStreamCaptureUnsupported";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: return "cudaErrorStreamCaptureInvalidated";
    default: return "cudaErrorUnknown";
  }
}

SIM_API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned int version,
                                                     unsigned long long flags, int *status) {
  cudaError_t result = begin("cudaGetDriverEntryPoint");
  if (result == CUDA_SUCCESS) result = driver.cuGetProcAddress(symbol, out, (int)version, flags, status);
  return end("cudaGetDriverEntryPoint", result, 0, version);
}

SIM_API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out, unsigned long long flags, int *status) {
  return cudaGetDriverEntryPointByVersion(symbol, out, 12000, flags, status);
}
