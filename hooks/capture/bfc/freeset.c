// freeset.c - the free chunks in the order (size, address).
//
// They are divided into classes of nearly equal size: 16 to every power of two, so that a
// class is 1/16 of one of the policy's bins, and the smallest sizes have a class each. A
// class of greater number holds greater sizes only. Two levels of bitmap say which classes
// hold anything; inside a class a treap keeps the order. With the usual few chunks in a
// class an operation costs some instructions, and it is O(log n) whatever the sizes are.
#include "bfc/internal.h"

// Monotone: a greater size never has a lesser class. Size is a positive multiple of the granule.
static unsigned class_of(uint64_t size) {
  uint64_t granules = size >> BFC_GRANULE_BITS;
  if (granules < 1 << BFC_CLASS_BITS) return (unsigned)granules;
  unsigned shift = 63 - (unsigned)__builtin_clzll(granules) - BFC_CLASS_BITS;
  return (shift << BFC_CLASS_BITS) + (unsigned)(granules >> shift);
}

// 1 if the chunk's key is less than (size, addr), so that the search goes on with its greater child,
// else 0. It has no branch, since that would be mispredicted half of the time.
static unsigned side(const struct bfc_chunk *chunk, uint64_t size, uint64_t addr) {
  return (unsigned)(chunk->size < size) | ((unsigned)(chunk->size == size) & (unsigned)(chunk->addr < addr));
}

void bfc_freeset_insert(struct bfc *bfc, uint32_t index) {
  struct bfc_chunk *chunks = bfc->chunks, *chunk = &chunks[index];
  unsigned class = class_of(chunk->size);
  uint32_t *link = &bfc->free.roots[class];
  if (*link == 0) {
    *link = index;
    chunk->child[0] = chunk->child[1] = 0;
    bfc->free.words[class / 64] |= (uint64_t)1 << class % 64;
    bfc->free.summary |= (uint64_t)1 << class / 64;
    return;
  }
  while (*link != 0 && chunks[*link].priority >= chunk->priority)
    link = &chunks[*link].child[side(&chunks[*link], chunk->size, chunk->addr)];
  // The subtree that was here is split at the new key and becomes its two children.
  uint32_t at = *link;
  *link = index;
  uint32_t *lesser = &chunk->child[0], *greater = &chunk->child[1];
  while (at != 0) {
    struct bfc_chunk *here = &chunks[at];
    if (side(here, chunk->size, chunk->addr) != 0) {
      *lesser = at;
      lesser = &here->child[1];
      at = *lesser;
    } else {
      *greater = at;
      greater = &here->child[0];
      at = *greater;
    }
  }
  *lesser = *greater = 0;
}

void bfc_freeset_remove(struct bfc *bfc, uint32_t index) {
  struct bfc_chunk *chunks = bfc->chunks, *chunk = &chunks[index];
  unsigned class = class_of(chunk->size);
  uint32_t *link = &bfc->free.roots[class];
  while (*link != index) link = &chunks[*link].child[side(&chunks[*link], chunk->size, chunk->addr)];
  uint32_t lesser = chunk->child[0], greater = chunk->child[1];
  while (lesser != 0 && greater != 0) {
    if (chunks[lesser].priority > chunks[greater].priority) {
      *link = lesser;
      link = &chunks[lesser].child[1];
      lesser = *link;
    } else {
      *link = greater;
      link = &chunks[greater].child[0];
      greater = *link;
    }
  }
  *link = lesser | greater;  // at most one of them is not 0
  if (bfc->free.roots[class] != 0) return;
  bfc->free.words[class / 64] &= ~((uint64_t)1 << class % 64);
  if (bfc->free.words[class / 64] == 0) bfc->free.summary &= ~((uint64_t)1 << class / 64);
}

// The root of the first class behind `class` that is not empty, or 0.
static uint32_t next_root(const struct bfc_freeset *free, unsigned class) {
  unsigned word = class / 64;
  uint64_t rest = free->words[word] & ~(((uint64_t)2 << class % 64) - 1);
  if (rest == 0) {
    uint64_t summary = free->summary & ~(((uint64_t)2 << word) - 1);
    if (summary == 0) return 0;
    word = (unsigned)__builtin_ctzll(summary);
    rest = free->words[word];
  }
  return free->roots[word * 64 + (unsigned)__builtin_ctzll(rest)];
}

uint32_t bfc_freeset_first(struct bfc *bfc, uint64_t size, uint64_t addr) {
  const struct bfc_chunk *chunks = bfc->chunks;
  unsigned class = class_of(size);
  uint32_t found = 0;
  for (uint32_t at = bfc->free.roots[class]; at != 0;) {
    unsigned less = side(&chunks[at], size, addr);
    if (less == 0) found = at;
    at = chunks[at].child[less];
  }
  if (found != 0) return found;
  for (uint32_t at = next_root(&bfc->free, class); at != 0; at = chunks[at].child[0]) found = at;
  return found;
}

uint32_t bfc_freeset_after(struct bfc *bfc, uint32_t chunk) {
  return bfc_freeset_first(bfc, bfc->chunks[chunk].size, bfc->chunks[chunk].addr + 1);
}

uint32_t bfc_freeset_largest(struct bfc *bfc) {
  if (bfc->free.summary == 0) return 0;
  unsigned word = 63 - (unsigned)__builtin_clzll(bfc->free.summary);
  unsigned class = word * 64 + 63 - (unsigned)__builtin_clzll(bfc->free.words[word]);
  uint32_t found = 0;
  for (uint32_t at = bfc->free.roots[class]; at != 0; at = bfc->chunks[at].child[1]) found = at;
  return found;
}
