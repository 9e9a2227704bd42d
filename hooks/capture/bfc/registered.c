// registered.c - pages whose physical memory others know: see bfc_register in bfc.h.
#include "bfc/internal.h"

enum { MORE, LESS };

// Changes the count of each page that a range touches, in all regions, as far as they are noted.
static void each_page(struct bfc *bfc, uint64_t addr, uint64_t size, int change) {
  const uint64_t end = addr + bfc_least(size, UINT64_MAX - addr);
  for (size_t i = bfc_region_at(bfc, addr); i < bfc->region_count && bfc->regions[i].addr < end; i++) {
    const struct bfc_region *region = &bfc->regions[i];
    const uint64_t from = bfc_greatest(addr, region->addr), to = bfc_least(end, region->addr + region->size);
    const struct bfc_pages pages = bfc_pages_from(bfc, from, to - from);
    for (size_t k = 0; k < pages.count; k++) {
      uint32_t *registered = &pages.first[k].registered;
      *registered += change == MORE ? 1 : -(uint32_t)(*registered > 0);
    }
  }
}

void bfc_register(struct bfc *bfc, uint64_t addr, uint64_t size) {
  if (size > 0) each_page(bfc, addr, size, MORE);
}

void bfc_deregister(struct bfc *bfc, uint64_t addr, uint64_t size) {
  if (size > 0) each_page(bfc, addr, size, LESS);
}
