// checkpoint.c - lists the chunks of all arenas, and restores the live blocks of a pool.
//
// Torch's graph trees note which blocks of a pool are live after a capture, and restore them before they
// capture another continuation. Free chunks always merge, so the live blocks determine all chunks:
// freeing every block of the pool and allocating the noted ones at their addresses gives the chunks that
// were there.
#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/hook.h"
#include "base/problem.h"
#include "device/captures.h"
#include "memprof.h"
#include "spool/spool.h"

// A walk over the chunks of one arena.
struct walk {
  const struct memprof_visitor *visitor;
  struct arena *arena;
  uint64_t end;      // of the chunk before
  int32_t segments;  // so far
};

static void visit(void *self, const struct bfc_chunk_info *info) {
  struct walk *walk = self;
  const struct arena *arena = walk->arena;
  const struct memprof_visitor *visitor = walk->visitor;
  if (info->region_start || info->addr != walk->end) {
    const struct memprof_segment segment = {
        .addr = info->addr,
        .stream = arena->stream,
        .pool = {arena->pool[0], arena->pool[1]},
        .from_source = source_holds_any(arena),
        .number = source_number(arena, info->addr, walk->segments),
    };
    walk->segments++;
    visitor->segment(visitor->self, &segment);
  }
  walk->end = info->addr + info->size;
  struct memprof_chunk chunk = {info->addr, info->size, info->requested, MEMPROF_CHUNK_FREE};
  struct bfc_block block;
  if (!info->free && bfc_find(arena->bfc, info->addr, &block)) {
    chunk.state = arena_live(arena, &block) ? MEMPROF_CHUNK_LIVE : MEMPROF_CHUNK_PENDING;
  }
  visitor->chunk(visitor->self, &chunk);
}

void memprof_walk(int device, const struct memprof_visitor *visitor) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    struct walk walk = {.visitor = visitor, .arena = arena};
    bfc_walk_mapped(arena->bfc, &walk, visit);
  }
  lock_give(&gpu->lock);
}

void memprof_checkpoint(int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
  struct arena *arena = gpu->arenas;
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

// Frees all blocks of an arena and calls `freed` for each live one. False: no host memory, or a block is
// pending on work that could not be waited for.
static bool clear(struct arena *arena, void *self, void (*freed)(void *self, void *ptr)) {
  struct addresses used = {0};
  if (arena->pending.count > 0) pending_poll(arena, true);
  bfc_walk(arena->bfc, &used, note_used);
  bool ok = !used.short_of_memory && arena->pending.count == 0;
  for (size_t i = 0; ok && i < used.count; i++) {
    // Graphs order their own work, so what other streams did with the block is over.
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
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return 0;
  bool ok = true, waits = false;
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) waits |= arena->pool[0] == pool0 && arena->pool[1] == pool1 && arena->pending.count > 0;
  if (waits) fence_wait(gpu);
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
