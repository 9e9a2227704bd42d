// ends.c - the free chunks by where they end, with the option `planned`.
//
// plan.c guesses which free chunk has a place. Where the guess is wrong, the chunk is found here: the
// first that ends at or behind the place's end, if it begins early enough. The treap is that of
// freeset.c without its classes, with the same priorities. Free chunks of a region do not touch, so that
// one that becomes longer or shorter keeps its position in the order, and so in the treap.
#include "bfc/internal.h"

static uint64_t end_of(const struct bfc_chunk *chunk) { return chunk->addr + chunk->size; }

void bfc_ends_insert(struct bfc *bfc, uint32_t index) {
  if (bfc->options.planned) bfc_freeset_wait(bfc, index, BFC_BY_END);
}

void bfc_ends_place(struct bfc *bfc, uint32_t index) {
  struct bfc_chunk *chunks = bfc->chunks, *chunk = &chunks[index];
  const uint64_t end = end_of(chunk);
  uint32_t *link = &bfc->planner.ends_root;
  while (*link != 0 && chunks[*link].priority >= chunk->priority) link = &chunks[*link].near[end_of(&chunks[*link]) < end];
  // The subtree that was here is split at the new end and becomes its two children.
  uint32_t at = *link, *lesser = &chunk->near[0], *greater = &chunk->near[1];
  *link = index;
  while (at != 0) {
    struct bfc_chunk *here = &chunks[at];
    if (end_of(here) < end) {
      *lesser = at;
      lesser = &here->near[1];
      at = *lesser;
    } else {
      *greater = at;
      greater = &here->near[0];
      at = *greater;
    }
  }
  *lesser = *greater = 0;
}

void bfc_ends_remove(struct bfc *bfc, uint32_t index) {
  if (!bfc->options.planned) return;
  struct bfc_chunk *chunks = bfc->chunks, *chunk = &chunks[index];
  if (chunk->waits & BFC_BY_END) {
    chunk->waits ^= BFC_BY_END;
    return;
  }
  const uint64_t end = end_of(chunk);
  uint32_t *link = &bfc->planner.ends_root;
  while (*link != index) link = &chunks[*link].near[end_of(&chunks[*link]) < end];
  uint32_t lesser = chunk->near[0], greater = chunk->near[1];
  while (lesser != 0 && greater != 0) {
    if (chunks[lesser].priority > chunks[greater].priority) {
      *link = lesser;
      link = &chunks[lesser].near[1];
      lesser = *link;
    } else {
      *link = greater;
      link = &chunks[greater].near[0];
      greater = *link;
    }
  }
  *link = lesser | greater;  // at most one of them is not 0
}

uint32_t bfc_ends_first(struct bfc *bfc, uint64_t end) {
  bfc_freeset_link_waiting(bfc);
  const struct bfc_chunk *chunks = bfc->chunks;
  uint32_t found = 0;
  for (uint32_t at = bfc->planner.ends_root; at != 0;) {
    const unsigned before = end_of(&chunks[at]) < end;
    if (!before) found = at;
    at = chunks[at].near[before];
  }
  return found;
}
