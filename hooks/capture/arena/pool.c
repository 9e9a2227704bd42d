// pool.c - see pool.h.
#include "arena/pool.h"

#include <stdio.h>
#include <stdlib.h>

#include "arena/arena.h"
#include "arena/capture_name.h"
#include "arena/graph_memory.h"
#include "arena/registered.h"
#include "base/hook.h"
#include "base/problem.h"
#include "device/captures.h"
#include "memprof.h"
#include "spool/spool.h"

static struct source usual;  // set while the hook starts, before there are pools

void pool_set_usual_source(struct source source) { usual = source; }

struct pool *pool_find(const struct gpu *gpu, uint64_t pool0, uint64_t pool1) {
  struct pool *pool = gpu->pools;
  while (pool != NULL && (pool->id[0] != pool0 || pool->id[1] != pool1)) pool = pool->next;
  return pool;
}

struct pool *pool_get(struct gpu *gpu, uint64_t pool0, uint64_t pool1, int64_t uses) {
  struct pool *pool = pool_find(gpu, pool0, pool1);
  if (pool != NULL) return pool;
  pool = calloc(1, sizeof *pool);
  if (pool == NULL) return NULL;
  *pool = (struct pool){.id = {pool0, pool1}, .uses = uses, .next = gpu->pools};
  gpu->pools = pool;
  return pool;
}

static bool ended(struct arena *arena) {
  if (arena->home == NULL || arena->home->uses > 0 || arena->paused || registered_ends(arena)) return false;
  if (arena->pending.count > 0) pending_poll(arena, false);
  return arena->pending.count == 0 && bfc_in_use(arena->bfc) == 0;
}

bool pool_quiet(struct gpu *gpu, struct pool *pool) {
  if (pool->uses > 0) return false;
  if (pool->fence == 0) pool->fence = fence_force(gpu);
  return pool->fence != 0 && fence_over(gpu, pool->fence);
}

bool pool_has_arena(const struct gpu *gpu, const struct pool *pool) {
  const struct arena *arena = gpu->arenas;
  while (arena != NULL && arena->home != pool) arena = arena->next;
  return arena != NULL;
}

static void drop_pools(struct gpu *gpu) {
  for (struct pool **link = &gpu->pools; *link != NULL;) {
    struct pool *pool = *link;
    if (pool->uses > 0 || pool_has_arena(gpu, pool) || (pool->range != NULL && !graph_range_end(gpu, pool->range))) {
      link = &pool->next;
      continue;
    }
    *link = pool->next;
    free(pool);
  }
  graph_memory_sweep(gpu);
}

bool pool_waits(const struct gpu *gpu) {
  if (graph_memory_waits(gpu)) return true;
  for (const struct pool *pool = gpu->pools; pool != NULL; pool = pool->next) {
    if (pool->uses == 0 && pool->range != NULL && !pool_has_arena(gpu, pool)) return true;
  }
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (!arena->memory.kind->shared || arena->home->uses > 0 || arena->pending.count > 0) continue;
    if (bfc_in_use(arena->bfc) == 0) return true;
  }
  return false;
}

static void sweep(struct gpu *gpu) {
  bool looked = false;
  for (struct arena **link = &gpu->arenas; *link != NULL;) {
    struct arena *arena = *link;
    if (!ended(arena)) {
      link = &arena->next;
      continue;
    }
    // Somebody may still read what was freed: then it ends later.
    if (!looked && !fence_clear(arena)) fence_over(gpu, fence_record(gpu));
    looked = true;
    if (!fence_clear(arena) || !pool_quiet(gpu, arena->home)) {
      link = &arena->next;
      continue;
    }
    *link = arena->next;
    arena->memory.kind->leave(arena);
    arena_end(arena);
  }
  drop_pools(gpu);
}

void pool_sweep(struct gpu *gpu) {
  if ((gpu->pools == NULL && gpu->graph_memories == NULL) || !captures_hold()) return;
  sweep(gpu);
  captures_let();
}

// The functions of memprof.h that name a pool.

static void event(struct gpu *gpu, enum memprof_kind kind, uint64_t pool0, uint64_t pool1) {
  char text[64];
  snprintf(text, sizeof text, "pool=%llx.%llx", (unsigned long long)pool0, (unsigned long long)pool1);
  spool_write(&(struct spool_event){.kind = kind, .device = gpu->vmm.device, .arena = MEMPROF_NO_ARENA, .context = spool_string(text)});
}

void memprof_pool_hold(int device, uint64_t pool0, uint64_t pool1) {
  if (!hook_on()) return;
  hook_start();
  struct gpu *gpu = gpu_get(device);
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  struct pool *pool = pool_get(gpu, pool0, pool1, 0);
  if (pool != NULL && pool->uses == 0 && pool->range == NULL && !pool_has_arena(gpu, pool)) pool->source = usual;
  if (pool != NULL) pool->uses++, pool->fence = 0;
  lock_give(&gpu->lock);
}

void memprof_pool_begin(int device, uint64_t pool0, uint64_t pool1) {
  memprof_pool_hold(device, pool0, pool1);
  capture_pool_begun(pool0, pool1);
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu != NULL) event(gpu, MEMPROF_POOL_BEGIN, pool0, pool1);
}

void memprof_pool_end(int device, uint64_t pool0, uint64_t pool1) {
  capture_pool_ended(pool0, pool1);
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu != NULL) event(gpu, MEMPROF_POOL_END, pool0, pool1);
}

void memprof_release_pool(int device, uint64_t pool0, uint64_t pool1) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
  struct pool *pool = pool_find(gpu, pool0, pool1);
  if (pool != NULL && pool->uses > 0 && --pool->uses == 0) {
    pool->fence = fence_force(gpu);
    if (driver_get()->context_record == NULL) fence_wait(gpu);
    pool_sweep(gpu);
  }
  source_apply_late(gpu);
  lock_give(&gpu->lock);
  source_give_back();
}

int64_t memprof_pool_uses(int device, uint64_t pool0, uint64_t pool1) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return 0;
  const struct pool *pool = pool_find(gpu, pool0, pool1);
  const int64_t uses = pool == NULL ? 0 : pool->uses;
  lock_give(&gpu->lock);
  return uses;
}

void memprof_pool_may_unmap(int device, uint64_t pool0, uint64_t pool1, int may_unmap) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
  struct pool *pool = pool_find(gpu, pool0, pool1);
  if (pool != NULL) pool->may_unmap = may_unmap != 0;
  lock_give(&gpu->lock);
}

int memprof_pool_source(int device, uint64_t pool0, uint64_t pool1, void *self, void *(*allocate)(void *self, size_t bytes),
                        void (*release)(void *self, void *ptr)) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return 0;
  struct pool *pool = pool_find(gpu, pool0, pool1);
  const bool ok = pool != NULL && !pool_has_arena(gpu, pool);
  if (ok) pool->source = (struct source){self, allocate, release};
  lock_give(&gpu->lock);
  return ok;
}
