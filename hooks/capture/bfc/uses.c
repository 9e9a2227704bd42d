// uses.c - iterations, and the pages that none of their blocks used.
//
// Training repeats itself: what an iteration did not use, the next one will not, as a rule. With the option `trims` each
// free notes the number of the iteration with the pages that no block touches any more (pages.c). A hand-out
// need not: only pages of free chunks are looked at, and each block that was there has been freed since.
#include "bfc/internal.h"

void bfc_end_iteration(struct bfc *bfc) {
  bfc->ended++;
  bfc_pages_end(bfc);
}

uint32_t bfc_ended(const struct bfc *bfc) { return bfc->ended; }

struct search {
  const struct bfc *bfc;
  uint32_t ended;
  void *self;
  void (*visit)(void *self, uint64_t addr, uint64_t bytes);
};

// Visits the maximal ranges of unused pages in a free range that is mapped.
static void visit_unused(void *context, uint64_t addr, uint64_t bytes) {
  const struct search *search = context;
  const uint64_t unit = search->bfc->memory.granularity;
  const uint64_t from = bfc_round_up(addr, unit), end = (addr + bytes) & ~(unit - 1);
  if (end <= from) return;
  const struct bfc_pages pages = bfc_pages_from(search->bfc, from, end - from);
  for (size_t first = 0, next; first < pages.count; first = next + 1) {
    next = first;
    while (next < pages.count && pages.first[next].used < search->ended && pages.first[next].left <= search->bfc->over) next++;
    if (next > first) search->visit(search->self, from + first * unit, (next - first) * unit);
  }
}

void bfc_excess(const struct bfc *bfc, uint32_t ended, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes)) {
  struct search search = {bfc, ended, self, visit};
  if (bfc->options.trims) bfc_free_mapped(bfc, &search, visit_unused);
}
