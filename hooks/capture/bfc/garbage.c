// garbage.c - releases regions without a chunk in use.
#include "bfc/internal.h"

#include <stdlib.h>

static uint64_t end_of(const struct bfc_region *region) { return region->addr + region->size; }

// The one chunk of a region without a block; 0 for other regions.
static uint32_t idle(const struct bfc *bfc, const struct bfc_region *region) {
  const struct bfc_chunk *wall = &bfc->chunks[region->wall];
  return wall->next == wall->prev && bfc->chunks[wall->next].state == BFC_FREE ? wall->next : 0;
}

bool bfc_worth_collecting(const struct bfc *bfc, uint64_t rounded) {
  uint64_t mapped = 0;
  for (size_t i = 0; i < bfc->region_count; i++) {
    const struct bfc_region *region = &bfc->regions[i];
    if (idle(bfc, region) != 0) mapped += region->size - bfc_unmapped_within(bfc, region->addr, end_of(region));
  }
  return mapped > 0 && rounded <= bfc_room(bfc) + mapped;
}

static void release(struct bfc *bfc, const struct bfc_region *region, uint32_t all) {
  bfc_freeset_remove(bfc, all);
  bfc_ends_remove(bfc, all);
  bfc_recycle(bfc, all);
  bfc_recycle(bfc, region->wall);
  bfc_unbacked(bfc, (struct bfc_range){region->addr, end_of(region)});
  free(region->uses);
  free(region->pages);
  if (bfc->last_grown == region->wall) bfc->last_grown = 0;
  bfc->stats.reserved -= region->size - bfc_unmapped_within(bfc, region->addr, end_of(region));
  bfc_unmapped_remove(bfc, region->addr, end_of(region));
  bfc->memory.release(bfc->memory.self, region->addr, region->size);
}

void bfc_collect_garbage(struct bfc *bfc) {
  size_t kept = 0;
  for (size_t i = 0; i < bfc->region_count; i++) {
    struct bfc_region region = bfc->regions[i];
    uint32_t all = idle(bfc, &region);
    if (all != 0)
      release(bfc, &region, all);
    else
      bfc->regions[kept++] = region;
  }
  bfc->region_count = kept;
}
