// shortage.c - see shortage.h.
#include "arena/shortage.h"

#include <stdlib.h>

#include "base/array.h"

// Addresses of blocks with slack, collected before anything is changed.
struct slack {
  uint64_t *blocks;
  size_t count, room;
};

static void collect(void *self, const struct bfc_chunk_info *chunk) {
  struct slack *slack = self;
  if (chunk->free || chunk->size - chunk->requested < BFC_GRANULE) return;
  if (!array_reserve(&slack->blocks, &slack->room, slack->count + 1, sizeof *slack->blocks)) return;  // it keeps its slack
  slack->blocks[slack->count++] = chunk->addr;
}

static void shrink(struct arena *arena, uint64_t addr) {
  struct bfc_block before, after;
  if (!bfc_find(arena->bfc, addr, &before) || !arena_live(arena, &before) || !bfc_shrink(arena->bfc, addr, &after)) return;
  arena->gpu->frees++;
  counters_shrunk(&arena->gpu->stats, before.size - after.size);
  arena_event(arena, MEMPROF_SHRINK, addr, after.requested, after.size, 0);
}

static void shrink_all(struct arena *arena) {
  struct slack slack = {0};
  bfc_walk(arena->bfc, &slack, collect);
  for (size_t i = 0; i < slack.count; i++) shrink(arena, slack.blocks[i]);
  free(slack.blocks);
  arena->shrunk = true;
}

static bool shrinks(const struct arena *arena) { return arena->home == NULL && !arena->paused && !arena->shrunk; }

bool shortage_due(const struct gpu *gpu) {
  if (!gpu->shortage || !gpu->short_now) return true;
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (shrinks(arena)) return true;
  }
  return false;
}

void shortage_join(struct arena *arena) {
  if (!arena->gpu->shortage || arena->memory.kind->shared || bfc_in_shortage(arena->bfc)) return;
  bfc_shortage(arena->bfc);
  arena_event(arena, MEMPROF_SHORTAGE, 0, 0, 0, 0);
}

void shortage_begin(struct gpu *gpu) {
  gpu->shortage = gpu->short_now = true;
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    shortage_join(arena);
    if (shrinks(arena)) shrink_all(arena);
  }
}
