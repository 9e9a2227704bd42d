// graph_memory.c - see graph_memory.h.
#include "arena/graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/problem.h"

static uint64_t page_bytes(const struct graph_memory *memory) { return memory->device->granularity; }

uint64_t graph_memory_bytes(const struct graph_memory *memory) { return memory->count * page_bytes(memory); }

uint64_t graph_memory_extent(const struct graph_memory *memory) {
  uint64_t largest = 0;
  for (const struct graph_range *range = memory->ranges; range != NULL; range = range->next) {
    if (range->extent > largest) largest = range->extent;
  }
  return largest;
}

static bool reserve(const struct graph_memory *memory, uint64_t *addr) {
  return driver_get()->reserve(addr, memory->reservation, 0, 0, 0) == DRIVER_OK;
}

enum graph_result graph_memory_init(struct graph_memory *memory, struct vmm_device *device, uint64_t reservation) {
  const uint64_t unit = device->granularity;
  *memory = (struct graph_memory){.device = device, .reservation = (reservation + unit - 1) & ~(unit - 1)};
  return reserve(memory, &memory->base) ? GRAPH_OK : GRAPH_NO_ADDRESSES;
}

void graph_memory_end(struct graph_memory *memory) {
  driver_get()->unreserve(memory->base, memory->reservation);
  free(memory->pages);
}

// Unmaps what lies behind the first `pages` of a range, in one call: the driver unmaps several whole
// mappings at once.
static bool trim(struct graph_range *range, size_t pages) {
  if (range->mapped <= pages) return true;
  const uint64_t unit = page_bytes(range->memory);
  if (driver_get()->unmap(range->base + pages * unit, (range->mapped - pages) * unit) != DRIVER_OK) return false;
  range->mapped = pages;
  return true;
}

// Maps the store's first `pages` into a range. False: nothing has changed.
static bool extend(struct graph_range *range, size_t pages) {
  const struct graph_memory *memory = range->memory;
  const uint64_t unit = page_bytes(memory);
  const size_t before = range->mapped;
  if (before >= pages) return true;
  while (range->mapped < pages && driver_get()->map(range->base + range->mapped * unit, unit, 0, memory->pages[range->mapped], 0) == DRIVER_OK) {
    range->mapped++;
  }
  if (range->mapped == pages && vmm_allow(memory->device, range->base + before * unit, (pages - before) * unit)) return true;
  trim(range, before);
  return false;
}

enum graph_result graph_range_see(struct graph_range *range, uint64_t bytes) {
  return extend(range, (size_t)(bytes / page_bytes(range->memory))) ? GRAPH_OK : GRAPH_DRIVER_FAILED;
}

enum graph_result graph_range_open(struct graph_memory *memory, struct graph_range **out) {
  struct graph_range *range = calloc(1, sizeof *range);
  if (range == NULL) return GRAPH_NO_HOST_MEMORY;
  range->memory = memory;
  if (!reserve(memory, &range->base)) {
    free(range);
    return GRAPH_NO_ADDRESSES;
  }
  // Linked first: if the mapping fails and cannot be undone, a sweep closes the range.
  range->next = memory->ranges;
  memory->ranges = range;
  if (extend(range, memory->count)) {
    *out = range;
    return GRAPH_OK;
  }
  if (!graph_range_close(range)) range->abandoned = true;
  return GRAPH_DRIVER_FAILED;
}

bool graph_range_close(struct graph_range *range) {
  struct graph_memory *memory = range->memory;
  if (!trim(range, 0)) return false;
  driver_get()->unreserve(range->base, memory->reservation);
  struct graph_range **link = &memory->ranges;
  while (*link != range) link = &(*link)->next;
  *link = range->next;
  free(range->grants);
  free(range);
  return true;
}

static void release_pages(struct graph_memory *memory, size_t first, size_t last) {
  for (size_t i = first; i < last; i++) driver_get()->release(memory->pages[i]);
}

// Makes all ranges map exactly the first `pages`. False: the driver refused.
static bool map_everywhere(struct graph_memory *memory, size_t pages) {
  for (struct graph_range *range = memory->ranges; range != NULL; range = range->next) {
    if (!trim(range, pages) || !extend(range, pages)) return false;
  }
  return true;
}

enum graph_result graph_memory_grow(struct graph_memory *memory, uint64_t bytes) {
  const size_t before = memory->count, wanted = (size_t)(bytes / page_bytes(memory));
  if (wanted <= before) return GRAPH_OK;
  if (!array_reserve(&memory->pages, &memory->room, wanted, sizeof *memory->pages)) return GRAPH_NO_HOST_MEMORY;
  // A page of an earlier growth that could not be undone may still be mapped where a new one belongs.
  if (!map_everywhere(memory, before)) return GRAPH_DRIVER_FAILED;
  size_t created = before;
  while (created < wanted && vmm_create(memory->device, page_bytes(memory), &memory->pages[created])) created++;
  if (created == wanted && map_everywhere(memory, wanted)) {
    memory->count = wanted;
    return GRAPH_OK;
  }
  const bool mapped = created == wanted;
  for (struct graph_range *range = memory->ranges; range != NULL; range = range->next) {
    if (!trim(range, before)) problem("GPU %d: pages of a graph memory could not be unmapped", memory->device->device);
  }
  release_pages(memory, before, created);
  return mapped ? GRAPH_DRIVER_FAILED : GRAPH_NO_MEMORY;
}

bool graph_memory_shrink(struct graph_memory *memory) {
  const size_t before = memory->count, wanted = (size_t)(graph_memory_extent(memory) / page_bytes(memory));
  if (wanted >= before) return true;
  bool ok = true;
  for (struct graph_range *range = memory->ranges; ok && range != NULL; range = range->next) ok = trim(range, wanted);
  if (!ok) {
    map_everywhere(memory, before);
    return false;
  }
  release_pages(memory, wanted, before);
  memory->count = wanted;
  return true;
}

bool graph_memory_allow_peer(const struct graph_memory *memory, int peer) {
  const struct driver_access access = {{VMM_ON_DEVICE, peer}, VMM_READ_AND_WRITE};
  bool all = true;
  for (const struct graph_range *range = memory->ranges; range != NULL; range = range->next) {
    const uint64_t bytes = range->mapped * page_bytes(memory);
    if (bytes > 0) all &= driver_get()->set_access(range->base, bytes, &access, 1) == DRIVER_OK;
  }
  return all;
}
