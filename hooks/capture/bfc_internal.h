// bfc_internal.h - what the files of the native BFC share.
//
//   bfc.c           requests and frees: search, split, merge
//   bfc_free.c      the free chunks in the order (size, address)
//   bfc_table.c     chunks in use by address
//   bfc_extend.c    regions: growth, and release of idle ones
//   bfc_unmapped.c  ranges of free chunks that were given back
//   bfc_uses.c      which granules each iteration uses, and what is taken or given back for it
//   bfc_look.c      statistics, listings, the chunk around an address
//
// Chunks are slots of one array and are named by their index; slot 0 is never a chunk, so
// index 0 says "none". Host memory that a request may need is had before anything is
// changed: a failed malloc leaves the allocator as it was.
#ifndef MEMPROF_BFC_INTERNAL_H
#define MEMPROF_BFC_INTERNAL_H

#include "bfc.h"

enum {
  BFC_GRANULE_BITS = 8,
  // 16 classes to each power of two: see bfc_free.c.
  BFC_CLASS_BITS = 4,
  BFC_CLASSES = (64 - BFC_GRANULE_BITS - BFC_CLASS_BITS + 1) << BFC_CLASS_BITS,
  BFC_CLASS_WORDS = (BFC_CLASSES + 63) / 64,
  // Slots that one request can take: a chunk and a wall for each of four growths (two
  // before and two after garbage collection), and the rest of a split.
  BFC_SLOTS_A_REQUEST = 9,
  BFC_GROWTHS_A_REQUEST = 4,
};

// The greatest size that is a multiple of the granule.
#define BFC_GREATEST (UINT64_MAX - (BFC_GRANULE - 1))

enum bfc_state { BFC_UNUSED, BFC_FREE, BFC_IN_USE, BFC_WALL };

// A piece of a region. The chunks of a region and its wall form a ring in address order;
// the wall is a chunk of no bytes at the region's end that counts as in use, so that no
// merge has to ask whether there is a neighbour. One cache line.
struct bfc_chunk {
  uint64_t addr, size;
  uint64_t requested;  // 0 while free
  uint64_t note;       // of the owner, while in use
  uint32_t prev, next;  // in the ring; next also links the slots to be used again
  uint32_t child[2];    // while free: lesser and greater keys of the treap
  uint32_t priority;    // no child has a greater one; fixed for the life of the slot
  uint32_t state;       // enum bfc_state
  uint64_t unused;
};

_Static_assert(sizeof(struct bfc_chunk) == 64, "a chunk is a cache line");

// What one grant, or several adjacent ones, brought.
struct bfc_region {
  uint64_t addr, size;
  uint32_t wall;   // its next is the first chunk, its prev the last
  uint32_t *uses;  // by granule of the memory, if they are noted: 1 + the iteration of the last use, 0 for none
  size_t use_count;  // granules without a place here are always expected to be used
};

// The free chunks, by class of size.
struct bfc_free {
  uint64_t summary;                  // bit w: words[w] is not zero
  uint64_t words[BFC_CLASS_WORDS];   // bit c: class c holds something
  uint32_t roots[BFC_CLASSES];
};

// Open addressing: the upper half of the address's hash, and the chunk (0: empty slot).
struct bfc_slot {
  uint32_t tag, chunk;
};

struct bfc_table {
  struct bfc_slot *slots;  // a power of two of them, at most 3/4 in use
  uint32_t count, capacity;
  unsigned shift;  // home of a tag = tag >> shift
};

struct bfc_range {
  uint64_t from, to;
};

// A set of bytes as its maximal ranges, in address order.
struct bfc_ranges {
  struct bfc_range *items;
  size_t count, capacity;
};

// The chunks in use by address, for bfc_containing; made when asked for.
struct bfc_snapshot {
  uint32_t *chunks;
  size_t count, capacity;
  bool stale;
};

struct bfc {
  struct bfc_options options;
  struct bfc_memory memory;
  uint64_t max_excess;
  struct bfc_stats stats;

  struct bfc_chunk *chunks;
  uint32_t used, capacity;  // slots ever taken (slot 0 with them), and there
  uint32_t recycled, recycled_count;

  struct bfc_table live;
  struct bfc_region *regions;  // by address
  size_t region_count, region_capacity;
  struct bfc_ranges unmapped;
  struct bfc_snapshot snapshot;

  uint64_t next_region;
  uint32_t last_grown;  // wall of the region grown last, 0 once that was released
  uint32_t ended;       // iterations

  struct bfc_free free;
};

// Rounds up to a multiple of unit, a power of two; past 2^64, to the last one below it.
static inline uint64_t bfc_round_up(uint64_t x, uint64_t unit) {
  return x > (uint64_t)0 - unit ? (uint64_t)0 - unit : (x + unit - 1) & ~(unit - 1);
}

static inline uint64_t bfc_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t bfc_greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

// How much of the limit is left.
static inline uint64_t bfc_room(const struct bfc *bfc) {
  return bfc->stats.reserved >= bfc->options.limit ? 0 : bfc->options.limit - bfc->stats.reserved;
}

// Doubles an array to hold at least `wanted` items; false leaves it as it was.
bool bfc_make_room(void **items, size_t *capacity, size_t wanted, size_t item_size);

// bfc.c
uint32_t bfc_take_slot(struct bfc *bfc);  // bfc_alloc has seen to it that there is one
void bfc_recycle(struct bfc *bfc, uint32_t chunk);
void bfc_merge(struct bfc *bfc, uint32_t chunk);      // a free chunk that is in no class
uint32_t bfc_search(struct bfc *bfc, uint64_t rounded);  // 0: nothing fits
uint64_t bfc_handed_out(const struct bfc *bfc, uint64_t size, uint64_t rounded);

// bfc_free.c
void bfc_free_insert(struct bfc *bfc, uint32_t chunk);
void bfc_free_remove(struct bfc *bfc, uint32_t chunk);
uint32_t bfc_free_first(const struct bfc *bfc, uint64_t size, uint64_t addr);  // at or after; 0: none
uint32_t bfc_free_after(const struct bfc *bfc, uint32_t chunk);
uint32_t bfc_free_last(const struct bfc *bfc);

// bfc_table.c
bool bfc_table_reserve(struct bfc_table *table);  // room for one more; false: no host memory
void bfc_table_insert(struct bfc_table *table, uint64_t addr, uint32_t chunk);
uint32_t bfc_table_find(const struct bfc *bfc, uint64_t addr);
uint32_t bfc_table_remove(struct bfc *bfc, uint64_t addr);  // the chunk, 0: not there

// bfc_extend.c
uint64_t bfc_first_region(const struct bfc_options *options);
uint32_t bfc_extend_and_search(struct bfc *bfc, uint64_t rounded);
bool bfc_worth_collecting(const struct bfc *bfc, uint64_t rounded);
void bfc_collect_garbage(struct bfc *bfc);
size_t bfc_region_at(const struct bfc *bfc, uint64_t addr);  // first region that ends after addr

// bfc_uses.c
void bfc_note_use(struct bfc *bfc, uint64_t addr, uint64_t size);
void bfc_note_region(struct bfc *bfc, struct bfc_region *region);  // that has come to its size
void bfc_take(struct bfc *bfc, uint64_t bytes, uint32_t keep);      // from all free chunks but that one

// bfc_unmapped.c
void bfc_unmapped_add(struct bfc *bfc, uint64_t from, uint64_t to);  // room for one range is there
uint32_t bfc_search_mapped(struct bfc *bfc, uint32_t best, uint64_t rounded);
uint64_t bfc_unmapped_within(const struct bfc *bfc, uint64_t from, uint64_t to);
void bfc_unmapped_remove(struct bfc *bfc, uint64_t from, uint64_t to);  // may leave one range more
bool bfc_unmapped_reserve(struct bfc *bfc, size_t more);  // room for more ranges; false: no host memory
size_t bfc_unmapped_from(const struct bfc *bfc, uint64_t addr);        // first range ending after addr

#endif
