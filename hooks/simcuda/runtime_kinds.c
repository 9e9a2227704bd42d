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

SIM_API cudaError_t cudaMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  CUresult (*create)(CUmemoryPool *, const CUmemPoolProps *);
  cudaError_t result = sim_runtime_begin("cudaMemPoolCreate");
  sim_runtime_driver("cuMemPoolCreate", &create);
  if (result == CUDA_SUCCESS) result = create(pool, props);
  return sim_runtime_end("cudaMemPoolCreate", result, 0, 0);
}

SIM_API cudaError_t cudaMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
  CUresult (*get)(CUmemoryPool *, CUmemLocation *, int);
  cudaError_t result = sim_runtime_begin("cudaMemGetDefaultMemPool");
  sim_runtime_driver("cuMemGetDefaultMemPool", &get);
  if (result == CUDA_SUCCESS) result = get(pool, location, type);
  return sim_runtime_end("cudaMemGetDefaultMemPool", result, 0, 0);
}

SIM_API cudaError_t cudaMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
  CUresult (*get)(CUmemoryPool *, CUmemLocation *, int);
  cudaError_t result = sim_runtime_begin("cudaMemGetMemPool");
  sim_runtime_driver("cuMemGetMemPool", &get);
  if (result == CUDA_SUCCESS) result = get(pool, location, type);
  return sim_runtime_end("cudaMemGetMemPool", result, 0, 0);
}

SIM_API cudaError_t cudaMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
  CUresult (*set)(CUmemoryPool, const CUmemAccessDesc *, size_t);
  cudaError_t result = sim_runtime_begin("cudaMemPoolSetAccess");
  sim_runtime_driver("cuMemPoolSetAccess", &set);
  if (result == CUDA_SUCCESS) result = set(pool, access, count);
  return sim_runtime_end("cudaMemPoolSetAccess", result, 0, count);
}

SIM_API cudaError_t cudaMemPoolDestroy(CUmemoryPool pool) {
  CUresult (*destroy)(CUmemoryPool);
  cudaError_t result = sim_runtime_begin("cudaMemPoolDestroy");
  sim_runtime_driver("cuMemPoolDestroy", &destroy);
  if (result == CUDA_SUCCESS) result = destroy(pool);
  return sim_runtime_end("cudaMemPoolDestroy", result, 0, 0);
}

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

SIM_API cudaError_t cudaStreamBeginCapture(CUstream stream, int mode) {
  CUresult (*begin)(CUstream, int);
  cudaError_t result = sim_runtime_begin("cudaStreamBeginCapture");
  sim_runtime_driver("cuStreamBeginCapture_v2", &begin);
  if (result == CUDA_SUCCESS) result = begin(stream, mode);
  return sim_runtime_end("cudaStreamBeginCapture", result, number(stream), (uint64_t)mode);
}

SIM_API cudaError_t cudaStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const void *nodes, const void *edges, size_t count, int mode) {
  CUresult (*begin)(CUstream, CUgraph, const void *, const void *, size_t, int);
  cudaError_t result = sim_runtime_begin("cudaStreamBeginCaptureToGraph");
  sim_runtime_driver("cuStreamBeginCaptureToGraph", &begin);
  if (result == CUDA_SUCCESS) result = begin(stream, graph, nodes, edges, count, mode);
  return sim_runtime_end("cudaStreamBeginCaptureToGraph", result, number(stream), (uint64_t)mode);
}

SIM_API cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *graph) {
  CUresult (*end)(CUstream, CUgraph *);
  cudaError_t result = sim_runtime_begin("cudaStreamEndCapture");
  sim_runtime_driver("cuStreamEndCapture", &end);
  if (result == CUDA_SUCCESS) result = end(stream, graph);
  return sim_runtime_end("cudaStreamEndCapture", result, number(stream), 0);
}

SIM_API cudaError_t cudaStreamIsCapturing(CUstream stream, int *status) {
  CUresult (*ask)(CUstream, int *);
  cudaError_t result = sim_runtime_begin("cudaStreamIsCapturing");
  sim_runtime_driver("cuStreamIsCapturing", &ask);
  if (result == CUDA_SUCCESS) result = ask(stream, status);
  return sim_runtime_end("cudaStreamIsCapturing", result, number(stream), 0);
}

SIM_API cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
  CUresult (*exchange)(int *);
  cudaError_t result = sim_runtime_begin("cudaThreadExchangeStreamCaptureMode");
  sim_runtime_driver("cuThreadExchangeStreamCaptureMode", &exchange);
  if (result == CUDA_SUCCESS) result = exchange(mode);
  return sim_runtime_end("cudaThreadExchangeStreamCaptureMode", result, 0, 0);
}

SIM_API cudaError_t cudaGraphDestroy(CUgraph graph) {
  CUresult (*destroy)(CUgraph);
  cudaError_t result = sim_runtime_begin("cudaGraphDestroy");
  sim_runtime_driver("cuGraphDestroy", &destroy);
  if (result == CUDA_SUCCESS) result = destroy(graph);
  return sim_runtime_end("cudaGraphDestroy", result, number(graph), 0);
}
