// graph_memory_heap.c - the arenas in each range of a graph memory, and their events.
//
// A pool that has a range has an arena for each stream, as any pool, and its arenas grow in the range: a
// growth takes the next addresses. If the store lacks pages for it, that is a `map` event of the store,
// whose bytes are the device's. The growth itself is an `alias` event of the arena, which takes no bytes
// of the device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/graph_memory.h"
#include "base/array.h"
#include "base/options.h"
#include "base/problem.h"
#include "spool/spool.h"

static struct graph_memory *memory_of(const struct arena *arena) { return arena->home->range->memory; }

static uint32_t store_context(const struct graph_memory *memory) {
  char text[32];
  snprintf(text, sizeof text, "store=%u", memory->arena);
  return spool_string(text);
}

static void store_event(const struct graph_memory *memory, enum memprof_kind kind, uint64_t offset, uint64_t requested, uint64_t provided) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = memory->device->device,
      .arena = memory->arena,
      .addr = memory->base + offset,
      .requested = requested,
      .provided = provided,
  });
}

static void count_pages(struct gpu *gpu, int64_t bytes) {
  gpu_mapped(gpu, bytes);
  counters_mapped(&gpu->stats, bytes, bytes / (int64_t)gpu->vmm.granularity);
}

// Has the store grow to `bytes`. False: the device or the limit has no room.
static bool have_pages(struct gpu *gpu, struct graph_memory *memory, uint64_t bytes) {
  const uint64_t before = graph_memory_bytes(memory);
  if (bytes <= before) return true;
  uint64_t free_bytes, total;
  if (!gpu_allows(gpu, bytes - before)) return false;
  if (driver_memory(gpu->vmm.device, &free_bytes, &total) && free_bytes < bytes - before) return false;
  if (graph_memory_grow(memory, bytes) != GRAPH_OK) return false;
  count_pages(gpu, (int64_t)(bytes - before));
  store_event(memory, MEMPROF_MAP, before, bytes - before, bytes - before);
  return true;
}

// Releases the pages behind the largest extent.
static void shrink(struct gpu *gpu, struct graph_memory *memory) {
  const uint64_t before = graph_memory_bytes(memory);
  if (!graph_memory_shrink(memory)) problem("GPU %d: the driver refused to unmap pages of a graph memory", gpu->vmm.device);
  const uint64_t now = graph_memory_bytes(memory);
  if (now == before) return;
  count_pages(gpu, -(int64_t)(before - now));
  store_event(memory, MEMPROF_UNMAP, now, 0, before - now);
}

static bool make_room(struct graph_range *range) {
  return array_reserve(&range->grants, &range->grant_room, range->grant_count + 1, sizeof *range->grants);
}

static bool take(struct arena *arena, uint64_t bytes, uint64_t *addr) {
  struct graph_range *range = arena->home->range;
  struct graph_memory *memory = range->memory;
  if (bytes > memory->reservation - range->extent || !make_room(range)) return false;
  *addr = range->base + range->extent;
  if (!have_pages(arena->gpu, memory, range->extent + bytes)) return false;
  if (graph_range_see(range, range->extent + bytes) == GRAPH_OK && arena_add_range(arena, *addr, bytes)) return true;
  shrink(arena->gpu, memory);  // the new pages are not in use yet
  return false;
}

// Adds a grant to the range, joined with the one before if that is the same arena's.
static void note(struct graph_range *range, const struct arena *arena, uint64_t addr, uint64_t bytes) {
  struct graph_grant *last = range->grant_count == 0 ? NULL : &range->grants[range->grant_count - 1];
  if (last != NULL && last->arena == arena && last->addr + last->bytes == addr) {
    last->bytes += bytes;
  } else {
    range->grants[range->grant_count++] = (struct graph_grant){arena, addr, bytes};
  }
  range->extent += bytes;
}

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  struct arena *arena = self;
  const uint64_t unit = arena->gpu->vmm.granularity;
  *granted = (bytes + unit - 1) & ~(unit - 1);
  if (!take(arena, *granted, addr)) {
    arena_event(arena, MEMPROF_GROW_FAILED, 0, bytes, 0, 0);
    return false;
  }
  struct graph_range *range = arena->home->range;
  arena_event(arena, MEMPROF_ALIAS, *addr, range->extent, *granted, store_context(range->memory));
  note(range, arena, *addr, *granted);
  return true;
}

// Free memory of a range is unmapped with the range only, so the allocator has nothing to map again.
static bool map(void *self, uint64_t addr, uint64_t bytes) {
  (void)self, (void)addr, (void)bytes;
  return false;
}

// Returns to the range what an arena had of it.
static void leave(struct arena *arena) {
  struct graph_range *range = arena->home->range;
  size_t kept = 0;
  for (size_t i = 0; i < range->grant_count; i++) {
    const struct graph_grant grant = range->grants[i];
    if (grant.arena != arena) {
      range->grants[kept++] = grant;
      continue;
    }
    bfc_unmap(arena->bfc, grant.addr, grant.bytes);
    arena_event(arena, MEMPROF_UNALIAS, grant.addr, grant.addr - range->base, grant.bytes, store_context(memory_of(arena)));
  }
  range->grant_count = kept;
}

static void place(const struct arena *arena, struct memory_place *out) {
  const struct graph_range *range = arena->home->range;
  out->base = range->base;
  out->bytes = range->memory->reservation;
  snprintf(out->text, sizeof out->text, "\tgraph_memory=%u\tshape=%s", range->memory->number, range->name);
}

const struct memory_kind memory_range = {.coalesces = true, .shared = true, .grow = grow, .map = map, .leave = leave, .place = place};

const struct graph_range *graph_range_of(const struct arena *arena) { return arena->home == NULL ? NULL : arena->home->range; }

bool graph_range_end(struct gpu *gpu, struct graph_range *range) {
  struct graph_memory *memory = range->memory;
  if (range->fence == 0) range->fence = fence_force(gpu);  // kernels may still use any of the store's pages
  if (range->fence == 0 || !fence_over(gpu, range->fence) || !graph_range_close(range)) return false;
  shrink(gpu, memory);
  return true;
}

// Whether a memory was closed and has neither ranges nor pages left.
static bool over(const struct graph_memory *memory) { return memory->closed && memory->ranges == NULL && memory->count == 0; }

bool graph_memory_waits(const struct gpu *gpu) {
  const struct graph_memory *memory = gpu->graph_memories;
  while (memory != NULL && !over(memory)) memory = memory->next;
  return memory != NULL;
}

void graph_memory_sweep(struct gpu *gpu) {
  for (struct graph_memory **link = &gpu->graph_memories; *link != NULL;) {
    struct graph_memory *memory = *link;
    for (struct graph_range *range = memory->ranges, *next; range != NULL; range = next) {
      next = range->next;
      if (range->abandoned) graph_range_end(gpu, range);
    }
    if (!over(memory)) {
      link = &memory->next;
      continue;
    }
    *link = memory->next;
    store_event(memory, MEMPROF_POOL_RELEASE, 0, 0, 0);
    graph_memory_end(memory);
    free(memory);
  }
}
