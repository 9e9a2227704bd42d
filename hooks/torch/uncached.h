// uncached.h - allocations while torch.cuda.caching_allocator_enable(False) holds.
//
// Each is a cudaMalloc of its own, as with torch's own allocator. The hook records it as another library's.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "announce.h"

namespace memprof {

namespace uncached {

inline void* allocate(size_t size) {
  if (size == 0) return nullptr;
  void* ptr = nullptr;
  const cudaError_t error = cudaMalloc(&ptr, size);
  if (error != cudaSuccess) (void)cudaGetLastError();  // the exception reports it; later calls must not find it
  TORCH_CHECK_WITH(OutOfMemoryError, error != cudaErrorMemoryAllocation, "CUDA out of memory. Tried to allocate ", size, " bytes without the caching allocator, which is switched off");
  TORCH_CHECK(error == cudaSuccess, "cudaMalloc of ", size, " bytes: ", cudaGetErrorString(error));
  announce::to_trace_alloc(ptr);
  return ptr;
}

inline void free(void* ptr) {
  if (ptr == nullptr) return;
  announce::to_trace_free(ptr);
  const cudaError_t error = cudaFree(ptr);
  if (error != cudaSuccess) (void)cudaGetLastError();
  TORCH_CHECK(error == cudaSuccess || error == cudaErrorCudartUnloading, "cudaFree: ", cudaGetErrorString(error));
}

}  // namespace uncached

}  // namespace memprof
