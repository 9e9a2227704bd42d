// handles.c - see handles.h.
#include "arena/handles.h"

#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"

// Free mapped ranges of an arena, collected before anything is changed.
struct ranges {
  struct {
    uint64_t addr, bytes;
  } *list;
  size_t count, room;
};

static void collect(void *self, uint64_t addr, uint64_t bytes) {
  struct ranges *ranges = self;
  if (!array_reserve(&ranges->list, &ranges->room, ranges->count + 1, sizeof *ranges->list)) return;  // less is unmapped
  ranges->list[ranges->count].addr = addr;
  ranges->list[ranges->count++].bytes = bytes;
}

static bool registered(const struct vmm *vmm, size_t at) { return vmm_is_registered(vmm, vmm->mappings[at].addr, vmm->mappings[at].bytes); }

// The mappings [*first, *last) that lie wholly in a range, and the bytes of those that can be unmapped.
static uint64_t whole_handles(const struct vmm *vmm, uint64_t addr, uint64_t bytes, size_t *first, size_t *last) {
  uint64_t sum = 0;
  *first = vmm_find(vmm, addr);
  if (*first < vmm->count && vmm->mappings[*first].addr < addr) ++*first;
  for (*last = *first; *last < vmm->count; ++*last) {
    const struct vmm_mapping *mapping = &vmm->mappings[*last];
    if (mapping->addr + mapping->bytes > addr + bytes) break;
    if (!registered(vmm, *last)) sum += mapping->bytes;
  }
  return sum;
}

static void measure(void *self, uint64_t addr, uint64_t bytes) {
  const struct arena *arena = ((void **)self)[0];
  uint64_t *sum = ((void **)self)[1];
  size_t first, last;
  *sum += whole_handles(&arena->memory.vmm, addr, bytes, &first, &last);
}

uint64_t handles_free(const struct arena *arena) {
  uint64_t sum = 0;
  if (arena_pinned(arena)) return 0;
  const void *self[] = {arena, &sum};
  bfc_free_mapped(arena->bfc, self, measure);
  return sum + arena->memory.vmm.unplaced_bytes;
}

// Releases the mappings [from, last), which are adjacent and make `sum` bytes of a free range.
static bool release_run(struct arena *arena, size_t from, size_t last, uint64_t sum) {
  const uint64_t start = arena->memory.vmm.mappings[from].addr;
  const int64_t handles = (int64_t)(last - from);
  if (!bfc_unmap(arena->bfc, start, sum)) return false;
  vmm_release(&arena->memory.vmm, from, last);
  arena_unmapped(arena, start, sum, handles);
  return true;
}

// Releases handles that lie completely in one free range, from its end on, and adds their bytes to *given. All of the
// range is mapped, so that mappings between two registered ones are adjacent.
static void release_in(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted, uint64_t *given) {
  size_t first, last;
  whole_handles(&arena->memory.vmm, addr, bytes, &first, &last);
  for (size_t from; last > first && *given < wanted; last = from) {
    uint64_t sum = 0;
    for (from = last; from > first && *given + sum < wanted && !registered(&arena->memory.vmm, from - 1); from--) sum += arena->memory.vmm.mappings[from - 1].bytes;
    if (from == last)
      from--;  // it is registered
    else if (!release_run(arena, from, last, sum))
      return;
    else
      *given += sum;
  }
}

void handles_release(struct arena *arena, uint64_t wanted, uint64_t *given) {
  struct ranges ranges = {0};
  bfc_clear_mapped(arena->bfc, &ranges, collect);
  for (size_t i = ranges.count; i > 0 && *given < wanted; i--) {
    release_in(arena, ranges.list[i - 1].addr, ranges.list[i - 1].bytes, wanted, given);
  }
  free(ranges.list);
}

uint64_t handles_within(const struct arena *arena, uint64_t addr, uint64_t bytes) {
  size_t first, last;
  return whole_handles(&arena->memory.vmm, addr, bytes, &first, &last);
}

uint64_t handles_release_within(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted) {
  uint64_t given = 0;
  release_in(arena, addr, bytes, wanted, &given);
  return given;
}
