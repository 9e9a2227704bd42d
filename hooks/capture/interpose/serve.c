// serve.c - see serve.h.
//
// Memory of cudaMalloc may be used on any stream at once, so its free waits for the device, as the real
// cudaFree does. Memory in stream order is reused in the order of its stream. For the default stream it has
// an arena apart from cudaMalloc's, under the handle of the legacy stream. The default streams of threads
// share one handle, and are not served.
#include "interpose/serve.h"

#include <stdatomic.h>

#include "arena/arena.h"
#include "arena/fence.h"
#include "arena/saver.h"
#include "base/hook.h"
#include "base/options.h"
#include "base/problem.h"
#include "device/captures.h"
#include "device/driver_pools.h"
#include "memprof.h"

static bool serving(void) { return hook_on() && options_get()->serve; }

// torch_memory_saver's regions have served calls (arena/saver.h): later frees may be of their blocks.
static _Atomic bool saved;

static bool may_have_served(void) { return serving() || (atomic_load_explicit(&saved, memory_order_relaxed) && hook_on()); }

static bool wants(const struct call *call, void *const *ptr, size_t bytes) {
  return call->outermost && ptr != NULL && bytes > 0 && !capturing() && !call_from_communication(call);
}

// Whether a context is current. If none is, a call of the runtime makes one, as the real call would: later
// calls rely on it. A call of the driver fails without one.
static bool has_context(const struct call *call) {
  static struct entry free_entry = {.name = "cudaFree"};
  const struct driver *driver = driver_get();
  int device;
  if (driver == NULL) return false;
  if (driver->context_device(&device) == DRIVER_OK) return true;
  if (call->entry->asked != NULL) return false;
  cuda_error (*nothing)(void *) = entry_real(&free_entry);
  return nothing != NULL && nothing(NULL) == CUDA_OK && driver->context_device(&device) == DRIVER_OK;
}

bool serve_alloc(const struct call *call, void **ptr, size_t bytes) {
  const bool for_saver = hook_on() && call->entry->asked == NULL && saver_serves();
  if (!(serving() || for_saver) || !wants(call, ptr, bytes) || !has_context(call)) return false;
  void *block = memprof_malloc(bytes, call_device(), NULL);
  if (block != NULL) *ptr = block;
  if (block != NULL && for_saver) atomic_store(&saved, true);
  return block != NULL;  // otherwise the real call fails as it would without memprof
}

static void *arena_stream(void *stream) { return stream == NULL ? (void *)STREAM_LEGACY : stream; }

bool serve_alloc_async(const struct call *call, void **ptr, size_t bytes, void *pool, void *stream) {
  if (!serving() || !wants(call, ptr, bytes) || stream == (void *)STREAM_PER_THREAD || !has_context(call)) return false;
  const int device = call_stream_device(stream);
  if (pool != NULL && !driver_pool_is_plain(pool, device)) return false;
  void *block = memprof_malloc(bytes, device, arena_stream(stream));
  if (block != NULL) *ptr = block;
  return block != NULL;
}

// The arena of a served pointer, or NULL. *error is set to an error if no live block begins there.
static struct arena *served(const struct call *call, void *ptr, cuda_error *error) {
  size_t provided;
  struct arena *arena = ptr != NULL && call->outermost && may_have_served() ? arena_of((uintptr_t)ptr) : NULL;
  if (arena != NULL) *error = memprof_owns(ptr, &provided) ? CUDA_OK : CUDA_INVALID_VALUE;
  return arena;
}

// Frees the block after waiting for the device: no lock, and no capture of another thread, waits meanwhile. During a capture the
// device must not be waited for: the block becomes pending until the legacy stream has finished what is queued on it when the capture
// ends. After an error of the GPU the block stays allocated, and that error is the call's.
static void free_waited(const struct arena *arena, void *ptr, cuda_error *error) {
  struct gpu *gpu = arena->gpu;
  lock_take(&gpu->lock);
  const bool done = fence_wait(gpu);
  lock_give(&gpu->lock);
  if (!done && (*error = driver_fault(gpu->vmm.device)) != CUDA_OK) return;
  if (!done) memprof_record_stream(ptr, arena->stream == (void *)STREAM_LEGACY ? NULL : (void *)STREAM_LEGACY);
  memprof_free(ptr, 0, 0, NULL);
}

bool serve_free(const struct call *call, void *ptr, cuda_error *error) {
  struct arena *arena = served(call, ptr, error);
  if (arena == NULL) return false;
  if (*error != CUDA_OK) return true;
  free_waited(arena, ptr, error);
  return true;
}

static bool in_capture(void *stream) {
  int status = 0;
  return capturing() && driver_get()->stream_capturing(stream, &status) == DRIVER_OK && status != 0;
}

bool serve_free_async(const struct call *call, void *ptr, void *stream, cuda_error *error) {
  struct arena *arena = served(call, ptr, error);
  if (arena == NULL) return false;
  if (*error != CUDA_OK) return true;
  if (in_capture(stream)) {
    // The free is part of the graph: it happens at each launch, not now.
    problem("block %p was freed inside a captured graph and is kept", ptr);
  } else if (arena->main) {
    free_waited(arena, ptr, error);
  } else {
    memprof_record_stream(ptr, arena_stream(stream));  // nothing if it is the block's own
    memprof_free(ptr, 0, 0, NULL);
  }
  return true;
}

// A later stream may get the same handle, and with it the arena, while work of this stream still runs.
void serve_stream_ends(void *stream) {
  static struct entry entry = {.name = "cuStreamSynchronize"};
  if (!serving() || capturing()) return;
  struct gpu *gpu = gpu_existing(call_stream_device(stream));
  bool found = false;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  for (const struct arena *arena = gpu->arenas; arena != NULL && !found; arena = arena->next) found = arena->stream == stream;
  lock_give(&gpu->lock);
  cuda_error (*wait)(void *) = found ? entry_real(&entry) : NULL;
  if (wait == NULL) return;
  const int mode = driver_relax();  // a capture that another thread begins meanwhile is not disturbed
  wait(stream);
  driver_restrict(mode);
}

bool serve_block(uint64_t addr, struct served_block *out) {
  struct bfc_block block;
  struct arena *arena = may_have_served() ? arena_block(addr, &block) : NULL;
  if (arena != NULL) *out = (struct served_block){block.addr, block.requested, arena->gpu->vmm.device};
  return arena != NULL;
}
