// stats.c - counters, listings, and the chunk around an address.
#include "base/array.h"
#include "bfc/internal.h"

uint64_t bfc_in_use(const struct bfc *bfc) { return bfc->stats.bytes_in_use; }
uint64_t bfc_reserved(const struct bfc *bfc) { return bfc->stats.reserved; }

uint64_t bfc_largest_free(struct bfc *bfc) {
  uint32_t last = bfc_freeset_largest(bfc);
  return last == 0 ? 0 : bfc->chunks[last].size;
}

uint64_t bfc_next_region(const struct bfc *bfc) { return bfc->next_region; }

uint64_t bfc_wanted(const struct bfc *bfc) { return bfc->wanted; }

void bfc_walk(const struct bfc *bfc, void *self, void (*visit)(void *self, const struct bfc_chunk_info *chunk)) {
  for (size_t i = 0; i < bfc->region_count; i++) {
    uint32_t wall = bfc->regions[i].wall;
    for (uint32_t at = bfc->chunks[wall].next; at != wall; at = bfc->chunks[at].next) {
      const struct bfc_chunk *chunk = &bfc->chunks[at];
      struct bfc_chunk_info info = {chunk->addr, chunk->size, chunk->requested, chunk->left, chunk->state == BFC_FREE,
                                    chunk->addr == bfc->regions[i].addr};
      visit(self, &info);
    }
  }
}

struct mapped_visit {
  const struct bfc *bfc;
  void *self;
  void (*visit)(void *self, const struct bfc_chunk_info *piece);
};

static void visit_piece(const struct mapped_visit *to, const struct bfc_chunk_info *chunk, uint64_t from, uint64_t end) {
  struct bfc_chunk_info piece = {from, end - from, chunk->requested, chunk->left, chunk->free, chunk->region_start && from == chunk->addr};
  if (from < end) to->visit(to->self, &piece);
}

// Visits the parts of a chunk between its unmapped ranges.
static void visit_mapped(void *context, const struct bfc_chunk_info *chunk) {
  const struct mapped_visit *to = context;
  const struct bfc_ranges *unmapped = &to->bfc->unmapped;
  uint64_t at = chunk->addr, end = chunk->addr + chunk->size;
  for (size_t i = bfc_unmapped_from(to->bfc, at); i < unmapped->count && unmapped->items[i].from < end; i++) {
    visit_piece(to, chunk, at, unmapped->items[i].from);
    at = unmapped->items[i].to;
  }
  visit_piece(to, chunk, at, end);
}

void bfc_walk_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, const struct bfc_chunk_info *chunk)) {
  struct mapped_visit to = {bfc, self, visit};
  bfc_walk(bfc, &to, visit_mapped);
}

struct free_visit {
  void *self;
  void (*visit)(void *self, uint64_t addr, uint64_t bytes);
};

static void visit_free(void *context, const struct bfc_chunk_info *piece) {
  const struct free_visit *to = context;
  if (piece->free) to->visit(to->self, piece->addr, piece->size);
}

void bfc_free_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes)) {
  struct free_visit to = {self, visit};
  bfc_walk_mapped(bfc, &to, visit_free);
}

// Lists the chunks in use by address; false when host memory is short.
static bool take_snapshot(struct bfc *bfc) {
  struct bfc_snapshot *snapshot = &bfc->snapshot;
  if (!snapshot->stale) return true;
  if (!array_reserve(&snapshot->chunks, &snapshot->capacity, bfc->live.count, sizeof *snapshot->chunks)) return false;
  snapshot->count = 0;
  for (size_t i = 0; i < bfc->region_count; i++) {
    uint32_t wall = bfc->regions[i].wall;
    for (uint32_t at = bfc->chunks[wall].next; at != wall; at = bfc->chunks[at].next)
      if (bfc->chunks[at].state == BFC_IN_USE) snapshot->chunks[snapshot->count++] = at;
  }
  snapshot->stale = false;
  return true;
}

// The list is made at the first call after a change, so that requests do not take the time. Without
// host memory for it no chunk is found.
bool bfc_containing(struct bfc *bfc, uint64_t addr, struct bfc_block *out) {
  if (bfc_find(bfc, addr, out)) return true;
  if (!take_snapshot(bfc)) return false;
  const struct bfc_snapshot *snapshot = &bfc->snapshot;
  size_t low = 0, high = snapshot->count;  // the first that starts after addr
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (bfc->chunks[snapshot->chunks[middle]].addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return false;
  uint32_t index = snapshot->chunks[low - 1];
  const struct bfc_chunk *chunk = &bfc->chunks[index];
  if (addr - chunk->addr >= chunk->size) return false;
  return bfc_find(bfc, chunk->addr, out);
}
