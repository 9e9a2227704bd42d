// memory.c - linear device memory: malloc, managed, in stream order, and free.
//
// The runtime's and the driver's functions have the same shapes, pointers being 64 bits wide
// and results ints, so each shape is written once.
#include "base/hook.h"
#include "device/driver_pools.h"
#include "device/overhead.h"
#include "interpose/interpose.h"
#include "interpose/serve.h"

enum {
  MALLOC,
  CU_ALLOC,
  MANAGED,
  CU_MANAGED,
  ASYNC,
  ASYNC_PTSZ,
  CU_ASYNC,
  CU_ASYNC_PTSZ,
  POOL,
  POOL_PTSZ,
  CU_POOL,
  CU_POOL_PTSZ,
  FREE,
  CU_FREE,
  FREE_ASYNC,
  FREE_ASYNC_PTSZ,
  CU_FREE_ASYNC,
  CU_FREE_ASYNC_PTSZ,
};
#define CALL(which) (&(struct call){.entry = &interpose_memory[which], .from = __builtin_return_address(0)})

static void *stream_of(const struct call *call, void *stream) {
  return stream == NULL && call->entry->per_thread ? (void *)STREAM_PER_THREAD : stream;
}

static cuda_error allocate(struct call *call, void **ptr, size_t bytes) {
  cuda_error (*real)(void **, size_t) = call_enter(call);
  cuda_error error = CUDA_NOT_FOUND;
  if (serve_alloc(call, ptr, bytes)) {
    error = CUDA_OK;
  } else if (real != NULL) {
    error = real(ptr, bytes);
    if (call_again(call, error, bytes)) error = real(ptr, bytes);
    if (error == CUDA_OK) call_allocated(call, MEMORY_DEVICE, *ptr, bytes, -1, NULL);
  }
  call_leave();
  return error;
}

EXPORT cuda_error cudaMalloc(void **ptr, size_t bytes) { return allocate(CALL(MALLOC), ptr, bytes); }
EXPORT cuda_error cuMemAlloc_v2(void **ptr, size_t bytes) { return allocate(CALL(CU_ALLOC), ptr, bytes); }

// Managed memory is never served, and not tried again: the driver moves it to the host where the device is full.
EXPORT cuda_error cudaMallocManaged(void **ptr, size_t bytes, unsigned flags) {
  return call_allocate_flags(CALL(MANAGED), MEMORY_MANAGED, ptr, bytes, flags);
}

EXPORT cuda_error cuMemAllocManaged(void **ptr, size_t bytes, unsigned flags) {
  return call_allocate_flags(CALL(CU_MANAGED), MEMORY_MANAGED, ptr, bytes, flags);
}

static cuda_error allocate_async(struct call *call, void **ptr, size_t bytes, void *stream) {
  cuda_error (*real)(void **, size_t, void *) = call_enter(call);
  cuda_error error = CUDA_NOT_FOUND;
  void *const on = stream_of(call, stream);
  if (serve_alloc_async(call, ptr, bytes, NULL, on)) {
    error = CUDA_OK;
  } else if (real != NULL) {
    error = real(ptr, bytes, stream);
    if (call_again(call, error, bytes)) error = real(ptr, bytes, stream);
    if (error == CUDA_OK) call_allocated(call, MEMORY_POOL, *ptr, bytes, -1, on);
  }
  call_leave();
  return error;
}

EXPORT cuda_error cudaMallocAsync(void **ptr, size_t bytes, void *stream) { return allocate_async(CALL(ASYNC), ptr, bytes, stream); }
EXPORT cuda_error cudaMallocAsync_ptsz(void **ptr, size_t bytes, void *stream) { return allocate_async(CALL(ASYNC_PTSZ), ptr, bytes, stream); }
EXPORT cuda_error cuMemAllocAsync(void **ptr, size_t bytes, void *stream) { return allocate_async(CALL(CU_ASYNC), ptr, bytes, stream); }
EXPORT cuda_error cuMemAllocAsync_ptsz(void **ptr, size_t bytes, void *stream) {
  return allocate_async(CALL(CU_ASYNC_PTSZ), ptr, bytes, stream);
}

static enum call_memory memory_of(void *pool) {
  switch (driver_pool_device(pool)) {
    case DRIVER_POOL_HOST: return MEMORY_HOST;
    case DRIVER_POOL_MANAGED: return MEMORY_MANAGED;
    default: return MEMORY_POOL;
  }
}

static cuda_error allocate_from_pool(struct call *call, void **ptr, size_t bytes, void *pool, void *stream) {
  cuda_error (*real)(void **, size_t, void *, void *) = call_enter(call);
  cuda_error error = CUDA_NOT_FOUND;
  void *const on = stream_of(call, stream);
  if (serve_alloc_async(call, ptr, bytes, pool, on)) {
    error = CUDA_OK;
  } else if (real != NULL) {
    error = real(ptr, bytes, pool, stream);
    if (call_again(call, error, bytes)) error = real(ptr, bytes, pool, stream);
    if (error == CUDA_OK) call_allocated(call, memory_of(pool), *ptr, bytes, -1, on);
  }
  call_leave();
  return error;
}

EXPORT cuda_error cudaMallocFromPoolAsync(void **ptr, size_t bytes, void *pool, void *stream) {
  return allocate_from_pool(CALL(POOL), ptr, bytes, pool, stream);
}
EXPORT cuda_error cudaMallocFromPoolAsync_ptsz(void **ptr, size_t bytes, void *pool, void *stream) {
  return allocate_from_pool(CALL(POOL_PTSZ), ptr, bytes, pool, stream);
}
EXPORT cuda_error cuMemAllocFromPoolAsync(void **ptr, size_t bytes, void *pool, void *stream) {
  return allocate_from_pool(CALL(CU_POOL), ptr, bytes, pool, stream);
}
EXPORT cuda_error cuMemAllocFromPoolAsync_ptsz(void **ptr, size_t bytes, void *pool, void *stream) {
  return allocate_from_pool(CALL(CU_POOL_PTSZ), ptr, bytes, pool, stream);
}

static cuda_error release(struct call *call, void *ptr) {
  cuda_error (*real)(void *) = call_enter(call);
  cuda_error error = CUDA_NOT_FOUND;
  if (!serve_free(call, ptr, &error) && real != NULL) {
    // Before the call: afterwards another thread may be given the address.
    call_freed(call, MEMORY_DEVICE, ptr, -1, NULL);
    error = real(ptr);
  }
  call_leave();
  return error;
}

EXPORT cuda_error cudaFree(void *ptr) { return release(CALL(FREE), ptr); }
EXPORT cuda_error cuMemFree_v2(void *ptr) { return release(CALL(CU_FREE), ptr); }

static cuda_error release_async(struct call *call, void *ptr, void *stream) {
  cuda_error (*real)(void *, void *) = call_enter(call);
  cuda_error error = CUDA_NOT_FOUND;
  void *const on = stream_of(call, stream);
  if (!serve_free_async(call, ptr, on, &error) && real != NULL) {
    call_freed(call, MEMORY_POOL, ptr, -1, on);
    error = real(ptr, stream);
    if (call->outermost && hook_on()) overhead_pools(call_stream_device(on));
  }
  call_leave();
  return error;
}

EXPORT cuda_error cudaFreeAsync(void *ptr, void *stream) { return release_async(CALL(FREE_ASYNC), ptr, stream); }
EXPORT cuda_error cudaFreeAsync_ptsz(void *ptr, void *stream) { return release_async(CALL(FREE_ASYNC_PTSZ), ptr, stream); }
EXPORT cuda_error cuMemFreeAsync(void *ptr, void *stream) { return release_async(CALL(CU_FREE_ASYNC), ptr, stream); }
EXPORT cuda_error cuMemFreeAsync_ptsz(void *ptr, void *stream) { return release_async(CALL(CU_FREE_ASYNC_PTSZ), ptr, stream); }

#define RUNTIME(function) {.name = #function, .ours = function}
#define DRIVER(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version}
#define PER_THREAD(function, base, version) {.name = #function, .ours = function, .asked = base, .since = version, .per_thread = true}
struct entry interpose_memory[] = {
    [MALLOC] = RUNTIME(cudaMalloc),
    [CU_ALLOC] = DRIVER(cuMemAlloc_v2, cuMemAlloc, 3020),
    [MANAGED] = RUNTIME(cudaMallocManaged),
    [CU_MANAGED] = DRIVER(cuMemAllocManaged, cuMemAllocManaged, 6000),
    [ASYNC] = RUNTIME(cudaMallocAsync),
    [ASYNC_PTSZ] = PER_THREAD(cudaMallocAsync_ptsz, NULL, 0),
    [CU_ASYNC] = DRIVER(cuMemAllocAsync, cuMemAllocAsync, 11020),
    [CU_ASYNC_PTSZ] = PER_THREAD(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020),
    [POOL] = RUNTIME(cudaMallocFromPoolAsync),
    [POOL_PTSZ] = PER_THREAD(cudaMallocFromPoolAsync_ptsz, NULL, 0),
    [CU_POOL] = DRIVER(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020),
    [CU_POOL_PTSZ] = PER_THREAD(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020),
    [FREE] = RUNTIME(cudaFree),
    [CU_FREE] = DRIVER(cuMemFree_v2, cuMemFree, 3020),
    [FREE_ASYNC] = RUNTIME(cudaFreeAsync),
    [FREE_ASYNC_PTSZ] = PER_THREAD(cudaFreeAsync_ptsz, NULL, 0),
    [CU_FREE_ASYNC] = DRIVER(cuMemFreeAsync, cuMemFreeAsync, 11020),
    [CU_FREE_ASYNC_PTSZ] = PER_THREAD(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020),
    {0},
};

INTERPOSED(interpose_memory);
