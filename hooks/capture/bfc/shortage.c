// shortage.c - how requests are served once the device is short of memory.
//
// Then each page counts: a request gets no slack, growth is by what it lacks, and the slack of older
// blocks is freed. A chunk is taken as ever, by best fit, and where the memory refuses to map it, one
// whose part is mapped. Failing both, the block goes where the fewest pages have to be mapped. If the
// owner has unmapped all free pages before, a request fails only if the pages that it touches and those
// that other blocks touch are more than there are.
#include "bfc/internal.h"

void bfc_shortage(struct bfc *bfc) { bfc->shortage = true; }
bool bfc_in_shortage(const struct bfc *bfc) { return bfc->shortage; }

bool bfc_shrink(struct bfc *bfc, uint64_t addr, struct bfc_block *out) {
  const uint32_t index = bfc_live_find(bfc, addr);
  if (index == 0 || !bfc_reserve(bfc)) return false;
  const struct bfc_chunk *chunk = &bfc->chunks[index];
  const uint64_t slack = chunk->size - bfc_round_up(chunk->requested, BFC_GRANULE);
  if (slack == 0) return false;
  bfc->stats.bytes_in_use -= slack;
  const uint32_t rest = bfc_split_back(bfc, index, slack);
  bfc->chunks[rest].left = ++bfc->frees;
  bfc_leave(bfc, rest);
  bfc_merge(bfc, rest);
  bfc_describe(bfc, index, out);
  return true;
}

// A place for a request: a range of a free chunk.
struct place {
  uint32_t chunk;  // 0: there is none
  uint64_t addr;
  uint64_t lack;   // unmapped bytes of the pages that it touches
};

static struct bfc_range pages_of(const struct bfc *bfc, uint64_t addr, uint64_t bytes) {
  const uint64_t granularity = bfc->memory.granularity;
  return (struct bfc_range){addr & ~(granularity - 1), bfc_round_up(addr + bytes, granularity)};
}

static void compare(struct bfc *bfc, struct place *best, uint32_t chunk, uint64_t addr, uint64_t rounded) {
  const struct bfc_range pages = pages_of(bfc, addr, rounded);
  if (bfc_has_retired(bfc, pages)) return;
  const uint64_t lack = bfc_unmapped_within(bfc, pages.from, pages.to);
  if (best->chunk == 0 || lack < best->lack) *best = (struct place){chunk, addr, lack};
}

// The place at the start or the end of a free chunk with the fewest unmapped bytes. Of equal ones it is
// that in the first chunk by size and address, and there the start.
static struct place least_unmapped(struct bfc *bfc, uint64_t rounded) {
  struct place best = {0};
  for (uint32_t i = bfc_freeset_first(bfc, rounded, 0); i != 0; i = bfc_freeset_after(bfc, i)) {
    const struct bfc_chunk *chunk = &bfc->chunks[i];
    compare(bfc, &best, i, chunk->addr, rounded);
    compare(bfc, &best, i, chunk->addr + chunk->size - rounded, rounded);
  }
  return best;
}

// How many bytes a growth for a request has to map, with those of a free tail.
static uint64_t growth_lack(struct bfc *bfc, uint64_t rounded) {
  const uint32_t tail = bfc_free_tail(bfc, rounded);
  if (tail == 0) return bfc_round_up(rounded, bfc->memory.granularity);
  const struct bfc_chunk *chunk = &bfc->chunks[tail];
  return bfc_unmapped_within(bfc, chunk->addr, chunk->addr + chunk->size) + bfc_round_up(rounded - chunk->size, bfc->memory.granularity);
}

uint32_t bfc_squeeze(struct bfc *bfc, uint64_t rounded) {
  const struct place place = least_unmapped(bfc, rounded);
  if (place.chunk != 0 && place.lack <= growth_lack(bfc, rounded) && bfc_map_for(bfc, pages_of(bfc, place.addr, rounded))) {
    return bfc_carve(bfc, place.chunk, place.addr, rounded);
  }
  return bfc_lengthen_and_cut(bfc, rounded);
}
