// restore.c - makes a block of a checkpoint live again, at its address.
#include "bfc/internal.h"

// The free chunk that has all of [addr, addr+size), or 0. Walks the region's chunks: only
// checkpoints ask.
static uint32_t free_over(const struct bfc *bfc, uint64_t addr, uint64_t size) {
  const uint64_t end = addr + size;
  if (end <= addr || ((addr | size) & (BFC_GRANULE - 1)) != 0) return 0;
  for (size_t i = 0; i < bfc->region_count; i++) {
    const struct bfc_region *region = &bfc->regions[i];
    if (addr < region->addr || addr - region->addr >= region->size) continue;
    for (uint32_t at = bfc->chunks[region->wall].next; at != region->wall; at = bfc->chunks[at].next) {
      const struct bfc_chunk *chunk = &bfc->chunks[at];
      if (chunk->addr + chunk->size < end) continue;
      return chunk->state == BFC_FREE && chunk->addr <= addr ? at : 0;
    }
  }
  return 0;
}

bool bfc_restore(struct bfc *bfc, uint64_t addr, uint64_t size, uint64_t requested, struct bfc_block *out) {
  if (requested == 0 || requested > size || !bfc_reserve(bfc)) return false;
  uint32_t index = free_over(bfc, addr, size);
  if (index == 0 || bfc_unmapped_within(bfc, addr, addr + size) != 0) return false;
  index = bfc_carve(bfc, index, addr, size);
  bfc_hand_out(bfc, index, requested);
  bfc_describe(bfc, index, out);
  return true;
}
