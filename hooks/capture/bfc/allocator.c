// allocator.c - best-fit with coalescing: requests and frees.
//
// A request takes the smallest free chunk that fits, at the lowest address among equals, and splits it
// unless little is left over; a freed chunk merges with its free neighbours at once. bfc.h has the
// rules in short, the package comment of bfc/ (Go) all of them.
#define _GNU_SOURCE
#include "base/array.h"
#include "bfc/internal.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64, LEAST_CHUNKS = 256 };

static bool sensible(const struct bfc_memory *memory) {
  return memory->granularity >= BFC_GRANULE && (memory->granularity & (memory->granularity - 1)) == 0;
}

struct bfc *bfc_new(const struct bfc_options *options, const struct bfc_memory *memory) {
  if (!sensible(memory)) return NULL;
  struct bfc *bfc = calloc(1, sizeof *bfc);
  if (bfc == NULL) return NULL;
  bfc->options = *options;
  bfc->memory = *memory;
  bfc->next_region = bfc_first_region(options);
  bfc->used = 1;
  bfc->snapshot.stale = true;
  return bfc;
}

void bfc_delete(struct bfc *bfc) {
  if (bfc == NULL) return;
  free(bfc->chunks);
  free(bfc->live.slots);
  bfc_pages_delete(bfc);
  free(bfc->regions);
  free(bfc->unmapped.items);
  free(bfc->snapshot.chunks);
  free(bfc);
}

// Room for the slots of one request. Not realloc, which would lose the alignment.
static bool reserve_slots(struct bfc *bfc) {
  if (bfc->recycled_count + (bfc->capacity - bfc->used) >= BFC_SLOTS_A_REQUEST && bfc->capacity != 0) return true;
  if (bfc->capacity > UINT32_MAX / 4) return false;
  uint32_t capacity = bfc->capacity == 0 ? LEAST_CHUNKS : 2 * bfc->capacity;
  struct bfc_chunk *grown = aligned_alloc(CACHE_LINE, capacity * sizeof *grown);
  if (grown == NULL) return false;
  if (bfc->chunks != NULL) memcpy(grown, bfc->chunks, bfc->used * sizeof *grown);
  free(bfc->chunks);
  bfc->chunks = grown;
  bfc->capacity = capacity;
  return true;
}

// The finalizer of a multiplicative hash: priorities only have to look random, and fixed
// ones make a run repeatable to the last pointer.
static uint32_t priority_of(uint32_t index) {
  index = (index ^ index >> 16) * UINT32_C(0x85ebca6b);
  index = (index ^ index >> 13) * UINT32_C(0xc2b2ae35);
  return index ^ index >> 16;
}

uint32_t bfc_take_slot(struct bfc *bfc) {
  uint32_t index = bfc->recycled;
  if (index != 0) {
    bfc->recycled = bfc->chunks[index].next;
    bfc->recycled_count--;
    return index;
  }
  index = bfc->used++;
  bfc->chunks[index] = (struct bfc_chunk){.priority = priority_of(index)};
  return index;
}

static void recycle(struct bfc *bfc, uint32_t index) {
  struct bfc_chunk *chunk = &bfc->chunks[index];
  chunk->state = BFC_UNUSED;
  chunk->next = bfc->recycled;
  bfc->recycled = index;
  bfc->recycled_count++;
}

// Adds the next chunk, which is not in the freeset, to a chunk.
static void absorb_next(struct bfc *bfc, uint32_t index) {
  struct bfc_chunk *chunk = &bfc->chunks[index];
  uint32_t gone = chunk->next;
  chunk->left = bfc_greatest(chunk->left, bfc->chunks[gone].left);
  chunk->size += bfc->chunks[gone].size;
  chunk->next = bfc->chunks[gone].next;
  bfc->chunks[chunk->next].prev = index;
  recycle(bfc, gone);
}

static void absorb_previous(struct bfc *bfc, uint32_t index) {
  struct bfc_chunk *chunk = &bfc->chunks[index];
  uint32_t gone = chunk->prev;
  chunk->left = bfc_greatest(chunk->left, bfc->chunks[gone].left);
  chunk->addr = bfc->chunks[gone].addr;
  chunk->size += bfc->chunks[gone].size;
  chunk->prev = bfc->chunks[gone].prev;
  bfc->chunks[chunk->prev].next = index;
  recycle(bfc, gone);
}

void bfc_merge(struct bfc *bfc, uint32_t index) {
  const uint32_t previous = bfc->chunks[index].prev, next = bfc->chunks[index].next;
  const bool before = bfc->chunks[previous].state == BFC_FREE, behind = bfc->chunks[next].state == BFC_FREE;
  if (before) bfc_freeset_remove(bfc, previous);
  if (behind) bfc_freeset_remove(bfc, next);
  if (before) {
    index = previous;
    absorb_next(bfc, index);
    if (behind) absorb_next(bfc, index);
  } else if (behind) {
    index = next;
    absorb_previous(bfc, index);
  }
  bfc_freeset_insert(bfc, index);
}

uint64_t bfc_handed_out(const struct bfc *bfc, uint64_t size, uint64_t rounded) {
  uint64_t rest = size - rounded;
  return rest >= rounded || rest >= BFC_MAX_SLACK || bfc->options.always_split || bfc->shortage ? rounded : size;
}

uint32_t bfc_search(struct bfc *bfc, uint64_t rounded) {
  uint32_t best = bfc_freeset_first(bfc, rounded, 0);
  return best == 0 || bfc->unmapped.count == 0 ? best : bfc_search_mapped(bfc, best, rounded);
}

// Makes a new chunk of the first `size` bytes of a chunk that is not in the freeset.
static uint32_t split_front(struct bfc *bfc, uint32_t index, uint64_t size) {
  const uint32_t front = bfc_take_slot(bfc);
  struct bfc_chunk *low = &bfc->chunks[front], *high = &bfc->chunks[index];
  low->addr = high->addr;
  low->size = size;
  low->left = high->left;
  low->requested = 0;
  low->state = BFC_FREE;
  low->prev = high->prev;
  low->next = index;
  bfc->chunks[low->prev].next = front;
  high->addr += size;
  high->size -= size;
  high->prev = front;
  return front;
}

// The same, with its last `size` bytes.
uint32_t bfc_split_back(struct bfc *bfc, uint32_t index, uint64_t size) {
  const uint32_t back = bfc_take_slot(bfc);
  struct bfc_chunk *low = &bfc->chunks[index], *high = &bfc->chunks[back];
  low->size -= size;
  high->addr = low->addr + low->size;
  high->size = size;
  high->left = low->left;
  high->requested = 0;
  high->state = BFC_FREE;
  high->prev = index;
  high->next = low->next;
  bfc->chunks[high->next].prev = back;
  low->next = back;
  return back;
}

void bfc_describe(const struct bfc *bfc, uint32_t index, struct bfc_block *out) {
  const struct bfc_chunk *chunk = &bfc->chunks[index];
  *out = (struct bfc_block){chunk->addr, chunk->size, chunk->requested, index};
}

void bfc_hand_out(struct bfc *bfc, uint32_t index, uint64_t requested) {
  struct bfc_chunk *chunk = &bfc->chunks[index];
  chunk->state = BFC_IN_USE;
  chunk->requested = requested;
  chunk->note = 0;
  bfc_live_insert(&bfc->live, chunk->addr, index);
  bfc_touch(bfc, index);
  bfc->snapshot.stale = true;
  bfc->stats.bytes_in_use += chunk->size;
}

uint32_t bfc_carve(struct bfc *bfc, uint32_t index, uint64_t addr, uint64_t size) {
  const uint64_t low = addr - bfc->chunks[index].addr, high = bfc->chunks[index].size - low - size;
  uint32_t taken = index;
  bfc_freeset_remove(bfc, index);
  if (low == 0 && high == 0) return index;
  if (low == 0) {
    taken = split_front(bfc, index, size);
  } else {
    taken = bfc_split_back(bfc, index, size + high);
    if (high > 0) bfc_freeset_insert(bfc, bfc_split_back(bfc, taken, high));
  }
  bfc_freeset_insert(bfc, index);
  return taken;
}

// Mapping part of a range leaves one range more.
bool bfc_reserve(struct bfc *bfc) {
  return reserve_slots(bfc) && bfc_live_reserve(&bfc->live) &&
         (bfc->unmapped.count == 0 || bfc_unmapped_reserve(bfc, 1));
}

static bool reserve_growth(struct bfc *bfc) {
  return array_reserve(&bfc->regions, &bfc->region_capacity, bfc->region_count + BFC_GROWTHS_A_REQUEST, sizeof *bfc->regions);
}

uint32_t bfc_cut(struct bfc *bfc, uint32_t chunk, uint64_t rounded) {
  const struct bfc_chunk *free = &bfc->chunks[chunk];
  return bfc_carve(bfc, chunk, free->addr, bfc_handed_out(bfc, free->size, rounded));
}

static uint32_t extend_and_cut(struct bfc *bfc, uint64_t rounded) {
  return bfc->shortage ? bfc_squeeze(bfc, rounded) : bfc_extend_and_cut(bfc, rounded);
}

// The chunk for a request, by best fit or growth, cut to what it gets; 0: no memory.
static uint32_t find_chunk(struct bfc *bfc, uint64_t rounded) {
  const uint32_t best = bfc_search(bfc, rounded);
  if (best != 0) return bfc_cut(bfc, best, rounded);
  return reserve_growth(bfc) ? extend_and_cut(bfc, rounded) : 0;
}

bool bfc_alloc(struct bfc *bfc, uint64_t size, struct bfc_block *out) {
  bfc->looked = false;
  if (size == 0 || size > BFC_MAX_SIZE || !bfc_reserve(bfc)) return false;
  const uint32_t found = find_chunk(bfc, (size + BFC_GRANULE - 1) & ~(uint64_t)(BFC_GRANULE - 1));
  if (found == 0) return false;
  bfc_hand_out(bfc, found, size);
  bfc_describe(bfc, found, out);
  return true;
}

bool bfc_free(struct bfc *bfc, uint64_t addr, struct bfc_block *out) {
  uint32_t index = bfc_live_remove(bfc, addr);
  if (index == 0) return false;
  bfc_describe(bfc, index, out);
  bfc->snapshot.stale = true;
  bfc->stats.bytes_in_use -= out->size;
  bfc->chunks[index].state = BFC_FREE;
  bfc->chunks[index].requested = 0;
  bfc->chunks[index].left = ++bfc->frees;
  bfc_leave(bfc, index);
  bfc_merge(bfc, index);
  return true;
}

bool bfc_find(const struct bfc *bfc, uint64_t addr, struct bfc_block *out) {
  uint32_t index = bfc_live_find(bfc, addr);
  if (index != 0) bfc_describe(bfc, index, out);
  return index != 0;
}

void bfc_set_note(struct bfc *bfc, uint32_t chunk, uint64_t note) { bfc->chunks[chunk].note = note; }
uint64_t bfc_note(const struct bfc *bfc, uint32_t chunk) { return bfc->chunks[chunk].note; }
