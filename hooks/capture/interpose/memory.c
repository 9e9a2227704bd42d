// memory.c - linear device memory: malloc, managed, in stream order, and free.
//
// The runtime's and the driver's functions have the same shapes, pointers being 64 bits wide
// and results ints, so each shape is written once.
#include "base/hook.h"
#include "device/driver_pools.h"
#include "device/overhead.h"
#include "interpose/interpose.h"
#include "interpose/serve.h"

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

WRAPPER(cudaMalloc, (void **ptr, size_t bytes), RUNTIME) { return allocate(CALL(cudaMalloc), ptr, bytes); }
WRAPPER(cuMemAlloc_v2, (void **ptr, size_t bytes), DRIVER(cuMemAlloc, 3020)) { return allocate(CALL(cuMemAlloc_v2), ptr, bytes); }

// Managed memory is never served, and not tried again: the driver moves it to the host where the device is full.
WRAPPER(cudaMallocManaged, (void **ptr, size_t bytes, unsigned flags), RUNTIME) {
  return call_allocate_flags(CALL(cudaMallocManaged), MEMORY_MANAGED, ptr, bytes, flags);
}

WRAPPER(cuMemAllocManaged, (void **ptr, size_t bytes, unsigned flags), DRIVER(cuMemAllocManaged, 6000)) {
  return call_allocate_flags(CALL(cuMemAllocManaged), MEMORY_MANAGED, ptr, bytes, flags);
}

static enum call_memory memory_of(void *pool) {
  switch (driver_pool_device(pool)) {
    case DRIVER_POOL_HOST: return MEMORY_HOST;
    case DRIVER_POOL_MANAGED: return MEMORY_MANAGED;
    default: return MEMORY_POOL;
  }
}

// ALLOCATES_IN_ORDER defines what wrappers of an allocation in stream order do. TYPES are those of the real function, ARGUMENTS what it gets,
// in parentheses.
#define ALLOCATES_IN_ORDER(name, PARAMETERS, TYPES, ARGUMENTS, pool, memory)               \
  static cuda_error name PARAMETERS {                                                      \
    cuda_error(*real) TYPES = call_enter(call);                                            \
    cuda_error error = CUDA_NOT_FOUND;                                                     \
    void *const on = stream_of(call, stream);                                              \
    if (serve_alloc_async(call, ptr, bytes, pool, on)) {                                   \
      error = CUDA_OK;                                                                     \
    } else if (real != NULL) {                                                             \
      error = real ARGUMENTS;                                                              \
      if (call_again(call, error, bytes)) error = real ARGUMENTS;                          \
      if (error == CUDA_OK) call_allocated(call, memory, *ptr, bytes, -1, on);             \
    }                                                                                      \
    call_leave();                                                                          \
    return error;                                                                          \
  }
ALLOCATES_IN_ORDER(allocate_async, (struct call *call, void **ptr, size_t bytes, void *stream), (void **, size_t, void *), (ptr, bytes, stream), NULL, MEMORY_POOL)
ALLOCATES_IN_ORDER(allocate_from_pool, (struct call *call, void **ptr, size_t bytes, void *pool, void *stream), (void **, size_t, void *, void *), (ptr, bytes, pool, stream), pool,
                   memory_of(pool))

WRAPPER(cudaMallocAsync, (void **ptr, size_t bytes, void *stream), RUNTIME) { return allocate_async(CALL(cudaMallocAsync), ptr, bytes, stream); }
WRAPPER(cudaMallocAsync_ptsz, (void **ptr, size_t bytes, void *stream), RUNTIME_PER_THREAD) { return allocate_async(CALL(cudaMallocAsync_ptsz), ptr, bytes, stream); }
WRAPPER(cuMemAllocAsync, (void **ptr, size_t bytes, void *stream), DRIVER(cuMemAllocAsync, 11020)) { return allocate_async(CALL(cuMemAllocAsync), ptr, bytes, stream); }
WRAPPER(cuMemAllocAsync_ptsz, (void **ptr, size_t bytes, void *stream), DRIVER_PER_THREAD(cuMemAllocAsync, 11020)) {
  return allocate_async(CALL(cuMemAllocAsync_ptsz), ptr, bytes, stream);
}

WRAPPER(cudaMallocFromPoolAsync, (void **ptr, size_t bytes, void *pool, void *stream), RUNTIME) {
  return allocate_from_pool(CALL(cudaMallocFromPoolAsync), ptr, bytes, pool, stream);
}
WRAPPER(cudaMallocFromPoolAsync_ptsz, (void **ptr, size_t bytes, void *pool, void *stream), RUNTIME_PER_THREAD) {
  return allocate_from_pool(CALL(cudaMallocFromPoolAsync_ptsz), ptr, bytes, pool, stream);
}
WRAPPER(cuMemAllocFromPoolAsync, (void **ptr, size_t bytes, void *pool, void *stream), DRIVER(cuMemAllocFromPoolAsync, 11020)) {
  return allocate_from_pool(CALL(cuMemAllocFromPoolAsync), ptr, bytes, pool, stream);
}
WRAPPER(cuMemAllocFromPoolAsync_ptsz, (void **ptr, size_t bytes, void *pool, void *stream), DRIVER_PER_THREAD(cuMemAllocFromPoolAsync, 11020)) {
  return allocate_from_pool(CALL(cuMemAllocFromPoolAsync_ptsz), ptr, bytes, pool, stream);
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

WRAPPER(cudaFree, (void *ptr), RUNTIME) { return release(CALL(cudaFree), ptr); }
WRAPPER(cuMemFree_v2, (void *ptr), DRIVER(cuMemFree, 3020)) { return release(CALL(cuMemFree_v2), ptr); }

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

WRAPPER(cudaFreeAsync, (void *ptr, void *stream), RUNTIME) { return release_async(CALL(cudaFreeAsync), ptr, stream); }
WRAPPER(cudaFreeAsync_ptsz, (void *ptr, void *stream), RUNTIME_PER_THREAD) { return release_async(CALL(cudaFreeAsync_ptsz), ptr, stream); }
WRAPPER(cuMemFreeAsync, (void *ptr, void *stream), DRIVER(cuMemFreeAsync, 11020)) { return release_async(CALL(cuMemFreeAsync), ptr, stream); }
WRAPPER(cuMemFreeAsync_ptsz, (void *ptr, void *stream), DRIVER_PER_THREAD(cuMemFreeAsync, 11020)) { return release_async(CALL(cuMemFreeAsync_ptsz), ptr, stream); }

