// plan.c - where the blocks of the coming iterations are placed.
//
// A plan is made of one iteration, whose lifetimes planner.c knows. A request is matched with the next one
// of the plan that has its size, and gets just that one's place. A request that the plan does not have,
// or whose place has a block or cannot be mapped, is placed by best fit. In the first iteration of a plan,
// blocks of the one before are where no plan put them; requests whose place would overlap one of them
// get another place for that iteration.
#include "base/array.h"
#include "bfc/internal.h"

#include <stdlib.h>

enum {
  LOOKAHEAD = 32,           // requests of the plan that a request is compared with; half of it: how far behind the last one served a request is given up
  MAX_PLAN_WORK = 1 << 26,  // in pairs of blocks that are live together: about three seconds
  OBSTACLES_PER_PAIR = 16,  // obstacles that a request passes in the time of a pair
};

static uint64_t end_of(const struct bfc_region *region) { return region->addr + region->size; }

// The index of the plan's request that a request is matched with; -1: none.
static int64_t match(const struct bfc *bfc, uint64_t rounded) {
  const struct bfc_plan *plan = &bfc->planner.plan;
  for (size_t k = plan->cursor; k < plan->count && k < plan->cursor + LOOKAHEAD; k++) {
    if (plan->requests[k].size == rounded && plan->requests[k].served != bfc->ended + 1) return (int64_t)k;
  }
  return -1;
}

static void serve(struct bfc *bfc, size_t k) {
  struct bfc_plan *plan = &bfc->planner.plan;
  plan->requests[k].served = bfc->ended + 1;
  if (k > LOOKAHEAD / 2) plan->cursor = bfc_greatest(plan->cursor, k - LOOKAHEAD / 2);
  while (plan->cursor < plan->count && plan->requests[plan->cursor].served == bfc->ended + 1) plan->cursor++;
}

static uint64_t place_of(const struct bfc *bfc, const struct bfc_planned *planned) {
  return bfc->ended == bfc->planner.plan.first ? planned->first : planned->places[bfc->ended & 1];
}

// Whether the iteration counts as missed where a request of the plan is served outside of its place.
static bool misses(const struct bfc *bfc, const struct bfc_planned *planned) {
  if (planned->later) return false;
  return bfc->ended != bfc->planner.plan.first || planned->first != BFC_NO_PLACE || planned->places[bfc->ended & 1] == BFC_NO_PLACE;
}

// The last region if growths lengthen it by what is needed, so that a plan can have places behind it;
// else NULL.
static const struct bfc_region *growing(const struct bfc *bfc) {
  if (bfc->options.growth != BFC_NEEDED || !bfc->memory.coalesces || bfc->region_count == 0) return NULL;
  const struct bfc_region *last = &bfc->regions[bfc->region_count - 1];
  return last->wall == bfc->last_grown ? last : NULL;
}

// Whether a region has no block from addr on; addr may be behind its end.
static bool free_to(const struct bfc *bfc, const struct bfc_region *region, uint64_t addr) {
  const struct bfc_chunk *tail = &bfc->chunks[bfc->chunks[region->wall].prev];
  return addr >= end_of(region) || (tail->state == BFC_FREE && addr >= tail->addr);
}

// The block at the address `before`, or the wall of addr's region where that is 0; 0: there is none.
static uint32_t neighbour(const struct bfc *bfc, uint64_t before, uint64_t addr) {
  if (before != 0) return bfc_live_find(bfc, before);
  const size_t region = bfc_region_at(bfc, addr);
  return region == bfc->region_count ? 0 : bfc->regions[region].wall;
}

// Whether a free chunk has all of a place.
static bool has(const struct bfc_chunk *chunk, struct bfc_range place) {
  return chunk->state == BFC_FREE && chunk->addr <= place.from && place.to <= chunk->addr + chunk->size;
}

// The free chunk that has all of a place, or 0. In iterations that follow the plan it is behind the same
// block each time, which is quicker to find than the chunk in the order by end.
static uint32_t find_place(struct bfc *bfc, struct bfc_range place, uint64_t *before) {
  const struct bfc_chunk *chunks = bfc->chunks;
  const uint32_t guess = neighbour(bfc, *before, place.from);
  if (guess != 0 && has(&chunks[chunks[guess].next], place)) return chunks[guess].next;
  const uint32_t found = bfc_ends_first(bfc, place.to);
  if (found == 0 || !has(&chunks[found], place)) return 0;
  const struct bfc_chunk *previous = &chunks[chunks[found].prev];
  *before = previous->state == BFC_WALL ? 0 : previous->addr;
  return found;
}

// The chunk of just a place, linked into no order by size; 0: a block is in the way, or the memory
// refuses to map it.
static uint32_t take_place(struct bfc *bfc, uint64_t addr, uint64_t rounded, uint64_t *before) {
  if (addr == BFC_NO_PLACE) return 0;
  const uint64_t granularity = bfc->memory.granularity, end = addr + rounded;
  const struct bfc_region *last = growing(bfc);
  if (last != NULL && end > end_of(last) && free_to(bfc, last, addr)) {
    const uint64_t lack = end - end_of(last);
    bfc_unmap_elsewhere(bfc, lack, bfc->chunks[last->wall].prev);
    bfc_extend_by(bfc, lack);
  }
  const uint32_t found = find_place(bfc, (struct bfc_range){addr, end}, before);
  if (found == 0) return 0;
  const struct bfc_range range = {addr & ~(granularity - 1), bfc_round_up(end, granularity)};
  if (bfc->unmapped.count > 0 && !bfc_map_for(bfc, found, range)) return 0;
  return bfc_carve(bfc, found, addr, rounded);
}

uint32_t bfc_plan_place(struct bfc *bfc, uint64_t rounded, uint64_t requested) {
  const int64_t k = match(bfc, rounded);
  struct bfc_planned *planned = k < 0 ? NULL : &bfc->planner.plan.requests[k];
  uint32_t found = planned == NULL ? 0 : take_place(bfc, place_of(bfc, planned), rounded, &planned->before[bfc->ended & 1]);
  if (found == 0) {
    found = bfc_find_chunk(bfc, rounded);
    if (found == 0) return 0;
    bfc->planner.missed[0] |= planned == NULL || misses(bfc, planned);
  }
  if (planned != NULL) serve(bfc, (size_t)k);
  bfc_hand_out(bfc, found, requested);
  bfc_planner_requested(bfc, found, rounded);
  return found;
}

// All that making a plan needs.
struct making {
  struct bfc *bfc;
  const struct bfc_lifetimes *lifetimes;
  uint32_t length;         // positions of the iteration
  struct bfc_rank *order;  // the requests, the largest first
  struct bfc_range *obstacles;
  struct bfc_leaver *leaving;  // blocks in use that are predicted to be freed in the coming iteration
  size_t obstacle_count, leaving_count;
  struct bfc_arrangement around;
};

// The lifetime of a block in use that is predicted to be freed in the coming iteration; else NULL.
static const struct bfc_lifetime *leaves(const struct making *making, const struct bfc_chunk *chunk) {
  const struct bfc_origin origin = chunk->origin;
  if (origin.request == 0 || origin.iteration + 1 != making->bfc->ended) return NULL;
  const struct bfc_lifetime *lifetime = &making->lifetimes->items[origin.request - 1];
  return lifetime->end == BFC_ENDS_NEXT ? lifetime : NULL;
}

static void add_obstacle(struct making *making, uint64_t from, uint64_t to) {
  making->obstacles[making->obstacle_count++] = (struct bfc_range){from, to};
}

static void sort_block(struct making *making, const struct bfc_chunk *chunk) {
  const struct bfc_lifetime *lifetime = leaves(making, chunk);
  const uint64_t end = chunk->addr + chunk->size;
  if (lifetime != NULL) {
    making->leaving[making->leaving_count++] = (struct bfc_leaver){{chunk->addr, end}, lifetime->to};
    return;
  }
  struct bfc_range *last = &making->obstacles[making->obstacle_count - 1];
  if (last->to == chunk->addr)
    last->to = end;
  else
    add_obstacle(making, chunk->addr, end);
}

// Lists the ranges where nothing can be placed, which are all that is outside of regions and the blocks
// that stay, and the blocks that are leaving.
static void look(struct making *making) {
  const struct bfc *bfc = making->bfc;
  uint64_t end = 0;
  for (size_t i = 0; i < bfc->region_count; i++) {
    const struct bfc_region *region = &bfc->regions[i];
    add_obstacle(making, end, region->addr);
    for (uint32_t at = bfc->chunks[region->wall].next; at != region->wall; at = bfc->chunks[at].next) {
      if (bfc->chunks[at].state == BFC_IN_USE) sort_block(making, &bfc->chunks[at]);
    }
    end = end_of(region);
  }
  add_obstacle(making, growing(bfc) != NULL ? BFC_NO_PLACE : end, BFC_NO_PLACE);
  making->around.obstacles = making->obstacles;
}

static struct bfc_positions span_of(const struct making *making, size_t i, uint32_t iteration) {
  return bfc_span(&making->lifetimes->items[i], making->length, iteration);
}

static uint64_t place(struct making *making, size_t i, uint32_t iteration) {
  return bfc_arrange_place(&making->around, making->lifetimes->items[i].size, span_of(making, i, iteration));
}

static void place_all(struct making *making) {
  for (size_t o = 0; o < making->lifetimes->count; o++) {
    const size_t i = making->order[o].index;
    struct bfc_planned *planned = &making->bfc->planner.plan.requests[i];
    for (uint32_t parity = 0; parity < 2; parity++) planned->places[parity] = place(making, i, parity);
  }
}

static bool meets_leaving(const struct making *making, struct bfc_range range, struct bfc_positions span) {
  for (size_t i = 0; i < making->leaving_count; i++) {
    const struct bfc_leaver *leaver = &making->leaving[i];
    if (span.from < leaver->until && range.from < leaver->range.to && leaver->range.from < range.to) return true;
  }
  return false;
}

// Finds the places of the first iteration. A request whose place would overlap a leaving block gets
// another for it, which overlaps no block of this iteration nor of the next.
static void place_first(struct making *making) {
  struct bfc_arrangement *around = &making->around;
  struct bfc_planned *requests = making->bfc->planner.plan.requests;
  const uint32_t first = making->bfc->planner.plan.first;
  bfc_arrange_clear(around);
  around->leaving = making->leaving;
  around->leaving_count = making->leaving_count;
  for (size_t i = 0; i < making->lifetimes->count; i++) {
    const uint64_t size = requests[i].size, now = requests[i].places[first & 1], then = requests[i].places[(first + 1) & 1];
    const struct bfc_range own = {now, now + size};
    if (now != BFC_NO_PLACE && !meets_leaving(making, own, span_of(making, i, 0))) {
      requests[i].first = now;
      bfc_arrange_put(around, own, span_of(making, i, 0));
    }
    if (then == BFC_NO_PLACE) continue;
    struct bfc_positions next = span_of(making, i, 1);
    if (next.to > around->circle) next.to = around->circle;  // as far as the end of the next iteration
    bfc_arrange_put(around, (struct bfc_range){then, then + size}, next);
  }
  for (size_t o = 0; o < making->lifetimes->count; o++) {
    const size_t i = making->order[o].index;
    if (requests[i].first == BFC_NO_PLACE) requests[i].first = place(making, i, 0);
  }
}

// Summed over the requests whose block has a place, how many other blocks with a place are live when the
// request is made, in an iteration that follows one like it; UINT64_MAX where host memory is short.
static uint64_t pairs(const struct making *making) {
  const struct bfc_lifetimes *lifetimes = making->lifetimes;
  const uint32_t length = making->length;
  bool *freed = calloc((size_t)length + 1, sizeof *freed);
  uint64_t live = 0, count = 0;
  if (freed == NULL) return UINT64_MAX;
  for (size_t i = 0; i < lifetimes->count; i++) {
    const struct bfc_lifetime *lifetime = &lifetimes->items[i];
    if (lifetime->end == BFC_ENDS_LATER) continue;
    freed[lifetime->to] = true;
    live += lifetime->end == BFC_ENDS_NEXT;
  }
  size_t next = 0;
  for (uint32_t position = 0; position < length; position++) {
    if (freed[position]) {
      live--;
    } else if (next < lifetimes->count && lifetimes->items[next].from == position) {
      if (lifetimes->items[next++].end == BFC_ENDS_LATER) continue;
      count += live++;
    }
  }
  free(freed);
  return count;
}

// Host memory for the lists of obstacles and leaving blocks.
static bool begin(struct making *making) {
  const size_t blocks = making->bfc->live.count;
  making->obstacles = calloc(blocks + making->bfc->region_count + 1, sizeof *making->obstacles);
  making->leaving = calloc(blocks + 1, sizeof *making->leaving);
  return making->obstacles != NULL && making->leaving != NULL;
}

// Host memory for the plan.
static bool begin_plan(struct making *making) {
  struct bfc_plan *plan = &making->bfc->planner.plan;
  const size_t requests = making->lifetimes->count;
  making->order = calloc(requests, sizeof *making->order);
  // Each request has two blocks, and the circle is searched up to three times.
  return making->order != NULL && bfc_arrange_begin(&making->around, 2 * making->length, 6 * requests + making->leaving_count) &&
         array_reserve(&plan->requests, &plan->capacity, requests, sizeof *plan->requests);
}

static void make(struct making *making) {
  const struct bfc_lifetimes *lifetimes = making->lifetimes;
  struct bfc_plan *plan = &making->bfc->planner.plan;
  plan->first = making->bfc->ended;
  plan->count = lifetimes->count;
  for (size_t i = 0; i < plan->count; i++) {
    const struct bfc_lifetime *lifetime = &lifetimes->items[i];
    plan->requests[i] = (struct bfc_planned){.size = lifetime->size, .first = BFC_NO_PLACE, .later = lifetime->end == BFC_ENDS_LATER};
    making->order[i] = (struct bfc_rank){~lifetime->size, i};
  }
  bfc_ranks_sort(making->order, plan->count);
  place_all(making);
  place_first(making);
}

bool bfc_plan_make(struct bfc *bfc, const struct bfc_lifetimes *lifetimes) {
  struct making making = {.bfc = bfc, .lifetimes = lifetimes, .length = bfc->planner.position};
  bool ok = begin(&making);
  if (ok) {
    look(&making);
    const uint64_t count = pairs(&making), passed = (uint64_t)lifetimes->count * making.obstacle_count / OBSTACLES_PER_PAIR;
    ok = count <= MAX_PLAN_WORK && passed <= MAX_PLAN_WORK - count && begin_plan(&making);
  }
  if (ok) make(&making);
  free(making.order);
  free(making.obstacles);
  free(making.leaving);
  bfc_arrange_end(&making.around);
  return ok;
}

// Notes a place as used now, up to the end of its region; not one that begins in none.
static void expect_place(struct bfc *bfc, uint64_t addr, uint64_t size) {
  const size_t at = bfc_region_at(bfc, addr);
  if (at == bfc->region_count || bfc->regions[at].addr > addr) return;
  bfc_note_use(bfc, addr, bfc_least(size, end_of(&bfc->regions[at]) - addr));
}

void bfc_plan_expect(struct bfc *bfc) {
  if (!bfc->options.notes) return;
  bfc->forgotten = bfc->ended;
  for (size_t i = 0; i < bfc->planner.plan.count; i++) {
    const struct bfc_planned *planned = &bfc->planner.plan.requests[i];
    expect_place(bfc, planned->places[0], planned->size);
    expect_place(bfc, planned->places[1], planned->size);
    if (bfc_plan_begins(bfc)) expect_place(bfc, planned->first, planned->size);
  }
}

bool bfc_plan_begins(const struct bfc *bfc) {
  return bfc->options.planned && bfc->planner.made > 0 && bfc->planner.plan.first == bfc->ended;
}
