// saver.c - torch_memory_saver, preloaded: a library that pauses memory of torch's pools.
//
// It replaces cudaMalloc for torch's own allocator, and later unmaps and maps what it has allocated for the
// regions of a script. Each region is a MemPool, so where the library is, pools take their memory from the
// cudaMalloc that the job would reach without the hook.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "arena/pool.h"
#include "arena/saver.h"
#include "base/hook.h"
#include "base/real_dlsym.h"
#include "interpose/interpose.h"

static cuda_error (*allocate)(void **, size_t), (*release)(void *), (*exchange)(int *);

// Allocates as torch does: in a capture, too.
static void *take(void *self, size_t bytes) {
  (void)self;
  int mode = 2;  // relaxed
  void *ptr = NULL;
  if (exchange != NULL) exchange(&mode);
  const cuda_error error = allocate(&ptr, bytes);
  if (exchange != NULL) exchange(&mode);
  return error == CUDA_OK ? ptr : NULL;
}

static void give(void *self, void *ptr) {
  (void)self;
  release(ptr);
}

static void find(void) {
  if (saver_foreign("tms_get_interesting_region") == NULL) return;
  *(void **)&allocate = real_dlsym(RTLD_DEFAULT, "cudaMalloc");
  *(void **)&release = real_dlsym(RTLD_DEFAULT, "cudaFree");
  *(void **)&exchange = real_dlsym(RTLD_DEFAULT, "cudaThreadExchangeStreamCaptureMode");
  if (allocate != NULL && release != NULL) pool_set_usual_source((struct source){.allocate = take, .release = give});
}

HOOK_PART(.order = HOOK_REST, .start = find);
