// uses.c - which pages each iteration uses, and which are unmapped or mapped for that.
//
// Training repeats itself: a page that was used in one iteration will be in the next. With the option
// `notes`, each free notes the number of the iteration with the pages of the chunk. A hand-out need not:
// only pages of free chunks are looked at, and each block that was there has been freed since.
// From that follow what a trim may unmap and has to map ahead, and what a growth must not unmap.
#include "bfc/internal.h"

#include <stdlib.h>
#include <string.h>

// For how many further iterations a page that was used in one is expected to be used again.
enum { KEPT_ITERATIONS = 2 };

static uint64_t end_of(const struct bfc_region *region) { return region->addr + region->size; }

// By shifts, since each free calls it twice.
static size_t page_of(const struct bfc *bfc, const struct bfc_region *region, uint64_t addr) {
  const int bits = __builtin_ctzll(bfc->memory.granularity);
  return (size_t)((addr >> bits) - (region->addr >> bits));
}

void bfc_note_use(struct bfc *bfc, uint64_t addr, uint64_t size) {
  struct bfc_region *region = &bfc->regions[bfc_region_at(bfc, addr)];
  const size_t last = page_of(bfc, region, addr + size - 1);
  for (size_t i = page_of(bfc, region, addr); i <= last && i < region->use_count; i++) region->uses[i] = bfc->ended + 1;
}

void bfc_note_region(struct bfc *bfc, struct bfc_region *region) {
  if (!bfc->options.notes) return;
  const size_t count = page_of(bfc, region, end_of(region) - 1) + 1;
  uint32_t *grown = realloc(region->uses, count * sizeof *grown);
  if (grown == NULL) return;
  memset(grown + region->use_count, 0, (count - region->use_count) * sizeof *grown);
  region->uses = grown;
  region->use_count = count;
}

// Whether a page is expected to be used: it was used in this iteration or one of the two before. In the
// first iteration no page is.
static bool expected(const struct bfc *bfc, const struct bfc_region *region, uint64_t addr) {
  const size_t at = page_of(bfc, region, addr);
  if (at >= region->use_count) return true;
  return bfc->ended > 0 && region->uses[at] > bfc->forgotten && region->uses[at] + KEPT_ITERATIONS > bfc->ended;
}

void bfc_end_iteration(struct bfc *bfc) {
  bfc->ended++;
  bfc_pages_end(bfc);
  if (bfc->options.planned) bfc_planner_end(bfc);
}

uint32_t bfc_ended(const struct bfc *bfc) { return bfc->ended; }

// The pages that lie in a chunk as a whole; where there are none, to is not above from.
static struct bfc_range whole_pages(const struct bfc *bfc, const struct bfc_chunk *chunk) {
  const uint64_t granularity = bfc->memory.granularity;
  return (struct bfc_range){bfc_round_up(chunk->addr, granularity), (chunk->addr + chunk->size) & ~(granularity - 1)};
}

typedef void visitor(void *self, uint64_t addr, uint64_t bytes);

// Which ranges of free chunks to visit, and with what.
struct search {
  bool mapped;     // mapped ranges, else unmapped ones
  uint32_t ended;  // the parameter of bfc_excess
  void *self;
  visitor *visit;
};

static void visit_run(const struct search *search, uint64_t from, uint64_t to) {
  if (to > from) search->visit(search->self, from, to - from);
}

// Called with a part of a free chunk: whole pages that are all mapped or all unmapped.
typedef void part_visitor(const struct bfc *bfc, const struct bfc_region *region, struct bfc_range part, const struct search *search);

static void idle_part(const struct bfc *bfc, const struct bfc_region *region, struct bfc_range part, const struct search *search) {
  (void)bfc, (void)region;
  visit_run(search, part.from, part.to);
}

static bool is_excess(const struct bfc *bfc, const struct bfc_region *region, uint64_t addr, uint32_t ended) {
  return !expected(bfc, region, addr) && region->uses[page_of(bfc, region, addr)] <= ended;
}

// Visits the maximal ranges of pages of the part that are excess, where it is mapped; that are expected,
// where it is unmapped. Pages beyond the noted ones are expected.
static void noted_part(const struct bfc *bfc, const struct bfc_region *region, struct bfc_range part, const struct search *search) {
  const uint64_t granularity = bfc->memory.granularity;
  uint64_t run = part.from;
  for (uint64_t at = part.from; at < part.to; at += granularity) {
    if (page_of(bfc, region, at) >= region->use_count) {
      visit_run(search, run, search->mapped ? at : part.to);
      return;
    }
    if (search->mapped ? is_excess(bfc, region, at, search->ended) : expected(bfc, region, at)) continue;
    visit_run(search, run, at);
    run = at + granularity;
  }
  visit_run(search, run, part.to);
}

// Visits the parts of a chunk: whole pages that are all mapped or all unmapped. The time is proportional to the
// number of its unmapped ranges, not to its size.
static void visit_chunk(const struct bfc *bfc, const struct bfc_region *region, const struct bfc_chunk *chunk, part_visitor *visit,
                        const struct search *search) {
  const struct bfc_ranges *set = &bfc->unmapped;
  const struct bfc_range whole = whole_pages(bfc, chunk);
  uint64_t at = whole.from;
  for (size_t next = bfc_unmapped_from(bfc, at); at < whole.to; next++) {
    struct bfc_range gap = {whole.to, whole.to};
    if (next < set->count) {
      gap.from = bfc_least(whole.to, bfc_greatest(at, set->items[next].from));
      gap.to = bfc_least(whole.to, set->items[next].to);
    }
    visit(bfc, region, search->mapped ? (struct bfc_range){at, gap.from} : gap, search);
    at = gap.to;
  }
}

static void visit_free(const struct bfc *bfc, part_visitor *visit, const struct search *search) {
  for (size_t i = 0; i < bfc->region_count; i++) {
    const struct bfc_region *region = &bfc->regions[i];
    for (uint32_t at = bfc->chunks[region->wall].next; at != region->wall; at = bfc->chunks[at].next) {
      if (bfc->chunks[at].state == BFC_FREE) visit_chunk(bfc, region, &bfc->chunks[at], visit, search);
    }
  }
}

void bfc_excess(const struct bfc *bfc, uint32_t ended, void *self, visitor *visit) {
  if (bfc->options.notes && bfc->ended >= 2) visit_free(bfc, noted_part, &(struct search){true, ended, self, visit});
}

void bfc_ahead(const struct bfc *bfc, void *self, visitor *visit) {
  if (bfc->options.notes && bfc->unmapped.count > 0 && !bfc_plan_begins(bfc)) visit_free(bfc, noted_part, &(struct search){false, 0, self, visit});
}

void bfc_idle(const struct bfc *bfc, void *self, visitor *visit) { visit_free(bfc, idle_part, &(struct search){true, 0, self, visit}); }

static bool may_unmap(const struct bfc *bfc, const struct bfc_region *region, uint64_t addr) {
  return !bfc->options.notes || !expected(bfc, region, addr) || bfc_plan_begins(bfc);
}

// The last range within a range whose pages are mapped and may be unmapped; empty where there is none.
static struct bfc_range last_to_unmap(const struct bfc *bfc, const struct bfc_region *region, struct bfc_range within) {
  const struct bfc_ranges *set = &bfc->unmapped;
  const uint64_t granularity = bfc->memory.granularity;
  while (within.to > within.from) {
    const size_t at = bfc_unmapped_from(bfc, within.to - 1);
    if (at < set->count && set->items[at].from < within.to) {
      within.to = bfc_greatest(within.from, set->items[at].from);
      continue;
    }
    if (!may_unmap(bfc, region, within.to - granularity)) {
      within.to -= granularity;
      continue;
    }
    const uint64_t start = at > 0 ? bfc_greatest(within.from, set->items[at - 1].to) : within.from;
    if (!bfc->options.notes) return (struct bfc_range){start, within.to};
    uint64_t first = within.to - granularity;
    while (first > start && may_unmap(bfc, region, first - granularity)) first -= granularity;
    return (struct bfc_range){first, within.to};
  }
  return (struct bfc_range){within.to, within.to};
}

// Unmaps pages of one free chunk, last first, and returns their bytes. Where the memory refuses, on with
// the range before. Reserves host memory for two ranges, since the map that follows may leave one more.
static uint64_t unmap_pages_of(struct bfc *bfc, const struct bfc_region *region, const struct bfc_chunk *chunk, uint64_t need) {
  uint64_t taken = 0;
  struct bfc_range whole = whole_pages(bfc, chunk);
  while (taken < need && bfc_unmapped_reserve(bfc, 2)) {
    const struct bfc_range run = last_to_unmap(bfc, region, whole);
    if (run.from == run.to) break;
    const uint64_t part = bfc_least(run.to - run.from, need - taken);
    whole.to = run.from;
    if (!bfc->memory.try_unmap(bfc->memory.self, run.to - part, part)) continue;
    whole.to = run.to - part;
    bfc_unmapped_add(bfc, run.to - part, run.to);
    bfc_unbacked(bfc, (struct bfc_range){run.to - part, run.to});
    bfc->stats.reserved -= part;
    taken += part;
  }
  return taken;
}

void bfc_unmap_elsewhere(struct bfc *bfc, uint64_t bytes, uint32_t keep) {
  if (bfc->memory.try_unmap == NULL || !bfc->memory.coalesces) return;
  uint64_t need = bfc_round_up(bytes, bfc->memory.granularity);
  for (size_t i = bfc->region_count; i-- > 0;) {
    const struct bfc_region *region = &bfc->regions[i];
    for (uint32_t at = bfc->chunks[region->wall].prev; at != region->wall && need > 0; at = bfc->chunks[at].prev) {
      if (bfc->chunks[at].state == BFC_FREE && at != keep) need -= unmap_pages_of(bfc, region, &bfc->chunks[at], need);
    }
  }
}
