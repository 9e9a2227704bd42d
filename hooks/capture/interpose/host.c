// host.c - page-locked host memory. It is not device memory, but a recording shows it: a job may exhaust the
// host's memory by it.
#include "interpose/interpose.h"

enum { MALLOC_HOST, HOST_ALLOC, CU_ALLOC_HOST, CU_HOST_ALLOC, FREE_HOST, CU_FREE_HOST };
#define CALL(which) (&(struct call){.entry = &interpose_host[which], .from = __builtin_return_address(0)})

static cuda_error allocate(struct call *call, void **ptr, size_t bytes) {
  cuda_error (*real)(void **, size_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(ptr, bytes);
  if (error == CUDA_OK) call_allocated(call, MEMORY_HOST, *ptr, bytes, -1, NULL);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMallocHost(void **ptr, size_t bytes) { return allocate(CALL(MALLOC_HOST), ptr, bytes); }
EXPORT cuda_error cuMemAllocHost_v2(void **ptr, size_t bytes) { return allocate(CALL(CU_ALLOC_HOST), ptr, bytes); }

EXPORT cuda_error cudaHostAlloc(void **ptr, size_t bytes, unsigned flags) {
  return call_allocate_flags(CALL(HOST_ALLOC), MEMORY_HOST, ptr, bytes, flags);
}

EXPORT cuda_error cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags) {
  return call_allocate_flags(CALL(CU_HOST_ALLOC), MEMORY_HOST, ptr, bytes, flags);
}

EXPORT cuda_error cudaFreeHost(void *ptr) { return call_release(CALL(FREE_HOST), MEMORY_HOST, ptr); }
EXPORT cuda_error cuMemFreeHost(void *ptr) { return call_release(CALL(CU_FREE_HOST), MEMORY_HOST, ptr); }

struct entry interpose_host[] = {
    [MALLOC_HOST] = {.name = "cudaMallocHost", .ours = cudaMallocHost},
    [HOST_ALLOC] = {.name = "cudaHostAlloc", .ours = cudaHostAlloc},
    [CU_ALLOC_HOST] = {.name = "cuMemAllocHost_v2", .ours = cuMemAllocHost_v2, .asked = "cuMemAllocHost", .since = 3020},
    [CU_HOST_ALLOC] = {.name = "cuMemHostAlloc", .ours = cuMemHostAlloc, .asked = "cuMemHostAlloc", .since = 2020},
    [FREE_HOST] = {.name = "cudaFreeHost", .ours = cudaFreeHost},
    [CU_FREE_HOST] = {.name = "cuMemFreeHost", .ours = cuMemFreeHost, .asked = "cuMemFreeHost", .since = 2000},
    {0},
};

INTERPOSED(interpose_host);
