// checkpoint.c - what lies where, told and put back.
//
// Torch's graph trees note which blocks of a pool are live after a capture, and go back to
// that before they capture another continuation. Free chunks always merge, so the blocks say
// it all: freeing every block of the pool and putting the noted ones back at their places
// gives the very heap that was noted.
#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/hook.h"
#include "base/problem.h"
#include "memprof.h"
#include "spool/spool.h"

struct telling {
  const struct memprof_visitor *visitor;
  struct arena *arena;
  uint64_t end;  // of the chunk told last
  int32_t segments;
};

// Regions come by address; those of a source are known by the order in which it gave them.
static int32_t number_of(const struct telling *telling, uint64_t addr) {
  const struct arena *arena = telling->arena;
  for (size_t i = 0; i < arena->grant_count; i++) {
    if (arena->grants[i].addr == addr) return (int32_t)i;
  }
  return telling->segments;
}

static void tell(void *self, const struct bfc_chunk_info *info) {
  struct telling *telling = self;
  const struct arena *arena = telling->arena;
  const struct memprof_visitor *visitor = telling->visitor;
  if (info->region_start || info->addr != telling->end) {
    const struct memprof_segment segment = {
        .addr = info->addr,
        .stream = arena->stream,
        .pool = {arena->pool[0], arena->pool[1]},
        .foreign = arena->grant_count > 0,
        .number = number_of(telling, info->addr),
    };
    telling->segments++;
    visitor->segment(visitor->self, &segment);
  }
  telling->end = info->addr + info->size;
  struct memprof_chunk chunk = {info->addr, info->size, info->requested, MEMPROF_CHUNK_FREE};
  struct bfc_block block;
  if (!info->free && bfc_find(arena->bfc, info->addr, &block)) {
    chunk.state = arena_live(arena, &block) ? MEMPROF_CHUNK_LIVE : MEMPROF_CHUNK_PENDING;
  }
  visitor->chunk(visitor->self, &chunk);
}

void memprof_walk(int device, const struct memprof_visitor *visitor) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    struct telling telling = {.visitor = visitor, .arena = arena};
    bfc_walk_mapped(arena->bfc, &telling, tell);
  }
  lock_give(&gpu->lock);
}

void memprof_checkpoint(int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  struct arena *arena = gpu == NULL ? NULL : gpu->arenas;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  while (arena != NULL && (arena->pool[0] != pool0 || arena->pool[1] != pool1)) arena = arena->next;
  if (arena != NULL) arena_event(arena, MEMPROF_CHECKPOINT, 0, blocks, bytes, 0);
  lock_give(&gpu->lock);
}

struct addresses {
  uint64_t *list;
  size_t count, room;
  bool short_of_memory;
};

static void note_used(void *self, const struct bfc_chunk_info *chunk) {
  struct addresses *used = self;
  if (chunk->free) return;
  if (array_reserve(&used->list, &used->room, used->count + 1, sizeof *used->list)) {
    used->list[used->count++] = chunk->addr;
  } else {
    used->short_of_memory = true;
  }
}

// Frees all blocks of an arena, telling of each that was live.
static bool clear(struct arena *arena, void *self, void (*freed)(void *self, void *ptr)) {
  struct addresses used = {0};
  if (arena->pending.count > 0) pending_poll(arena, driver_synchronize(arena->gpu->vmm.device));
  bfc_walk(arena->bfc, &used, note_used);
  bool ok = !used.short_of_memory && arena->pending.count == 0;
  for (size_t i = 0; ok && i < used.count; i++) {
    // Graphs order their own work: what other streams did with the block is behind it.
    ok = arena_free_now(arena, used.list[i]);
    if (ok) freed(self, (void *)(uintptr_t)used.list[i]);
  }
  free(used.list);
  return ok;
}

static struct arena *arena_named(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1) {
  struct arena *arena = gpu->arenas;
  while (arena != NULL && (arena->stream != stream || arena->pool[0] != pool0 || arena->pool[1] != pool1)) arena = arena->next;
  return arena;
}

int memprof_restore(int device, uint64_t pool0, uint64_t pool1, const struct memprof_restored *blocks, size_t count, void *self,
                    void (*freed)(void *self, void *ptr)) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return 0;
  bool ok = true;
  lock_take(&gpu->lock);
  for (struct arena *arena = gpu->arenas; ok && arena != NULL; arena = arena->next) {
    if (arena->pool[0] == pool0 && arena->pool[1] == pool1) ok = clear(arena, self, freed);
  }
  for (size_t i = 0; ok && i < count; i++) {
    struct arena *arena = arena_named(gpu, blocks[i].stream, pool0, pool1);
    ok = arena != NULL && arena_restore(arena, blocks[i].addr, blocks[i].size, blocks[i].requested);
    if (!ok) problem("GPU %d: no place for the block at %#llx of a checkpoint", device, (unsigned long long)blocks[i].addr);
  }
  lock_give(&gpu->lock);
  return ok;
}
