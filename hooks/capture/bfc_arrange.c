// bfc_arrange.c - the places of a plan: blocks that are not live together overlap.
//
// A plan is of two iterations that follow each other in a circle, since a block that is asked
// for before its like of the iteration before is freed cannot have the same place. Each block
// is put at the lowest address where nothing is live while it is.
#include "bfc_internal.h"

#include <stdlib.h>

static int compare_ranks(const void *left, const void *right) {
  const struct bfc_rank *a = left, *b = right;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

void bfc_ranks_sort(struct bfc_rank *ranks, size_t count) { qsort(ranks, count, sizeof *ranks, compare_ranks); }

void bfc_spans(const struct bfc_lifetime *lifetime, uint32_t length, uint32_t iteration, struct bfc_positions out[2]) {
  const uint32_t start = iteration * length;
  out[0] = out[1] = (struct bfc_positions){0};
  if (lifetime->end == BFC_ENDS_LATER) return;
  out[0].from = start + lifetime->from;
  if (lifetime->end == BFC_ENDS_SAME) {
    out[0].to = start + lifetime->to;
  } else if (iteration == 0) {
    out[0].to = length + lifetime->to;
  } else {
    out[0].to = start + length;
    out[1].to = lifetime->to;
  }
}

static bool positions_meet(struct bfc_positions a, struct bfc_positions b) { return a.from < b.to && b.from < a.to; }

static bool spans_meet(const struct bfc_positions a[2], const struct bfc_positions b[2]) {
  return positions_meet(a[0], b[0]) || positions_meet(a[0], b[1]) || positions_meet(a[1], b[0]) || positions_meet(a[1], b[1]);
}

bool bfc_spots_overlap(const struct bfc_spot *a, const struct bfc_spot *b) {
  return a->from < b->to && b->from < a->to && spans_meet(a->spans, b->spans);
}

void bfc_arrange_begin(struct bfc_arrangement *arrangement, size_t obstacles) {
  arrangement->count = obstacles;
  for (size_t i = 0; i < obstacles; i++) {
    arrangement->spots[i].spans[0] = (struct bfc_positions){0, UINT32_MAX};
    arrangement->spots[i].spans[1] = (struct bfc_positions){0};
    arrangement->spots[i].next = i + 1 < obstacles ? (int64_t)i + 1 : -1;
  }
}

void bfc_arrange_link(struct bfc_arrangement *arrangement, struct bfc_rank *scratch) {
  struct bfc_spot *spots = arrangement->spots;
  const size_t count = arrangement->count;
  for (size_t i = 0; i < count; i++) scratch[i] = (struct bfc_rank){spots[i].from, i};
  bfc_ranks_sort(scratch, count);
  for (size_t i = 0; i < count; i++) spots[scratch[i].index].next = i + 1 < count ? (int64_t)scratch[i + 1].index : -1;
}

uint64_t bfc_arrange_place(struct bfc_arrangement *arrangement, uint64_t size, const struct bfc_positions spans[2]) {
  if (spans[0].from == spans[0].to) return BFC_NO_PLACE;  // it is never live
  struct bfc_spot *spots = arrangement->spots;
  uint64_t at = 0;
  int64_t before = 0;
  for (int64_t i = 0; i >= 0; i = spots[i].next) {
    const struct bfc_spot *spot = &spots[i];
    if (spot->from >= at && spot->from - at >= size) break;
    if (spot->to > at && spans_meet(spot->spans, spans)) at = spot->to;
    if (spot->from <= at) before = i;
  }
  if (at == BFC_NO_PLACE) return at;
  spots[arrangement->count] = (struct bfc_spot){at, at + size, {spans[0], spans[1]}, spots[before].next};
  spots[before].next = (int64_t)arrangement->count++;
  return at;
}
