// clear.c - which free memory nobody can read any more: see bfc_over in bfc.h.
#include "bfc/internal.h"

uint64_t bfc_frees(const struct bfc *bfc) { return bfc->frees; }

void bfc_over(struct bfc *bfc, uint64_t frees) { bfc->over = frees; }

// Pages that are not noted are not clear.
bool bfc_is_clear(const struct bfc *bfc, uint64_t addr, uint64_t bytes) {
  const uint64_t unit = bfc->memory.granularity, end = addr + bytes;
  for (uint64_t at = addr & ~(unit - 1); at < end; at += unit) {
    const struct bfc_page *page = bfc_page_at(bfc, at);
    if (page == NULL || page->left > bfc->over) return false;
  }
  return true;
}

struct clear_visit {
  const struct bfc *bfc;
  void *self;
  void (*visit)(void *self, uint64_t addr, uint64_t bytes);
};

// Visits the clear pages of a free range that is mapped, adjacent ones at once; or all of it, where pages are not noted.
static void visit_clear(void *context, const struct bfc_chunk_info *piece) {
  const struct clear_visit *clear = context;
  const struct bfc *bfc = clear->bfc;
  if (!piece->free) return;
  if (bfc->options.growth != BFC_PAGES && !bfc->options.trims) {
    if (piece->left <= bfc->over) clear->visit(clear->self, piece->addr, piece->size);
    return;
  }
  const uint64_t unit = bfc->memory.granularity, end = (piece->addr + piece->size) & ~(unit - 1);
  for (uint64_t from = bfc_round_up(piece->addr, unit), at; from < end; from = at + unit) {
    for (at = from; at < end && bfc_is_clear(bfc, at, unit);) at += unit;
    if (at > from) clear->visit(clear->self, from, at - from);
  }
}

void bfc_clear_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes)) {
  struct clear_visit clear = {bfc, self, visit};
  bfc_walk_mapped(bfc, &clear, visit_clear);
}
