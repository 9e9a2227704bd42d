// ready.c - growth pages: of the chunks that are large enough for a request, one whose pages are ready.
//
// An unmapped page of a free chunk is
//
//   ready     the frame that it had last is free: it comes back
//   clear     that frame serves a block elsewhere, but nobody can read it here any more: it gets another frame
//   retired   nor is it known that nobody reads it here: no request gets it
//
// Best fit knows nothing of pages. The chunk that it finds can lack pages whose frames serve blocks elsewhere by
// now: each gets another frame, which costs an owner that leaves old mappings in place three calls of the driver. A
// larger chunk that lacks fewer of them serves as well. Best fit stays where it has all its frames: a job that
// repeats itself keeps its addresses.
#include "bfc/internal.h"

enum {
  TRIES = 16,  // chunks behind the best fit that are looked at
  FACTOR = 3,  // they are at most so many times as large: the largest chunks stay whole
};

// Whether an unmapped page of a range can get the frame that it had last. It cannot if it had none, or if a block, a
// registration or another page of the range keeps that where it is.
static bool ready(const struct bfc *bfc, uint64_t addr, struct bfc_range range) {
  const struct bfc_page *page = bfc_page_at(bfc, addr);
  if (page == NULL || page->back == 0) return false;
  const uint64_t now = bfc->pager.frames[page->back - 1].page;
  if (now == BFC_NO_PAGE) return true;
  const struct bfc_page *other = bfc_page_at(bfc, now);
  return other != NULL && !other->live && other->registered == 0 && (now < range.from || now >= range.to);
}

// Whether a page is clear. What was found clear before a look is so after it, and what was not has led to it: so a request decides as if it
// had looked first.
static bool clear_by_now(struct bfc *bfc, uint64_t addr) {
  if (bfc_is_clear(bfc, addr, 1)) return true;
  if (bfc->looked || bfc->memory.look == NULL) return false;
  bfc->looked = true;
  bfc->memory.look(bfc->memory.self);
  return bfc_is_clear(bfc, addr, 1);
}

enum { RETIRED = -1 };  // more than any number of pages, as it is unsigned

// How many unmapped pages of a range, a part of a free chunk, are not ready; RETIRED if one of them is retired.
static uint64_t moves(struct bfc *bfc, struct bfc_range range) {
  uint64_t count = 0;
  for (size_t i = bfc_unmapped_from(bfc, range.from); i < bfc->unmapped.count && bfc->unmapped.items[i].from < range.to; i++) {
    const struct bfc_range gap = bfc->unmapped.items[i];
    const uint64_t to = bfc_least(gap.to, range.to);
    for (uint64_t addr = bfc_greatest(gap.from, range.from); addr < to; addr += bfc->memory.granularity) {
      if (ready(bfc, addr, range)) continue;
      if (!clear_by_now(bfc, addr)) return RETIRED;
      count++;
    }
  }
  return count;
}

bool bfc_has_retired(struct bfc *bfc, struct bfc_range range) {
  return bfc->options.growth == BFC_PAGES && bfc->unmapped.count > 0 && moves(bfc, range) == (uint64_t)RETIRED;
}

uint32_t bfc_most_ready(struct bfc *bfc, uint32_t best, uint64_t rounded) {
  if (bfc->options.growth != BFC_PAGES) return best;
  const uint64_t size = bfc->chunks[best].size, taken = bfc_handed_out(bfc, size, rounded);
  const bool any = rounded < bfc->memory.granularity;  // a small request takes the first that is not retired
  uint64_t least = moves(bfc, bfc_reach(bfc, best, rounded));
  uint32_t chunk = best;
  if (least == (uint64_t)RETIRED) best = 0;
  for (int i = 0; i < TRIES && (best == 0 || (least > 0 && !any)); i++) {
    chunk = bfc_freeset_after(bfc, chunk);
    if (chunk == 0 || bfc->chunks[chunk].size / FACTOR > size) break;
    if (bfc_handed_out(bfc, bfc->chunks[chunk].size, rounded) > taken) continue;
    const uint64_t more = moves(bfc, bfc_reach(bfc, chunk, rounded));
    if (more >= least) continue;
    best = chunk;
    least = more;
  }
  return best;
}
