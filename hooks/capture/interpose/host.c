// host.c - page-locked host memory. It is not device memory, but a recording shows it: a job may exhaust the
// host's memory by it.
#include "interpose/interpose.h"

static cuda_error allocate(struct call *call, void **ptr, size_t bytes) {
  cuda_error (*real)(void **, size_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(ptr, bytes);
  if (error == CUDA_OK) call_allocated(call, MEMORY_HOST, *ptr, bytes, -1, NULL);
  call_leave();
  return error;
}

WRAPPER(cudaMallocHost, (void **ptr, size_t bytes), RUNTIME) { return allocate(CALL(cudaMallocHost), ptr, bytes); }
WRAPPER(cuMemAllocHost_v2, (void **ptr, size_t bytes), DRIVER(cuMemAllocHost, 3020)) { return allocate(CALL(cuMemAllocHost_v2), ptr, bytes); }

WRAPPER(cudaHostAlloc, (void **ptr, size_t bytes, unsigned flags), RUNTIME) {
  return call_allocate_flags(CALL(cudaHostAlloc), MEMORY_HOST, ptr, bytes, flags);
}

WRAPPER(cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags), DRIVER(cuMemHostAlloc, 2020)) {
  return call_allocate_flags(CALL(cuMemHostAlloc), MEMORY_HOST, ptr, bytes, flags);
}

WRAPPER(cudaFreeHost, (void *ptr), RUNTIME) { return call_release(CALL(cudaFreeHost), MEMORY_HOST, ptr); }
WRAPPER(cuMemFreeHost, (void *ptr), DRIVER(cuMemFreeHost, 2000)) { return call_release(CALL(cuMemFreeHost), MEMORY_HOST, ptr); }
