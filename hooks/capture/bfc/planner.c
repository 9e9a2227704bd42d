// planner.c - which blocks an iteration requests and when it frees them; when to make a plan.
//
// A block that is still live at the end of its iteration is predicted to be freed when its like of the
// iteration before was. Two requests are alike if they and the three requests before them, or the three
// behind them, have the same sizes. Sizes of neighbours stay the same from one iteration to the next even
// where the first one does more than the others.
#include "base/array.h"
#include "bfc/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
  MAX_REQUESTS = 1 << 16,                // requests of an iteration
  MAX_POSITIONS = 4 * MAX_REQUESTS,  // positions
  LIKE_CONTEXT = 4,                       // requests in a row
  MAX_WAIT_BITS = 16,                    // try number n waits for 2^n iterations, at most 2^this
};

// Returns the position of a request or free, and counts it.
static uint32_t advance(struct bfc_planner *planner) {
  if (planner->position < MAX_POSITIONS) return planner->position++;
  planner->current.partial = true;
  return planner->position;
}

void bfc_planner_requested(struct bfc *bfc, uint32_t chunk, uint64_t rounded) {
  struct bfc_lifetimes *current = &bfc->planner.current;
  const uint32_t at = advance(&bfc->planner);
  if (current->count == MAX_REQUESTS || !array_reserve(&current->items, &current->capacity, current->count + 1, sizeof *current->items)) {
    current->partial = true;
    return;
  }
  current->items[current->count++] = (struct bfc_lifetime){.size = rounded, .from = at};
  bfc->chunks[chunk].origin = (struct bfc_origin){(uint32_t)current->count, bfc->ended};
}

void bfc_planner_freed(struct bfc *bfc, struct bfc_origin origin) {
  struct bfc_planner *planner = &bfc->planner;
  const uint32_t at = advance(planner);
  if (origin.request == 0) return;
  struct bfc_lifetime *lifetime = NULL;
  if (origin.iteration == bfc->ended) {
    lifetime = &planner->current.items[origin.request - 1];
    lifetime->end = BFC_ENDS_SAME;
  } else if (origin.iteration + 1 == bfc->ended) {
    lifetime = &planner->previous.items[origin.request - 1];
    lifetime->end = BFC_ENDS_NEXT;
  }
  if (lifetime != NULL) lifetime->to = at;
}

// Sorts requests by a hash of their size and those of the requests before (step -1) or behind (1) them.
static void rank_contexts(const struct bfc_lifetimes *of, int step, struct bfc_rank *out) {
  for (size_t i = 0; i < of->count; i++) {
    uint64_t key = 0;
    int64_t at = (int64_t)i;
    for (int n = 0; n < LIKE_CONTEXT && at >= 0 && at < (int64_t)of->count; n++, at += step)
      key = (key + of->items[at].size) * UINT64_C(0x9e3779b97f4a7c15);
    out[i] = (struct bfc_rank){key, i};
  }
  bfc_ranks_sort(out, of->count);
}

// Scratch memory to find likes.
struct likes {
  uint32_t *like;  // by request of this iteration: 1 + its like of the one before; 0: none
  bool *taken;     // by request of the iteration before: it is the like of one
  struct bfc_rank *before, *after;
};

// Finds likes for requests that have none, in order, and returns how many it finds.
static size_t match(const struct bfc_planner *planner, struct likes *likes, int step) {
  const size_t count = planner->previous.count;
  size_t found = 0, b = 0;
  rank_contexts(&planner->previous, step, likes->before);
  rank_contexts(&planner->current, step, likes->after);
  for (size_t i = 0; i < planner->current.count; i++) {
    const struct bfc_rank *after = &likes->after[i], *before = likes->before;
    while (b < count && (before[b].key < after->key || (before[b].key == after->key && likes->taken[before[b].index]))) b++;
    if (likes->like[after->index] != 0 || b == count || before[b].key != after->key) continue;
    likes->like[after->index] = (uint32_t)before[b].index + 1;
    likes->taken[before[b].index] = true;
    found++;
  }
  return found;
}

// The lifetimes of this iteration; blocks that are still live have the end of their likes. False: fewer
// than 7 of 8 requests have a like, the job does not repeat itself.
static bool predict_lifetimes(const struct bfc_planner *planner, struct likes *likes, struct bfc_lifetimes *out) {
  const size_t found = match(planner, likes, -1) + match(planner, likes, 1);
  if (8 * found < 7 * planner->current.count) return false;
  memcpy(out->items, planner->current.items, planner->current.count * sizeof *out->items);
  out->count = planner->current.count;
  for (size_t i = 0; i < out->count; i++) {
    if (out->items[i].end != BFC_ENDS_LATER || likes->like[i] == 0) continue;
    const struct bfc_lifetime *like = &planner->previous.items[likes->like[i] - 1];
    if (like->end == BFC_ENDS_NEXT) out->items[i].to = like->to, out->items[i].end = BFC_ENDS_NEXT;
  }
  return true;
}

// Makes a plan, if the job repeats itself.
static bool plan(struct bfc *bfc) {
  struct bfc_planner *planner = &bfc->planner;
  const size_t after = planner->current.count, before = planner->previous.count + 1;
  struct likes likes = {calloc(after, sizeof(uint32_t)), calloc(before, sizeof(bool)), calloc(before, sizeof(struct bfc_rank)),
                        calloc(after, sizeof(struct bfc_rank))};
  struct bfc_lifetimes lifetimes = {.items = calloc(after, sizeof(struct bfc_lifetime))};
  bool ok = likes.like != NULL && likes.taken != NULL && likes.before != NULL && likes.after != NULL && lifetimes.items != NULL;
  planner->tries++;
  planner->next = bfc->ended + (UINT32_C(1) << bfc_least(planner->tries, MAX_WAIT_BITS));
  ok = ok && predict_lifetimes(planner, &likes, &lifetimes) && bfc_plan_make(bfc, &lifetimes);
  if (ok) planner->made++;
  free(likes.like);
  free(likes.taken);
  free(likes.before);
  free(likes.after);
  free(lifetimes.items);
  return ok;
}

// Whether to try a plan: two iterations running were missed, and are completely noted.
static bool due(const struct bfc *bfc) {
  const struct bfc_planner *planner = &bfc->planner;
  return planner->missed[0] && planner->missed[1] && planner->current.count > 0 && bfc->ended >= planner->next &&
         !planner->current.partial && !planner->previous.partial;
}

void bfc_planner_end(struct bfc *bfc) {
  struct bfc_planner *planner = &bfc->planner;
  planner->missed[0] |= planner->current.count != planner->plan.count;
  const bool made = due(bfc) && plan(bfc);
  // Blocks of the plan's first iteration can live in its second.
  if (made || (planner->made > 0 && bfc->ended - planner->plan.first <= 2)) bfc_plan_expect(bfc);
  const struct bfc_lifetimes over = planner->previous;
  planner->previous = planner->current;
  planner->current = (struct bfc_lifetimes){.items = over.items, .capacity = over.capacity};
  planner->missed[1] = planner->missed[0];
  planner->missed[0] = false;
  planner->position = 0;
  planner->plan.cursor = 0;
}

void bfc_planner_delete(struct bfc *bfc) {
  free(bfc->planner.current.items);
  free(bfc->planner.previous.items);
  free(bfc->planner.plan.requests);
}
