// arrange.c - the places of a plan: blocks that are not live together may overlap.
//
// A plan covers two iterations on a circle, since a block that is requested before its like of the
// iteration before is freed needs another place. Each block gets the lowest address at which no other
// shares one while both are live.
//
// The blocks that are live together with one are found by time: at most one block begins at a position,
// and a tree of maxima over the positions has where they end, so that a search skips those that have
// ended. Sorted by address, the gaps between them show.
#include "bfc/internal.h"

#include <stdlib.h>

enum { DIGIT = 11, DIGITS = 1 << DIGIT, FEW = 64 };  // bits and values of a digit; fewer blocks than FEW are sorted by insertion

static int compare_ranks(const void *left, const void *right) {
  const struct bfc_rank *a = left, *b = right;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

void bfc_ranks_sort(struct bfc_rank *ranks, size_t count) { qsort(ranks, count, sizeof *ranks, compare_ranks); }

struct bfc_positions bfc_span(const struct bfc_lifetime *lifetime, uint32_t length, uint32_t iteration) {
  const uint32_t start = iteration * length;
  if (lifetime->end == BFC_ENDS_LATER) return (struct bfc_positions){0};
  return (struct bfc_positions){start + lifetime->from, start + lifetime->to + (lifetime->end == BFC_ENDS_NEXT ? length : 0)};
}

bool bfc_arrange_begin(struct bfc_arrangement *arrangement, uint32_t circle, size_t most) {
  arrangement->circle = circle;
  arrangement->leaves = 1;
  while (arrangement->leaves <= circle) arrangement->leaves *= 2;
  arrangement->ends = calloc(2 * (size_t)arrangement->leaves, sizeof *arrangement->ends);
  arrangement->places = calloc((size_t)circle + 1, sizeof *arrangement->places);
  arrangement->met = calloc(most, sizeof *arrangement->met);
  arrangement->spare = calloc(most, sizeof *arrangement->spare);
  return arrangement->ends != NULL && arrangement->places != NULL && arrangement->met != NULL && arrangement->spare != NULL;
}

void bfc_arrange_clear(struct bfc_arrangement *arrangement) {
  for (size_t i = 0; i < 2 * (size_t)arrangement->leaves; i++) arrangement->ends[i] = 0;
}

void bfc_arrange_end(struct bfc_arrangement *arrangement) {
  free(arrangement->ends);
  free(arrangement->places);
  free(arrangement->met);
  free(arrangement->spare);
}

void bfc_arrange_put(struct bfc_arrangement *arrangement, struct bfc_range range, struct bfc_positions span) {
  arrangement->places[span.from] = range;
  for (uint32_t node = arrangement->leaves + span.from; node > 0 && arrangement->ends[node] < span.to; node /= 2) arrangement->ends[node] = span.to;
}

// Adds to `met` the blocks below a node of the tree that begin before span.to and end behind span.from.
// The node has `width` positions from `first` on.
static void visit(struct bfc_arrangement *arrangement, uint32_t node, uint32_t first, uint32_t width, struct bfc_positions span) {
  if (first >= span.to || arrangement->ends[node] <= span.from) return;
  if (width == 1) {
    arrangement->met[arrangement->met_count++] = arrangement->places[first];
    return;
  }
  visit(arrangement, 2 * node, first, width / 2, span);
  visit(arrangement, 2 * node + 1, first + width / 2, width / 2, span);
}

// A digit of the distance of a range from the first address, in granules.
static uint64_t digit(const struct bfc_range *range, uint64_t first, uint32_t shift) {
  return (range->from - first) / BFC_GRANULE >> shift & (DIGITS - 1);
}

// Sorts `met` by one digit of the distance from the first address.
static void sort_by_digit(struct bfc_arrangement *arrangement, uint64_t first, uint32_t shift) {
  struct bfc_range *met = arrangement->met, *sorted = arrangement->spare;
  uint32_t next[DIGITS] = {0}, sum = 0;  // index of the next range with that digit
  for (size_t i = 0; i < arrangement->met_count; i++) next[digit(&met[i], first, shift)]++;
  for (int i = 0; i < DIGITS; i++) {
    const uint32_t count = next[i];
    next[i] = sum;
    sum += count;
  }
  for (size_t i = 0; i < arrangement->met_count; i++) sorted[next[digit(&met[i], first, shift)]++] = met[i];
  arrangement->met = sorted;
  arrangement->spare = met;
}

static void insert_in_order(struct bfc_range *met, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const struct bfc_range range = met[i];
    size_t at = i;
    for (; at > 0 && met[at - 1].from > range.from; at--) met[at] = met[at - 1];
    met[at] = range;
  }
}

// Sorts `met` by address. Making a plan spends most of its time here.
static void sort_met(struct bfc_arrangement *arrangement) {
  uint64_t first = UINT64_MAX, last = 0;
  if (arrangement->met_count < FEW) {
    insert_in_order(arrangement->met, arrangement->met_count);
    return;
  }
  for (size_t i = 0; i < arrangement->met_count; i++) {
    first = bfc_least(first, arrangement->met[i].from);
    last = bfc_greatest(last, arrangement->met[i].from);
  }
  for (uint32_t shift = 0; shift < 64 && (last - first) / BFC_GRANULE >> shift > 0; shift += DIGIT) sort_by_digit(arrangement, first, shift);
}

// Sets `met` to the blocks that are live at some positions of a span, addresses ascending; a block may be
// there more than once. The circle is searched as a line: at the span, one circle later for blocks that
// go on around its end, and where the span does so, at its beginning.
static void meet(struct bfc_arrangement *arrangement, struct bfc_positions span) {
  const uint32_t circle = arrangement->circle, leaves = arrangement->leaves;
  arrangement->met_count = 0;
  visit(arrangement, 1, 0, leaves, span);
  visit(arrangement, 1, 0, leaves, (struct bfc_positions){span.from + circle, span.to + circle});
  if (span.to > circle) visit(arrangement, 1, 0, leaves, (struct bfc_positions){0, span.to - circle});
  for (size_t i = 0; i < arrangement->leaving_count; i++) {
    const struct bfc_leaver *leaver = &arrangement->leaving[i];
    if (span.from < leaver->until) arrangement->met[arrangement->met_count++] = leaver->range;
  }
  sort_met(arrangement);
}

uint64_t bfc_arrange_place(struct bfc_arrangement *arrangement, uint64_t size, struct bfc_positions span) {
  if (span.from == span.to) return BFC_NO_PLACE;  // it is never live
  meet(arrangement, span);
  const struct bfc_range *met = arrangement->met, *const met_end = met + arrangement->met_count;
  const struct bfc_range *obstacle = arrangement->obstacles;
  uint64_t at = 0;
  while (at != BFC_NO_PLACE) {  // the last obstacle ends there
    const struct bfc_range *next = met < met_end && met->from < obstacle->from ? met++ : obstacle++;
    if (next->from >= at && next->from - at >= size) break;
    at = bfc_greatest(at, next->to);
  }
  if (at != BFC_NO_PLACE) bfc_arrange_put(arrangement, (struct bfc_range){at, at + size}, span);
  return at;
}
