// pages.c - growth pages: no more pages are mapped than blocks have touched at a time.
//
// A request takes pages that are free anywhere before the memory maps more, but for a little slack.
// Physical pages are frames with numbers. A page whose frame was taken remembers it, and takes the same
// one back if that is free again: an owner that leaves old mappings in place then has nothing to do.
//
// Where host memory is short some pages are not noted, or have no frame: they are not taken.
#include "base/array.h"
#include "bfc/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
  STEP_BYTES = 160,  // a step allows no more pages than that part above the bytes of blocks, which may touch far more pages than they fill
};

static uint64_t end_of(const struct bfc_region *region) { return region->addr + region->size; }

static bool counts(const struct bfc *bfc) { return bfc->options.growth == BFC_PAGES; }

static bool notes(const struct bfc *bfc) { return counts(bfc) || bfc->options.trims; }

static size_t page_of(const struct bfc *bfc, const struct bfc_region *region, uint64_t addr) {
  const int bits = __builtin_ctzll(bfc->memory.granularity);
  return (size_t)((addr >> bits) - (region->addr >> bits));
}

void bfc_pages_delete(struct bfc *bfc) {
  for (size_t i = 0; i < bfc->region_count; i++) free(bfc->regions[i].pages);
  for (int age = 0; age < BFC_AGES; age++) free(bfc->pager.victims[age].items);
  free(bfc->pager.frames);
  free(bfc->pager.unused);
}

void bfc_note_pages(struct bfc *bfc, struct bfc_region *region, uint64_t bytes) {
  if (!notes(bfc)) return;
  const size_t count = page_of(bfc, region, end_of(region) - 1) + 1;
  struct bfc_page *grown = count < SIZE_MAX / sizeof *grown ? realloc(region->pages, count * sizeof *grown) : NULL;
  if (grown != NULL) {
    memset(grown + region->page_count, 0, (count - region->page_count) * sizeof *grown);
    region->pages = grown;
    region->page_count = count;
  }
  bfc_backed(bfc, (struct bfc_range){end_of(region) - bytes, end_of(region)});
}

// The region of an address; NULL: it is in none.
static struct bfc_region *region_of(const struct bfc *bfc, uint64_t addr) {
  const size_t at = bfc_region_at(bfc, addr);
  return at < bfc->region_count && bfc->regions[at].addr <= addr ? &bfc->regions[at] : NULL;
}

struct bfc_page *bfc_page_at(const struct bfc *bfc, uint64_t addr) {
  const struct bfc_region *region = region_of(bfc, addr);
  const size_t at = region == NULL ? 0 : page_of(bfc, region, addr);
  return region != NULL && at < region->page_count ? &region->pages[at] : NULL;
}

struct bfc_pages bfc_pages_from(const struct bfc *bfc, uint64_t addr, uint64_t size) {
  const struct bfc_region *region = region_of(bfc, addr);
  if (region == NULL) return (struct bfc_pages){0};
  const size_t first = bfc_least(page_of(bfc, region, addr), region->page_count);
  const size_t end = bfc_least(page_of(bfc, region, addr + size - 1) + 1, region->page_count);
  return (struct bfc_pages){region->pages + first, end - first};
}

// Whether a block before a chunk touches its first page.
static bool shared_before(const struct bfc *bfc, const struct bfc_chunk *chunk) {
  const uint64_t first = chunk->addr & ~(bfc->memory.granularity - 1);
  if (chunk->addr == first) return false;
  const struct bfc_chunk *previous = &bfc->chunks[chunk->prev];
  if (previous->state == BFC_FREE && previous->addr > first) previous = &bfc->chunks[previous->prev];
  return previous->state == BFC_IN_USE;
}

// Whether a block behind it touches its last page.
static bool shared_behind(const struct bfc *bfc, const struct bfc_chunk *chunk) {
  const uint64_t end = bfc_round_up(chunk->addr + chunk->size, bfc->memory.granularity);
  if (chunk->addr + chunk->size >= end) return false;
  const struct bfc_chunk *next = &bfc->chunks[chunk->next];
  if (next->state == BFC_FREE && next->addr + next->size < end) next = &bfc->chunks[next->next];
  return next->state == BFC_IN_USE;
}

// The pages of a chunk that no other block touches.
static struct bfc_pages own_pages(const struct bfc *bfc, const struct bfc_chunk *chunk) {
  struct bfc_pages pages = bfc_pages_from(bfc, chunk->addr, chunk->size);
  if (pages.count > 0 && shared_before(bfc, chunk)) pages = (struct bfc_pages){pages.first + 1, pages.count - 1};
  if (pages.count > 0 && shared_behind(bfc, chunk)) pages.count--;
  return pages;
}

void bfc_touch(struct bfc *bfc, uint32_t chunk) {
  if (!notes(bfc)) return;
  const struct bfc_pages pages = own_pages(bfc, &bfc->chunks[chunk]);
  for (size_t i = 0; i < pages.count; i++) pages.first[i].live = true;
  if (!counts(bfc)) return;
  bfc->pager.served.blocks++;
  bfc->pager.served.bytes += bfc->chunks[chunk].size;
  bfc->pager.live += pages.count;
  bfc->pager.most = bfc_greatest(bfc->pager.most, bfc->pager.live);
  bfc->pager.filled = bfc_greatest(bfc->pager.filled, bfc->stats.bytes_in_use + bfc->chunks[chunk].size);  // the block is not in use yet
}

void bfc_leave(struct bfc *bfc, uint32_t chunk) {
  if (!notes(bfc)) return;
  const struct bfc_pages pages = own_pages(bfc, &bfc->chunks[chunk]);
  if (counts(bfc)) bfc->pager.live -= pages.count;
  for (size_t i = 0; i < pages.count; i++) {
    pages.first[i].left = bfc->frees;
    pages.first[i].live = false;
    pages.first[i].used = bfc->ended + 1;
  }
}

// 1 + a frame that backs no page, a new one if there is none; 0: host memory is short.
static uint32_t take(struct bfc_pager *pager) {
  while (pager->unused_count > 0) {
    const uint32_t number = pager->unused[--pager->unused_count];
    pager->frames[number].unused = false;
    if (pager->frames[number].page == BFC_NO_PAGE) return number + 1;
  }
  const size_t count = pager->frame_count + 1;
  if (!array_reserve(&pager->frames, &pager->frame_capacity, count, sizeof *pager->frames) ||
      !array_reserve(&pager->unused, &pager->unused_capacity, count, sizeof *pager->unused))
    return 0;
  pager->frames[pager->frame_count++] = (struct bfc_frame){.page = BFC_NO_PAGE};
  return (uint32_t)count;
}

// Whether a page has a frame.
static bool backs(const struct bfc_pager *pager, const struct bfc_page *page, uint64_t addr) {
  return page->back > 0 && pager->frames[page->back - 1].page == addr;
}

void bfc_back_again(struct bfc *bfc, struct bfc_range range) {
  if (!counts(bfc)) return;
  struct bfc_pager *pager = &bfc->pager;
  for (uint64_t addr = range.from; addr < range.to; addr += bfc->memory.granularity) {
    const struct bfc_page *page = bfc_page_at(bfc, addr);
    if (page != NULL && page->back > 0 && pager->frames[page->back - 1].page == BFC_NO_PAGE) pager->frames[page->back - 1].page = addr;
  }
}

void bfc_back_others(struct bfc *bfc, struct bfc_range range) {
  if (!counts(bfc)) return;
  struct bfc_pager *pager = &bfc->pager;
  for (uint64_t addr = range.from; addr < range.to; addr += bfc->memory.granularity) {
    struct bfc_page *page = bfc_page_at(bfc, addr);
    if (page == NULL || backs(pager, page, addr)) continue;
    page->back = take(pager);
    page->left = bfc->frees;  // a block may have left the frame elsewhere just now
    if (page->back > 0) pager->frames[page->back - 1].page = addr;
  }
}

void bfc_backed(struct bfc *bfc, struct bfc_range range) {
  bfc_back_again(bfc, range);
  bfc_back_others(bfc, range);
}

void bfc_unbacked(struct bfc *bfc, struct bfc_range range) {
  if (!counts(bfc)) return;
  struct bfc_pager *pager = &bfc->pager;
  for (uint64_t addr = range.from; addr < range.to; addr += bfc->memory.granularity) {
    const struct bfc_page *page = bfc_page_at(bfc, addr);
    if (page == NULL || !backs(pager, page, addr)) continue;
    struct bfc_frame *frame = &pager->frames[page->back - 1];
    frame->page = BFC_NO_PAGE;
    if (!frame->unused) pager->unused[pager->unused_count++] = page->back - 1;
    frame->unused = true;
  }
}

// How many pages of a range, a part of a free chunk, no block touches yet.
static uint64_t fresh_pages(const struct bfc *bfc, struct bfc_range range) {
  const struct bfc_pages pages = bfc_pages_from(bfc, range.from, range.to - range.from);
  uint64_t count = 0;
  for (size_t i = 0; i < pages.count; i++) count += !pages.first[i].live;
  return count;
}

static bool kept(struct bfc_range keep, uint64_t addr) { return keep.from <= addr && addr < keep.to; }

static void list(struct bfc_victims *victims, uint64_t addr) {
  if (array_reserve(&victims->items, &victims->capacity, victims->count + 1, sizeof *victims->items)) victims->items[victims->count++] = addr;
}

struct bfc_range bfc_first_run(const struct bfc *bfc, const uint64_t *addrs, size_t count, size_t *at) {
  const uint64_t unit = bfc->memory.granularity;
  struct bfc_range run = {addrs[*at], addrs[*at] + unit};
  for (++*at; *at < count; ++*at) {
    if (addrs[*at] == run.to)
      run.to += unit;
    else if (addrs[*at] + unit == run.from)
      run.from = addrs[*at];
    else
      break;
  }
  return run;
}

// Unmaps pages in the order of a list, adjacent ones at once, and returns how many. Those that the memory
// refuses stay mapped. Reserves host memory for two ranges, since the map that follows may leave one more.
static uint64_t unmap_pages(struct bfc *bfc, const uint64_t *addrs, size_t count) {
  const uint64_t unit = bfc->memory.granularity;
  uint64_t unmapped = 0;
  for (size_t i = 0; i < count; i++) bfc_page_at(bfc, addrs[i])->listed = false;
  for (size_t i = 0; i < count && bfc_unmapped_reserve(bfc, 2);) {
    const struct bfc_range run = bfc_first_run(bfc, addrs, count, &i);
    if (!bfc->memory.try_unmap(bfc->memory.self, run.from, run.to - run.from)) continue;
    bfc_unmapped_add(bfc, run.from, run.to);
    bfc_unbacked(bfc, run);
    bfc->stats.reserved -= run.to - run.from;
    unmapped += (run.to - run.from) / unit;
  }
  return unmapped;
}

// Whether the limit allows so many more pages that blocks touch.
static bool can_hold(const struct bfc *bfc, uint64_t fresh) { return bfc->pager.live + fresh <= bfc->options.limit / bfc->memory.granularity; }

static bool takes(const struct bfc *bfc) { return bfc->memory.coalesces && bfc->memory.try_unmap != NULL; }

// Unmaps the free pages whose frames the unmapped pages of a range had last, and returns how many.
static uint64_t take_back(struct bfc *bfc, struct bfc_range within, struct bfc_range keep) {
  struct bfc_pager *pager = &bfc->pager;
  struct bfc_victims *victims = &pager->victims[0];
  victims->count = 0;
  for (size_t i = bfc_unmapped_from(bfc, within.from); i < bfc->unmapped.count && bfc->unmapped.items[i].from < within.to; i++) {
    const struct bfc_range gap = bfc->unmapped.items[i];
    const uint64_t to = bfc_least(gap.to, within.to);
    for (uint64_t addr = bfc_greatest(gap.from, within.from); addr < to; addr += bfc->memory.granularity) {
      const struct bfc_page *page = bfc_page_at(bfc, addr);
      if (page == NULL || page->back == 0) continue;
      const uint64_t now = pager->frames[page->back - 1].page;
      struct bfc_page *other = now == BFC_NO_PAGE ? NULL : bfc_page_at(bfc, now);
      if (other == NULL || other->live || other->listed || other->registered > 0 || kept(keep, now)) continue;
      const size_t before = victims->count;
      list(victims, now);
      other->listed = victims->count > before;
    }
  }
  return unmap_pages(bfc, victims->items, victims->count);
}

static uint32_t age_of(const struct bfc *bfc, const struct bfc_page *page) {
  const uint32_t age = bfc->ended + 1 - page->used;
  return age < BFC_AGES ? age : BFC_AGES - 1;
}

void bfc_list_free(struct bfc *bfc, uint64_t count, uint64_t free, struct bfc_range keep) {
  struct bfc_pager *pager = &bfc->pager;
  for (int age = 0; age < BFC_AGES; age++) pager->victims[age].count = 0;
  const uint64_t unit = bfc->memory.granularity;
  for (size_t i = bfc->region_count; i-- > 0;) {
    const struct bfc_region *region = &bfc->regions[i];
    const uint64_t base = region->addr & ~(unit - 1);
    for (size_t k = region->page_count; k-- > 0;) {
      const struct bfc_page *page = &region->pages[k];
      const uint64_t addr = base + k * unit;
      if (page->live || page->registered > 0 || page->left > free || !backs(pager, page, addr) || kept(keep, addr)) continue;
      struct bfc_victims *victims = &pager->victims[age_of(bfc, page)];
      if (victims->count < count) list(victims, addr);
    }
  }
}

// Unmaps so many mapped pages that no block touches: those first that were not touched for the most
// iterations, and of these the last by address. Returns how many it unmapped.
static uint64_t take_oldest(struct bfc *bfc, uint64_t count, struct bfc_range keep) {
  struct bfc_pager *pager = &bfc->pager;
  if (count == 0 || !takes(bfc)) return 0;
  bfc_list_free(bfc, count, bfc->frees, keep);
  uint64_t taken = 0;
  for (int age = BFC_AGES; age-- > 0 && taken < count;) {
    const struct bfc_victims *victims = &pager->victims[age];
    taken += unmap_pages(bfc, victims->items, bfc_least(count - taken, victims->count));
  }
  return taken;
}

// Unmaps free pages elsewhere for a request that is about to touch `fresh` pages that no block touches yet:
// the unmapped ones of `within` will be mapped, and `more` at new addresses. Pages of `keep` stay as they are. Returns
// how many it unmapped.
static uint64_t take_pages(struct bfc *bfc, uint64_t fresh, struct bfc_range within, uint64_t more, struct bfc_range keep) {
  struct bfc_pager *pager = &bfc->pager;
  if (!takes(bfc)) return 0;
  const uint64_t unit = bfc->memory.granularity, mapped = bfc->stats.reserved / unit;
  // A request that is refused in the end does not raise pager->most.
  const uint64_t most = bfc_greatest(pager->most, pager->live + fresh);
  uint64_t lack = more + bfc_unmapped_within(bfc, within.from, within.to) / unit;
  const uint64_t back = take_back(bfc, within, keep);
  lack -= bfc_least(lack, back);
  const uint64_t bytes = pager->filled + pager->filled * pager->slack / STEP_BYTES;
  const uint64_t allowed = bfc_greatest(most, bfc_least(most + most * pager->slack / BFC_SLACK_STEPS, bytes / unit));
  uint64_t add = allowed > mapped ? allowed - mapped : 0;
  add = bfc_least(bfc_least(add, lack), bfc_room(bfc) / unit);
  const uint64_t taken = take_oldest(bfc, lack - add, keep);
  pager->moved += taken;
  return back + taken;
}

// Unmaps what a request that was refused still lacks of so many pages, and returns whether there was any. The pages
// that were unmapped for it before serve its next attempt.
static bool take_rest(struct bfc *bfc, uint64_t lack, uint64_t released, struct bfc_range keep) {
  const uint64_t taken = take_oldest(bfc, lack - bfc_least(lack, released), keep);
  bfc->pager.moved += taken;
  return taken > 0;
}

bool bfc_map_pages(struct bfc *bfc, struct bfc_range range) {
  const uint64_t unit = bfc->memory.granularity;
  if (bfc_unmapped_within(bfc, range.from, range.to) == 0) return true;
  const uint64_t fresh = fresh_pages(bfc, range);
  if (!can_hold(bfc, fresh)) return false;
  const uint64_t released = take_pages(bfc, fresh, range, 0, range);
  if (bfc_map_range(bfc, range)) return true;
  return take_rest(bfc, bfc_unmapped_within(bfc, range.from, range.to) / unit, released, range) && bfc_map_range(bfc, range);
}

bool bfc_extend_by_pages(struct bfc *bfc, uint64_t lack, uint32_t tail) {
  const uint64_t unit = bfc->memory.granularity, more = bfc_round_up(lack, unit) / unit;
  struct bfc_range keep = {0};
  uint64_t fresh = more;
  if (tail != 0) {
    const struct bfc_chunk *chunk = &bfc->chunks[tail];
    const uint64_t end = chunk->addr + chunk->size;
    keep = (struct bfc_range){chunk->addr & ~(unit - 1), bfc_round_up(end, unit)};
    fresh += fresh_pages(bfc, (struct bfc_range){chunk->addr, end});
  }
  if (!can_hold(bfc, fresh)) return false;
  const uint64_t released = take_pages(bfc, fresh, (struct bfc_range){0}, more, keep);
  return bfc_extend_by(bfc, lack) || (take_rest(bfc, more, released, keep) && bfc_extend_by(bfc, lack));
}

void bfc_pages_end(struct bfc *bfc) {
  struct bfc_pager *pager = &bfc->pager;
  if (!counts(bfc)) return;
  const bool repeats = pager->served.blocks == pager->before.blocks && pager->served.bytes == pager->before.bytes;
  const uint64_t most = repeats ? BFC_MOST_REPEATED : BFC_MOST_SLACK;
  if (bfc->ended > 1 && BFC_MOVED_SHARE * pager->moved > bfc->stats.reserved / bfc->memory.granularity && pager->slack < most) pager->slack++;
  pager->moved = 0;
  pager->before = pager->served;
  pager->served = (struct bfc_handed_out){0, 0};
}
