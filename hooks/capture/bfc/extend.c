// extend.c - regions, and how the memory is asked for more.
#include "bfc/internal.h"

#include <stdlib.h>
#include <string.h>

uint64_t bfc_first_region(const struct bfc_options *options) {
  return bfc_least(BFC_FIRST_REGION, bfc_round_up(options->limit, BFC_GRANULE));
}

static void double_next_region(struct bfc *bfc) {
  bfc->next_region = bfc->next_region > BFC_MAX_SIZE / 2 ? BFC_MAX_SIZE : 2 * bfc->next_region;
}

static uint64_t end_of(const struct bfc_region *region) { return region->addr + region->size; }

size_t bfc_region_at(const struct bfc *bfc, uint64_t addr) {
  size_t low = 0, high = bfc->region_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (end_of(&bfc->regions[middle]) <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Whether a grant keeps to the contract of bfc_memory. What does not counts as a refusal.
static bool valid_grant(const struct bfc *bfc, uint64_t addr, uint64_t granted, uint64_t asked, size_t at) {
  if (granted < asked || (addr | granted) % BFC_GRANULE != 0 || addr > UINT64_MAX - granted) return false;
  if (at > 0 && end_of(&bfc->regions[at - 1]) > addr) return false;
  if (at < bfc->region_count && addr + granted > bfc->regions[at].addr) return false;
  return granted <= bfc_room(bfc);
}

// Makes a grant the region at index `at`: one free chunk and the wall.
static void add_region(struct bfc *bfc, size_t at, uint64_t addr, uint64_t bytes) {
  uint32_t wall = bfc_take_slot(bfc), all = bfc_take_slot(bfc);
  struct bfc_chunk *w = &bfc->chunks[wall], *a = &bfc->chunks[all];
  w->addr = addr + bytes, w->size = 0, w->state = BFC_WALL, w->prev = w->next = all;
  a->addr = addr, a->size = bytes, a->state = BFC_FREE, a->prev = a->next = wall;
  w->requested = a->requested = 0;
  a->left = 0;
  bfc_freeset_insert(bfc, all);
  memmove(bfc->regions + at + 1, bfc->regions + at, (bfc->region_count - at) * sizeof *bfc->regions);
  bfc->region_count++;
  bfc->regions[at] = (struct bfc_region){.addr = addr, .size = bytes, .wall = wall};
  bfc_note_pages(bfc, &bfc->regions[at], bytes);
  bfc->last_grown = wall;
}

// Adds a grant to the end of a region.
static void lengthen(struct bfc *bfc, struct bfc_region *region, uint64_t bytes) {
  uint32_t added = bfc_take_slot(bfc);
  struct bfc_chunk *wall = &bfc->chunks[region->wall], *a = &bfc->chunks[added];
  a->addr = end_of(region), a->size = bytes, a->state = BFC_FREE, a->requested = 0, a->left = 0;
  a->prev = wall->prev, a->next = region->wall;
  bfc->chunks[wall->prev].next = added;
  wall->prev = added;
  wall->addr += bytes;
  region->size += bytes;
  bfc_note_pages(bfc, region, bytes);
  bfc->last_grown = region->wall;
  bfc_merge(bfc, added);
}

// Requests bytes from the memory and adds the grant to the regions.
static bool grow(struct bfc *bfc, uint64_t bytes) {
  const struct bfc_memory *memory = &bfc->memory;
  uint64_t addr, granted;
  if (!memory->grow(memory->self, bytes, &addr, &granted)) return false;
  size_t at = bfc_region_at(bfc, addr);
  if (!valid_grant(bfc, addr, granted, bytes, at)) return false;
  bfc->stats.reserved += granted;
  if (at > 0 && memory->coalesces && end_of(&bfc->regions[at - 1]) == addr)
    lengthen(bfc, &bfc->regions[at - 1], granted);
  else
    add_region(bfc, at, addr, granted);
  return true;
}

// bytes, a growth for a request of `rounded`, cut so that the headroom stays free on the device; but
// not below `rounded`.
static uint64_t keep_headroom(const struct bfc *bfc, uint64_t bytes, uint64_t rounded) {
  uint64_t headroom = bfc->options.headroom;
  if (headroom == 0 || bytes <= rounded) return bytes;
  uint64_t free = bfc->memory.device_free(bfc->memory.self);
  uint64_t left = free > headroom ? (free - headroom) & ~(bfc->memory.granularity - 1) : 0;
  return bfc_greatest(rounded, bfc_least(bytes, left));
}

// bytes, cut so that they stay within the limit when the memory rounds them up to pages; 0 where less
// than the request is left.
static uint64_t fit_padding(const struct bfc *bfc, uint64_t bytes, uint64_t rounded) {
  uint64_t fits = bfc_room(bfc) & ~(bfc->memory.granularity - 1);
  if (bytes <= fits) return bytes;  // a multiple of the page lies between bytes and the room
  return fits >= rounded ? fits : 0;
}

// How many bytes to request after bytes were refused. The factor is a 32-bit float, as in the
// reference, and so is the product.
static uint64_t less_than(uint64_t bytes) {
  float product = (float)bytes * 0.9F;
  uint64_t less = bfc_round_up((uint64_t)product, BFC_GRANULE);
  return less >= bytes ? bytes - BFC_GRANULE : less;
}

// Grows by the next region: growth double.
static bool extend(struct bfc *bfc, uint64_t rounded) {
  uint64_t available = bfc_room(bfc) & ~(uint64_t)(BFC_GRANULE - 1);
  if (rounded > available) return false;
  bool doubled = rounded > bfc->next_region;
  while (rounded > bfc->next_region) double_next_region(bfc);
  uint64_t bytes = keep_headroom(bfc, bfc_least(bfc->next_region, available), rounded);
  bytes = fit_padding(bfc, bytes, rounded);
  if (bytes == 0) return false;
  while (!grow(bfc, bytes)) {
    bytes = less_than(bytes);
    if (bytes < rounded) return false;
  }
  if (!doubled) double_next_region(bfc);
  return true;
}

// Grows by lack bytes: other growths.
bool bfc_extend_by(struct bfc *bfc, uint64_t lack) {
  uint64_t available = bfc_room(bfc) & ~(uint64_t)(BFC_GRANULE - 1);
  if (lack > available) return false;
  uint64_t bytes = fit_padding(bfc, lack, lack);
  return bytes != 0 && grow(bfc, bytes);
}

// The free chunk that a grant would join, or 0. A tail that is large enough for
// the request counts as none: the search did not use it, since the memory refused to map its unmapped
// part. So does one with a retired address, and one that the grant would not lie behind.
uint32_t bfc_free_tail(struct bfc *bfc, uint64_t rounded) {
  if (bfc->last_grown == 0 || !bfc->memory.coalesces) return 0;
  const uint32_t tail = bfc->chunks[bfc->last_grown].prev;
  const struct bfc_chunk *chunk = &bfc->chunks[tail];
  if (chunk->state != BFC_FREE || chunk->size >= rounded) return 0;
  if (bfc->memory.adjoins != NULL && !bfc->memory.adjoins(bfc->memory.self, rounded - chunk->size)) return 0;
  const uint64_t unit = bfc->memory.granularity;
  return bfc_has_retired(bfc, (struct bfc_range){chunk->addr & ~(unit - 1), bfc_round_up(chunk->addr + chunk->size, unit)}) ? 0 : tail;
}

static uint32_t search_and_cut(struct bfc *bfc, uint64_t rounded) {
  const uint32_t found = bfc_search(bfc, rounded);
  return found == 0 ? 0 : bfc_cut(bfc, found, rounded);
}

uint32_t bfc_extend_and_cut(struct bfc *bfc, uint64_t rounded) {
  if (bfc->options.growth == BFC_DOUBLE) return extend(bfc, rounded) ? search_and_cut(bfc, rounded) : 0;
  return bfc_lengthen_and_cut(bfc, rounded);
}

// Grows by what a request lacks behind a free tail, or 0.
static bool extend_for(struct bfc *bfc, uint64_t lack, uint32_t tail) {
  return bfc->options.growth == BFC_PAGES ? bfc_extend_by_pages(bfc, lack, tail) : bfc_extend_by(bfc, lack);
}

// Grows by a whole request. With growth pages the block is at the start of the grant, which may have joined a free chunk that did not
// serve: it would be found again.
static uint32_t extend_whole(struct bfc *bfc, uint64_t rounded) {
  const uint32_t before = bfc->last_grown;
  const uint64_t end = bfc->chunks[before].addr;
  if (!extend_for(bfc, rounded, 0)) return 0;
  if (bfc->options.growth != BFC_PAGES) return search_and_cut(bfc, rounded);
  const uint32_t last = bfc->chunks[bfc->last_grown].prev;
  const uint64_t addr = bfc->last_grown == before ? end : bfc->chunks[last].addr;
  return bfc_carve(bfc, last, addr, bfc_handed_out(bfc, bfc->chunks[last].addr + bfc->chunks[last].size - addr, rounded));
}

uint32_t bfc_lengthen_and_cut(struct bfc *bfc, uint64_t rounded) {
  const uint32_t tail = bfc_free_tail(bfc, rounded);
  if (tail == 0) return extend_whole(bfc, rounded);
  bfc->wanted = bfc_unmapped_within(bfc, bfc->chunks[tail].addr, bfc->chunks[tail].addr + bfc->chunks[tail].size);
  const bool extended = extend_for(bfc, rounded - bfc->chunks[tail].size, tail);
  bfc->wanted = 0;
  if (!extended) return 0;
  const uint32_t found = search_and_cut(bfc, rounded);
  // Else the grant is not adjacent to the tail, or the tail's unmapped part could not be mapped.
  return found != 0 ? found : extend_whole(bfc, rounded);
}
