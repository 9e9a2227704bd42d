// unmapped.c - the ranges of free chunks that are unmapped.
//
// Placement does not look at them, but with growth pages (ready.c). When a range is about to be handed out, each maximal unmapped range
// within it is mapped, addresses ascending and within the limit, all or nothing. Where that is refused,
// the first larger chunk whose part is mapped is taken instead.
#include "base/array.h"
#include "bfc/internal.h"

#include <string.h>

size_t bfc_unmapped_from(const struct bfc *bfc, uint64_t addr) {
  size_t low = 0, high = bfc->unmapped.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (bfc->unmapped.items[middle].to <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

uint64_t bfc_unmapped_within(const struct bfc *bfc, uint64_t from, uint64_t to) {
  const struct bfc_ranges *set = &bfc->unmapped;
  uint64_t bytes = 0;
  for (size_t i = bfc_unmapped_from(bfc, from); i < set->count && set->items[i].from < to; i++)
    bytes += bfc_least(to, set->items[i].to) - bfc_greatest(from, set->items[i].from);
  return bytes;
}

// Replaces the ranges with index [at, end) by `count` others.
static void replace(struct bfc_ranges *set, size_t at, size_t end, const struct bfc_range *ranges, size_t count) {
  memmove(set->items + at + count, set->items + end, (set->count - end) * sizeof *set->items);
  memcpy(set->items + at, ranges, count * sizeof *ranges);
  set->count = set->count - (end - at) + count;
}

bool bfc_unmapped_reserve(struct bfc *bfc, size_t more) {
  struct bfc_ranges *set = &bfc->unmapped;
  return array_reserve(&set->items, &set->capacity, set->count + more, sizeof *set->items);
}

void bfc_unmapped_add(struct bfc *bfc, uint64_t from, uint64_t to) {
  struct bfc_ranges *set = &bfc->unmapped;
  struct bfc_range range = {from, to};
  size_t at = bfc_unmapped_from(bfc, range.from), end = at;
  if (at > 0 && set->items[at - 1].to == range.from) range.from = set->items[--at].from;
  if (end < set->count && set->items[end].from == range.to) range.to = set->items[end++].to;
  replace(set, at, end, &range, 1);
}

static void remove_range(struct bfc *bfc, uint64_t from, uint64_t to) {
  struct bfc_ranges *set = &bfc->unmapped;
  size_t at = bfc_unmapped_from(bfc, from), end = at, count = 0;
  struct bfc_range rest[2];
  for (; end < set->count && set->items[end].from < to; end++) {
    if (set->items[end].from < from) rest[count++] = (struct bfc_range){set->items[end].from, from};
    if (set->items[end].to > to) rest[count++] = (struct bfc_range){to, set->items[end].to};
  }
  if (end > at) replace(set, at, end, rest, count);
}

struct bfc_range bfc_reach(const struct bfc *bfc, uint32_t chunk, uint64_t rounded) {
  const struct bfc_chunk *c = &bfc->chunks[chunk];
  uint64_t granularity = bfc->memory.granularity;
  return (struct bfc_range){c->addr & ~(granularity - 1),
                            bfc_round_up(c->addr + bfc_handed_out(bfc, c->size, rounded), granularity)};
}

// Range i of the set, cut to `within`.
static struct bfc_range missing(const struct bfc *bfc, size_t i, struct bfc_range within) {
  struct bfc_range range = bfc->unmapped.items[i];
  return (struct bfc_range){bfc_greatest(range.from, within.from), bfc_least(range.to, within.to)};
}

bool bfc_map_range(struct bfc *bfc, struct bfc_range range) {
  const struct bfc_memory *memory = &bfc->memory;
  size_t first = bfc_unmapped_from(bfc, range.from), i = first;
  uint64_t reserved = bfc->stats.reserved;
  bfc->wanted = bfc_unmapped_within(bfc, range.from, range.to);
  for (; i < bfc->unmapped.count && bfc->unmapped.items[i].from < range.to; i++) {
    struct bfc_range gap = missing(bfc, i, range);
    bfc->wanted -= gap.to - gap.from;
    if (gap.to - gap.from > bfc_room(bfc) || !memory->map(memory->self, gap.from, gap.to - gap.from)) {
      while (i-- > first) {
        gap = missing(bfc, i, range);
        memory->unmap(memory->self, gap.from, gap.to - gap.from);
      }
      bfc->stats.reserved = reserved;
      bfc->wanted = 0;
      return false;
    }
    bfc->stats.reserved += gap.to - gap.from;
  }
  for (size_t k = first; k < i; k++) bfc_back_again(bfc, missing(bfc, k, range));
  for (size_t k = first; k < i; k++) bfc_back_others(bfc, missing(bfc, k, range));
  remove_range(bfc, range.from, range.to);
  return true;
}

bool bfc_map_for(struct bfc *bfc, struct bfc_range range) {
  return bfc->options.growth == BFC_PAGES ? bfc_map_pages(bfc, range) : bfc_map_range(bfc, range);
}

uint32_t bfc_search_mapped(struct bfc *bfc, uint32_t best, uint64_t rounded) {
  const uint32_t most_ready = bfc_most_ready(bfc, best, rounded);
  if (most_ready != 0 && bfc_map_for(bfc, bfc_reach(bfc, most_ready, rounded))) return most_ready;
  if (most_ready != best && !bfc_has_retired(bfc, bfc_reach(bfc, best, rounded)) && bfc_map_for(bfc, bfc_reach(bfc, best, rounded))) return best;
  for (uint32_t chunk = bfc_freeset_after(bfc, best); chunk != 0; chunk = bfc_freeset_after(bfc, chunk)) {
    struct bfc_range range = bfc_reach(bfc, chunk, rounded);
    if (bfc_unmapped_within(bfc, range.from, range.to) == 0) return chunk;
  }
  return 0;
}

bool bfc_remap(struct bfc *bfc, uint64_t addr, uint64_t bytes) {
  const uint64_t end = addr + bytes;
  if (end <= addr || ((addr | bytes) & (bfc->memory.granularity - 1)) != 0) return false;
  if (bfc_unmapped_within(bfc, addr, end) != bytes || bytes > bfc_room(bfc) || !bfc_unmapped_reserve(bfc, 1)) return false;
  remove_range(bfc, addr, end);
  bfc_backed(bfc, (struct bfc_range){addr, end});
  bfc->stats.reserved += bytes;
  return true;
}

// Whether one free chunk has all of [from, to). Looks at free chunks of that size and larger only, which
// are few where the range is pages.
static bool is_free(struct bfc *bfc, uint64_t from, uint64_t to) {
  for (uint32_t i = bfc_freeset_first(bfc, to - from, 0); i != 0; i = bfc_freeset_after(bfc, i)) {
    const struct bfc_chunk *chunk = &bfc->chunks[i];
    if (chunk->addr <= from && to <= chunk->addr + chunk->size) return true;
  }
  return false;
}

bool bfc_unmap(struct bfc *bfc, uint64_t addr, uint64_t bytes) {
  uint64_t end = addr + bytes;
  if (end <= addr || ((addr | bytes) & (bfc->memory.granularity - 1)) != 0) return false;
  if (!is_free(bfc, addr, end) || bfc_unmapped_within(bfc, addr, end) != 0) return false;
  if (!bfc_unmapped_reserve(bfc, 1)) return false;
  bfc_unmapped_add(bfc, addr, end);
  bfc_unbacked(bfc, (struct bfc_range){addr, end});
  bfc->stats.reserved -= bytes;
  return true;
}
