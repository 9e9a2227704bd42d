// api.c - the functions of memprof.h that allocate and free.
#include <stdatomic.h>
#include <stdbool.h>

#include "api.h"
#include "arena/arena.h"
#include "arena/graph_memory.h"
#include "arena/reclaim.h"
#include "arena/share.h"
#include "base/hook.h"
#include "base/problem.h"
#include "device/captures.h"
#include "device/devices.h"
#include "memprof.h"
#include "spool/context.h"
#include "spool/spool.h"
#include "watch/callers.h"

int memprof_abi(void) { return MEMPROF_ABI; }

int memprof_active(void) { return hook_on(); }

static const struct api_fallback *_Atomic fallbacks;

void api_set_fallback(const struct api_fallback *fallback) { atomic_store_explicit(&fallbacks, fallback, memory_order_release); }

static void *fall_back(size_t size, int device) {
  const struct api_fallback *fallback = atomic_load_explicit(&fallbacks, memory_order_acquire);
  void *ptr = fallback != NULL ? fallback->malloc(size, device) : NULL;
  if (ptr == NULL) oom_text(device, "memprof cannot serve it, see the problems of the recording");
  return ptr;
}

// Frees `ptr` if the fallback had allocated it. False: it had not, or there is no fallback.
static bool fall_back_free(void *ptr) {
  const struct api_fallback *fallback = atomic_load_explicit(&fallbacks, memory_order_acquire);
  return fallback != NULL && fallback->free(ptr);
}

static int (*_Atomic last_resort)(void);

void memprof_set_last_resort(int (*give_up)(void)) { atomic_store(&last_resort, give_up); }

// A request. Its arena may end while no lock is held, so that it is looked up again.
struct request {
  struct gpu *gpu;
  void *stream;
  uint64_t pool[2];
  struct tag *tag;
  size_t size;
  uint32_t context;
};

// NULL: no address space.
static struct arena *arena_of_request(const struct request *request) {
  return arena_get(request->gpu, request->stream, request->pool[0], request->pool[1], request->tag);
}

static bool attempt(const struct request *request, struct bfc_block *block) {
  struct arena *arena = arena_of_request(request);
  return arena != NULL && arena_alloc(arena, request->size, request->context, block);
}

// Calls the framework's function that frees memory which it keeps without need (memprof_set_last_resort). The
// lock is released meanwhile, since the framework frees by memprof_free. Writes an event, since readers expect
// one between two attempts of a request. False: there is no such function, or a stream is captured.
static bool ask_framework(const struct request *request) {
  int (*give_up)(void) = atomic_load(&last_resort);
  struct arena *arena = give_up == NULL || capturing() ? NULL : arena_of_request(request);
  if (arena == NULL) return false;
  arena_event(arena, MEMPROF_RECLAIM, 0, request->size, 0, spool_string("framework"));
  exchange_end(arena);
  lock_give(&request->gpu->lock);
  give_up();
  lock_take(&request->gpu->lock);
  return true;
}

// Allocates again after a failure, as long as memory can be reclaimed for it: first as much as the request can
// need, then all that is free, and once more if the arena grew in vain.
static bool allocate_reclaiming(const struct request *request, struct bfc_block *block) {
  bool retry = true;
  for (int round = 0; retry && round < 3; round++) {
    const uint64_t wanted = round == 0 ? reclaim_lack(request->gpu, request->size) : UINT64_MAX;
    struct arena *arena = arena_of_request(request);
    if (arena == NULL) return false;
    reclaim(request->gpu, arena, request->size, wanted, "request", &retry);
    if (retry && attempt(request, block)) return true;
  }
  return false;
}

// Allocates; after a failure again when memory was reclaimed, and again after the framework freed some.
static bool allocate(const struct request *request, struct bfc_block *block) {
  struct gpu *gpu = request->gpu;
  gpu->vmm.fault = DRIVER_OK;
  struct arena *arena = arena_of_request(request);
  if (arena == NULL) {
    oom_explain(gpu, NULL, request->size);
    return false;
  }
  if (arena_alloc(arena, request->size, request->context, block)) return true;
  gpu->stats.retries++;
  if (allocate_reclaiming(request, block)) return true;
  if (ask_framework(request) && (attempt(request, block) || allocate_reclaiming(request, block))) return true;
  arena = arena_of_request(request);
  if (arena != NULL) {
    arena_event(arena, MEMPROF_OOM, 0, request->size, 0, request->context);
    exchange_end(arena);
  }
  if (oom_explain(gpu, arena, request->size)) gpu->stats.ooms++;
  return false;
}

void *memprof_malloc_in_pool(size_t size, int device, void *stream, uint64_t pool0, uint64_t pool1) {
  if (size == 0 || !hook_on()) return NULL;
  hook_start();
  struct gpu *gpu = gpu_get(device);
  if (gpu == NULL || gpu_held == gpu) return fall_back(size, device);
  callers_note();
  lock_take(&gpu->lock);
  gpu_apply_late(gpu);
  const struct request request = {gpu, stream, {pool0, pool1}, tag_current(), size, context_get()};
  struct bfc_block block = {0};
  const bool ok = allocate(&request, &block);
  gpu_apply_late(gpu);
  lock_give(&gpu->lock);
  source_give_back();
  return ok ? (void *)(uintptr_t)block.addr : NULL;
}

void *memprof_malloc(size_t size, int device, void *stream) { return memprof_malloc_in_pool(size, device, stream, 0, 0); }

void memprof_free(void *ptr, size_t size, int device, void *stream) {
  (void)size, (void)device, (void)stream;
  if (ptr == NULL || !hook_on()) return;
  struct arena *arena = arena_of((uintptr_t)ptr);
  bool ok = false;
  if (arena != NULL && gpu_held == arena->gpu) {
    source_free_later(arena->gpu, (uintptr_t)ptr);
    ok = true;
  } else if (arena != NULL) {
    lock_take(&arena->gpu->lock);
    ok = arena_free(arena, (uintptr_t)ptr);
    lock_give(&arena->gpu->lock);
  }
  if (!ok && (arena != NULL || !fall_back_free(ptr))) problem("free of %p, which is not a live block", ptr);
}

int memprof_block_of(void *ptr, void **start, size_t *provided) {
  struct bfc_block block;
  if (!hook_on() || arena_block((uintptr_t)ptr, &block) == NULL) return 0;
  *start = (void *)(uintptr_t)block.addr;
  *provided = block.size;
  return 1;
}

int memprof_owns(void *ptr, size_t *provided) {
  void *start;
  return memprof_block_of(ptr, &start, provided) && start == ptr;
}

int memprof_torch_block(void *ptr, int *device, size_t *bytes) {
  struct bfc_block block;
  const struct arena *arena = hook_on() ? arena_block((uintptr_t)ptr, &block) : NULL;
  if (arena == NULL || block.addr != (uintptr_t)ptr) return 0;
  *device = arena->gpu->vmm.device;
  *bytes = (size_t)counters_torch_bytes(block.requested);
  return 1;
}

void memprof_record_stream(void *ptr, void *stream) {
  struct arena *arena = hook_on() ? arena_of((uintptr_t)ptr) : NULL;
  if (arena == NULL) return;
  lock_take(&arena->gpu->lock);
  if (pending_use(arena, (uintptr_t)ptr, stream)) {
    spool_write(&(struct spool_event){
        .kind = MEMPROF_STREAM_USE,
        .device = arena->gpu->vmm.device,
        .arena = arena->id,
        .stream = (int64_t)(intptr_t)stream,
        .addr = (uintptr_t)ptr,
    });
  }
  lock_give(&arena->gpu->lock);
}

int memprof_used_elsewhere(void *ptr) {
  struct arena *arena = hook_on() ? arena_of((uintptr_t)ptr) : NULL;
  struct bfc_block block;
  if (arena == NULL) return 0;
  lock_take(&arena->gpu->lock);
  const bool used = arena->noted > 0 && !arena->paused && bfc_find(arena->bfc, (uintptr_t)ptr, &block) && arena_live(arena, &block) && bfc_note(arena->bfc, block.chunk) != 0;
  lock_give(&arena->gpu->lock);
  return used;
}

size_t memprof_empty_cache(int device) {
  if (!hook_on()) return 0;
  struct gpu *gpu = gpu_existing(device);
  if (gpu == NULL) {
    counters_early_sync(device);
    return 0;
  }
  bool retry;
  lock_take(&gpu->lock);
  const int64_t syncs = gpu->stats.syncs;
  backup_drop_unused(gpu);
  const uint64_t given = reclaim(gpu, NULL, 0, UINT64_MAX, "empty_cache", &retry);
  if (retry) gpu_emptied(gpu);
  gpu->stats.syncs = syncs + 1;  // torch counts a call, whether it has to wait or not
  lock_give(&gpu->lock);
  share_sweep();
  return given;
}

int memprof_enable_peer(int device, int peer) {
  struct gpu *gpu = hook_on() ? gpu_get(device) : NULL;
  int can = 0;
  if (gpu == NULL || !device_valid(peer)) return 0;
  if (peer == device) return 1;
  // With a peer that has no access to the device, every later mapping would fail.
  if (driver_get()->can_access(&can, peer, device) != DRIVER_OK || !can) return 0;
  bool ok = true;
  lock_take(&gpu->lock);
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) ok &= vmm_allow_peer(&arena->memory.vmm, peer);
  for (struct graph_memory *memory = gpu->graph_memories; memory != NULL; memory = memory->next) ok &= graph_memory_allow_peer(memory, peer);
  if (ok) gpu->vmm.peers |= (uint64_t)1 << peer;
  lock_give(&gpu->lock);
  return ok;
}

void memprof_note_framework(const char *text) {
  if (hook_on()) spool_note_framework(text);
}

void memprof_problem(const char *text) {
  if (hook_on()) problem("%s", text);
}
