// interpose.c - the CUDA runtime's allocation calls, seen on their way.
//
// LD_PRELOAD puts these symbols before the runtime's. Each passes the call on, notes what
// other libraries take beside our arenas, and, when the device is out of memory, gives
// back what our arenas hold without need and tries once more: a job that fits on the card
// without memprof must fit with it. With serve=1 cudaMalloc is answered from the main arena.
//
// Only the outermost call of a thread counts: a runtime call may come back to us through
// a wrapper library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "hook.h"
#include "interpose.h"
#include "memprof.h"
#include "options.h"
#include "reclaim.h"
#include "spool.h"

typedef int cuda_error;
enum { CUDA_OK = 0, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_FOUND = 500 };

#define EXPORT __attribute__((visibility("default")))

static __thread int depth;

void interpose_enter(void) { depth++; }
void interpose_leave(void) { depth--; }

// The definition after ours; libraries that were loaded privately are not on the way
// RTLD_NEXT looks, so they are asked by name.
static void *next(const char *symbol) {
  void *function = dlsym(RTLD_NEXT, symbol);
  static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcuda.so.1"};
  for (size_t i = 0; function == NULL && i < sizeof libraries / sizeof *libraries; i++) {
    void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) continue;
    function = dlsym(library, symbol);
    dlclose(library);  // it was loaded before and stays
  }
  return function;
}

static void *resolve(void *_Atomic *known, const char *symbol) {
  void *function = atomic_load_explicit(known, memory_order_relaxed);
  if (function == NULL) {
    function = next(symbol);
    atomic_store_explicit(known, function, memory_order_relaxed);
  }
  return function;
}

// The device the runtime would use: that of the current context, or else the one chosen
// for a context to come.
static int current_device(void) {
  static void *_Atomic known;
  int device = 0;
  const struct driver *driver = driver_get();
  if (driver != NULL && driver->context_device(&device) == DRIVER_OK) return device;
  cuda_error (*chosen)(int *) = (cuda_error(*)(int *))resolve(&known, "cudaGetDevice");
  return chosen != NULL && chosen(&device) == CUDA_OK ? device : 0;
}

static void note(enum memprof_kind kind, const void *ptr, size_t bytes, const void *stream, const char *call) {
  if (!hook_on()) return;
  hook_start();
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = current_device(),
      .arena = MEMPROF_NO_ARENA,
      .stream = (int64_t)(intptr_t)stream,
      .addr = (uintptr_t)ptr,
      .requested = bytes,
      .provided = bytes,
      .context = spool_string(call),
  });
}

// True if a call that ran out of memory deserves another try.
static bool try_again(cuda_error error, size_t bytes) {
  return error == CUDA_OUT_OF_MEMORY && depth == 1 && hook_on() && reclaim_for_foreign(current_device(), bytes);
}

// The runtime remembers the first try's failure, and a framework that asks after its next
// kernel would take it for its own.
static void forget_error(void) {
  static void *_Atomic known;
  cuda_error (*last)(void) = (cuda_error(*)(void))resolve(&known, "cudaGetLastError");
  if (last != NULL) last();
}

static bool served(const void *ptr) {
  size_t provided;
  return ptr != NULL && options_get()->serve && memprof_owns((void *)(uintptr_t)ptr, &provided);
}

EXPORT cuda_error cudaMalloc(void **ptr, size_t bytes) {
  static void *_Atomic known;
  cuda_error (*real)(void **, size_t) = (cuda_error(*)(void **, size_t))resolve(&known, "cudaMalloc");
  if (depth == 0 && hook_on() && options_get()->serve && bytes > 0) {
    *ptr = memprof_malloc(bytes, current_device(), NULL);
    return *ptr == NULL ? CUDA_OUT_OF_MEMORY : CUDA_OK;
  }
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  cuda_error error = real(ptr, bytes);
  if (try_again(error, bytes)) {
    forget_error();
    error = real(ptr, bytes);
  }
  if (error == CUDA_OK && depth == 1) note(MEMPROF_EXTERNAL_ALLOC, *ptr, bytes, NULL, "cudaMalloc");
  depth--;
  return error;
}

EXPORT cuda_error cudaFree(void *ptr) {
  static void *_Atomic known;
  cuda_error (*real)(void *) = (cuda_error(*)(void *))resolve(&known, "cudaFree");
  if (depth == 0 && hook_on() && served(ptr)) {
    driver_synchronize(current_device());  // as the real one does
    memprof_free(ptr, 0, 0, NULL);
    return CUDA_OK;
  }
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  // Before the call: afterwards another thread may be given the address.
  if (ptr != NULL && depth == 1) note(MEMPROF_EXTERNAL_FREE, ptr, 0, NULL, "cudaFree");
  const cuda_error error = real(ptr);
  depth--;
  return error;
}

EXPORT cuda_error cudaMallocManaged(void **ptr, size_t bytes, unsigned flags) {
  static void *_Atomic known;
  cuda_error (*real)(void **, size_t, unsigned) = (cuda_error(*)(void **, size_t, unsigned))resolve(&known, "cudaMallocManaged");
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  const cuda_error error = real(ptr, bytes, flags);
  if (error == CUDA_OK && depth == 1) note(MEMPROF_EXTERNAL_ALLOC, *ptr, bytes, NULL, "cudaMallocManaged");
  depth--;
  return error;
}

EXPORT cuda_error cudaMallocAsync(void **ptr, size_t bytes, void *stream) {
  static void *_Atomic known;
  cuda_error (*real)(void **, size_t, void *) = (cuda_error(*)(void **, size_t, void *))resolve(&known, "cudaMallocAsync");
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  cuda_error error = real(ptr, bytes, stream);
  if (try_again(error, bytes)) {
    forget_error();
    error = real(ptr, bytes, stream);
  }
  if (error == CUDA_OK && depth == 1) note(MEMPROF_EXTERNAL_ALLOC, *ptr, bytes, stream, "cudaMallocAsync");
  depth--;
  return error;
}

EXPORT cuda_error cudaFreeAsync(void *ptr, void *stream) {
  static void *_Atomic known;
  cuda_error (*real)(void *, void *) = (cuda_error(*)(void *, void *))resolve(&known, "cudaFreeAsync");
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  if (ptr != NULL && depth == 1) note(MEMPROF_EXTERNAL_FREE, ptr, 0, stream, "cudaFreeAsync");
  const cuda_error error = real(ptr, stream);
  depth--;
  return error;
}

// The driver's own calls, for programs that use it directly. It remembers no errors.
EXPORT cuda_error cuMemAlloc_v2(uint64_t *addr, size_t bytes) {
  static void *_Atomic known;
  cuda_error (*real)(uint64_t *, size_t) = (cuda_error(*)(uint64_t *, size_t))resolve(&known, "cuMemAlloc_v2");
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  cuda_error error = real(addr, bytes);
  if (try_again(error, bytes)) error = real(addr, bytes);
  if (error == CUDA_OK && depth == 1) note(MEMPROF_EXTERNAL_ALLOC, (void *)(uintptr_t)*addr, bytes, NULL, "cuMemAlloc");
  depth--;
  return error;
}

EXPORT cuda_error cuMemFree_v2(uint64_t addr) {
  static void *_Atomic known;
  cuda_error (*real)(uint64_t) = (cuda_error(*)(uint64_t))resolve(&known, "cuMemFree_v2");
  if (real == NULL) return CUDA_NOT_FOUND;
  depth++;
  if (addr != 0 && depth == 1) note(MEMPROF_EXTERNAL_FREE, (void *)(uintptr_t)addr, 0, NULL, "cuMemFree");
  const cuda_error error = real(addr);
  depth--;
  return error;
}

static _Atomic bool handed_out;

void *interpose_malloc(size_t bytes, int device) {
  static void *_Atomic known_set, *_Atomic known_malloc;
  cuda_error (*set)(int) = (cuda_error(*)(int))resolve(&known_set, "cudaSetDevice");
  cuda_error (*real)(void **, size_t) = (cuda_error(*)(void **, size_t))resolve(&known_malloc, "cudaMalloc");
  if (set == NULL || real == NULL) return NULL;
  const int before = current_device();
  void *ptr = NULL;
  depth++;
  if (set(device) == CUDA_OK && real(&ptr, bytes) == CUDA_OK) {
    note(MEMPROF_EXTERNAL_ALLOC, ptr, bytes, NULL, "cudaMalloc");
    atomic_store(&handed_out, true);
  }
  if (before != device) set(before);
  depth--;
  return ptr;
}

bool interpose_free(void *ptr) {
  static void *_Atomic known;
  if (!atomic_load(&handed_out)) return false;
  cuda_error (*real)(void *) = (cuda_error(*)(void *))resolve(&known, "cudaFree");
  if (real == NULL) return false;
  depth++;
  note(MEMPROF_EXTERNAL_FREE, ptr, 0, NULL, "cudaFree");
  real(ptr);
  depth--;
  return true;
}

static _Atomic int captures;

bool interpose_capturing(void) { return atomic_load_explicit(&captures, memory_order_acquire) > 0; }

EXPORT cuda_error cudaStreamBeginCapture(void *stream, int mode) {
  static void *_Atomic known;
  cuda_error (*real)(void *, int) = (cuda_error(*)(void *, int))resolve(&known, "cudaStreamBeginCapture");
  if (real == NULL) return CUDA_NOT_FOUND;
  // Before the call, so that no thread queries an event in between.
  atomic_fetch_add(&captures, 1);
  const cuda_error error = real(stream, mode);
  if (error != CUDA_OK) atomic_fetch_sub(&captures, 1);
  return error;
}

// A capture that failed has ended, too. One begun by a call that is not seen here was not
// counted.
EXPORT cuda_error cudaStreamEndCapture(void *stream, void **graph) {
  static void *_Atomic known;
  cuda_error (*real)(void *, void **) = (cuda_error(*)(void *, void **))resolve(&known, "cudaStreamEndCapture");
  if (real == NULL) return CUDA_NOT_FOUND;
  const cuda_error error = real(stream, graph);
  int count = atomic_load(&captures);
  while (count > 0 && !atomic_compare_exchange_weak(&captures, &count, count - 1)) {
  }
  return error;
}
