// runtime_kinds.c - the runtime's pools, arrays, pointers and captures, over the driver.
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>

typedef CUresult cudaError_t;

// cudaExtent, cudaPitchedPtr, cudaChannelFormatDesc, cudaPointerAttributes
struct extent {
  size_t width, height, depth;
};
struct pitched {
  void *ptr;
  size_t pitch, width, height;
};
struct channels {
  int bits[4];
  int kind;
};
struct pointer_attributes {
  int type, device;
  void *device_pointer, *host_pointer;
  long reserved[8];
};

static uint64_t number(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

// A runtime call that is one of the driver's, with the same parameters. Its log has a pointer and a value.
#define FORWARD(name, driver_name, parameters, arguments, pointer, value)  \
  SIM_API cudaError_t name parameters {                                    \
    CUresult(*call) parameters;                                            \
    cudaError_t result = sim_runtime_begin(#name);                         \
    sim_runtime_driver(#driver_name, &call);                               \
    if (result == CUDA_SUCCESS) result = call arguments;                   \
    return sim_runtime_end(#name, result, pointer, value);                 \
  }

FORWARD(cudaMemPoolCreate, cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *props), (pool, props), 0, 0)
FORWARD(cudaMemGetDefaultMemPool, cuMemGetDefaultMemPool, (CUmemoryPool *pool, CUmemLocation *location, int type), (pool, location, type), 0, 0)
FORWARD(cudaMemGetMemPool, cuMemGetMemPool, (CUmemoryPool *pool, CUmemLocation *location, int type), (pool, location, type), 0, 0)
FORWARD(cudaMemPoolSetAccess, cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count), (pool, access, count), 0, count)
FORWARD(cudaMemPoolDestroy, cuMemPoolDestroy, (CUmemoryPool pool), (pool), 0, 0)

SIM_API cudaError_t cudaMallocFromPoolAsync(void **out, size_t size, CUmemoryPool pool, CUstream stream) {
  CUresult (*allocate)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
  CUdeviceptr addr = 0;
  cudaError_t result = sim_runtime_begin("cudaMallocFromPoolAsync");
  sim_runtime_driver("cuMemAllocFromPoolAsync", &allocate);
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = allocate(&addr, size, pool, stream);
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)addr;
  return sim_runtime_end("cudaMallocFromPoolAsync", result, addr, size);
}

// A program compiled for a default stream of each thread.
SIM_API cudaError_t cudaMallocAsync_ptsz(void **out, size_t size, CUstream stream) {
  CUresult (*allocate)(CUdeviceptr *, size_t, CUstream);
  CUdeviceptr addr = 0;
  cudaError_t result = sim_runtime_begin("cudaMallocAsync");
  sim_runtime_driver("cuMemAllocAsync_ptsz", &allocate);
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = allocate(&addr, size, stream);
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)addr;
  return sim_runtime_end("cudaMallocAsync", result, addr, size);
}

SIM_API cudaError_t cudaFreeAsync_ptsz(void *pointer, CUstream stream) {
  CUresult (*release)(CUdeviceptr, CUstream);
  cudaError_t result = sim_runtime_begin("cudaFreeAsync");
  sim_runtime_driver("cuMemFreeAsync_ptsz", &release);
  if (result == CUDA_SUCCESS && pointer != NULL) result = release(number(pointer), stream);
  return sim_runtime_end("cudaFreeAsync", result, number(pointer), 0);
}

SIM_API cudaError_t cudaMalloc3D(struct pitched *out, struct extent extent) {
  CUresult (*allocate)(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
  CUdeviceptr addr = 0;
  size_t pitch = 0;
  cudaError_t result = sim_runtime_begin("cudaMalloc3D");
  sim_runtime_driver("cuMemAllocPitch_v2", &allocate);
  if (result == CUDA_SUCCESS) result = allocate(&addr, &pitch, extent.width, extent.height * extent.depth, 4);
  if (result == CUDA_SUCCESS) *out = (struct pitched){(void *)(uintptr_t)addr, pitch, extent.width, extent.height};
  return sim_runtime_end("cudaMalloc3D", result, addr, pitch);
}

// The driver's format for channels of `bits` bits. Which of several it is makes no difference here.
static int format_of(int bits) { return bits == 32 ? 3 : bits == 16 ? 2 : 1; }

SIM_API cudaError_t cudaMalloc3DArray(CUarray *array, const struct channels *channels, struct extent extent, unsigned int flags) {
  CUresult (*create)(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
  cudaError_t result = sim_runtime_begin("cudaMalloc3DArray");
  sim_runtime_driver("cuArray3DCreate_v2", &create);
  if (result == CUDA_SUCCESS && channels == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    CUDA_ARRAY3D_DESCRIPTOR wanted = {extent.width, extent.height, extent.depth, format_of(channels->bits[0]), 0, flags};
    for (int i = 0; i < 4; i++) wanted.NumChannels += channels->bits[i] > 0;
    result = create(array, &wanted);
  }
  return sim_runtime_end("cudaMalloc3DArray", result, 0, 0);
}

SIM_API cudaError_t cudaMallocArray(CUarray *array, const struct channels *channels, size_t width, size_t height, unsigned int flags) {
  return cudaMalloc3DArray(array, channels, (struct extent){width, height, 0}, flags);
}

SIM_API cudaError_t cudaFreeArray(CUarray array) {
  CUresult (*destroy)(CUarray);
  cudaError_t result = sim_runtime_begin("cudaFreeArray");
  sim_runtime_driver("cuArrayDestroy", &destroy);
  if (result == CUDA_SUCCESS && array != NULL) result = destroy(array);
  return sim_runtime_end("cudaFreeArray", result, number(array), 0);
}

// An address outside of device memory is unregistered host memory: type 0.
SIM_API cudaError_t cudaPointerGetAttributes(struct pointer_attributes *out, const void *pointer) {
  CUresult (*get)(void *, int, CUdeviceptr);
  cudaError_t result = sim_runtime_begin("cudaPointerGetAttributes");
  sim_runtime_driver("cuPointerGetAttribute", &get);
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    memset(out, 0, sizeof *out);
    out->device = -1;
    out->host_pointer = (void *)(uintptr_t)pointer;
    if (get(&out->type, 2, number(pointer)) == CUDA_SUCCESS && get(&out->device, 9, number(pointer)) == CUDA_SUCCESS) {
      out->device_pointer = out->host_pointer;
      out->host_pointer = NULL;
    }
  }
  return sim_runtime_end("cudaPointerGetAttributes", result, number(pointer), 0);
}

FORWARD(cudaStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode), number(stream), (uint64_t)mode)
FORWARD(cudaStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, (CUstream stream, CUgraph graph, const void *nodes, const void *edges, size_t count, int mode), (stream, graph, nodes, edges, count, mode), number(stream), (uint64_t)mode)
FORWARD(cudaStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph), number(stream), 0)
FORWARD(cudaThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode), (mode), 0, 0)
