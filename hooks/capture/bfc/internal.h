// internal.h - what the files of the native BFC share.
//
//   allocator.c  requests and frees: search, split, merge
//   freeset.c    the free chunks in the order (size, address)
//   live.c       the chunks in use by address
//   extend.c     regions: growth
//   garbage.c    regions: release of idle ones
//   unmapped.c   ranges of free chunks that are unmapped
//   uses.c       which pages each iteration uses, and what is unmapped or mapped for it
//   restore.c    blocks of a checkpoint
//   stats.c      statistics, listings, the chunk around an address
//   planner.c    which blocks an iteration requests and when it frees them; when to plan
//   plan.c       where the blocks of the coming iterations lie, and how they get there
//   arrange.c    the places of a plan: blocks that are not live together overlap
//   ends.c       the free chunks by where they end
//
// Each is the twin of the file of that name in bfc/ (Go).
//
// Chunks are slots of one array and are named by their index; slot 0 is never a chunk, so
// index 0 says "none". Host memory that a request may need is had before anything is
// changed: a failed malloc leaves the allocator as it was.
#ifndef MEMPROF_BFC_INTERNAL_H
#define MEMPROF_BFC_INTERNAL_H

#include "bfc/bfc.h"

enum {
  BFC_GRANULE_BITS = 8,
  // 16 classes to each power of two: see freeset.c.
  BFC_CLASS_BITS = 4,
  BFC_CLASSES = (64 - BFC_GRANULE_BITS - BFC_CLASS_BITS + 1) << BFC_CLASS_BITS,
  BFC_CLASS_WORDS = (BFC_CLASSES + 63) / 64,
  // Slots that one request can take: a chunk and a wall for each of five growths (one as far
  // as a plan, two before and two after garbage collection), and the rests of a split.
  BFC_SLOTS_A_REQUEST = 11,
  BFC_GROWTHS_A_REQUEST = 5,
};

// The greatest size that is a multiple of the granule.
#define BFC_MAX_SIZE (UINT64_MAX - (BFC_GRANULE - 1))

enum bfc_state { BFC_UNUSED, BFC_FREE, BFC_IN_USE, BFC_WALL };

// The orders of the free chunks, of freeset.c and ends.c.
enum bfc_order { BFC_BY_SIZE = 1, BFC_BY_END = 2 };

// The request that a block was handed out for.
struct bfc_origin {
  uint32_t request;    // 1 + its index among the requests of its iteration; 0: it is not noted
  uint32_t iteration;  // as bfc.ended counts them
};

// A piece of a region. The chunks of a region and its wall form a ring in address order;
// the wall is a chunk of no bytes at the region's end that counts as in use, so that no
// merge has to ask whether there is a neighbour. One cache line.
struct bfc_chunk {
  uint64_t addr, size;
  uint64_t requested;  // 0 while free
  uint64_t note;       // of the owner, while in use
  uint32_t prev, next;  // in the ring; next also links the slots to be used again
  union {
    uint32_t child[2];         // while free: lesser and greater keys of the treap
    struct bfc_origin origin;  // while in use
  };
  uint32_t priority;    // no child has a greater one; fixed for the life of the slot
  uint16_t state;       // enum bfc_state
  uint8_t waits;        // while free: a set of enum bfc_order that it has no place in so far; child, or near, say nothing then
  bool listed;          // among the slots of bfc_waiting
  uint32_t near[2];     // while free, where plans are made: chunks that end before and after it
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
struct bfc_freeset {
  uint64_t summary;                  // bit w: words[w] is not zero
  uint64_t words[BFC_CLASS_WORDS];   // bit c: class c holds something
  uint32_t roots[BFC_CLASSES];
};

// With plans, the slots that bfc_freeset_link_waiting is to look at, each once: those of all chunks that wait, and of
// some that do so no more, whatever became of them.
struct bfc_waiting {
  uint32_t *items;  // room for each slot there is
  uint32_t count;
};

// Open addressing: the upper half of the address's hash, and the chunk (0: empty slot).
struct bfc_live_slot {
  uint32_t tag, chunk;
};

struct bfc_live {
  struct bfc_live_slot *slots;  // a power of two of them, at most 3/4 in use
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

enum bfc_ending {
  BFC_ENDS_LATER,  // after the next iteration, or nobody knows yet
  BFC_ENDS_SAME,   // in the iteration of the request
  BFC_ENDS_NEXT,   // in the one after it
};

// What is known of the block of a request. Positions count the requests and frees of an
// iteration from 0.
struct bfc_lifetime {
  uint64_t size;      // bytes, a multiple of the granule
  uint32_t from, to;  // positions of the request and, in the iteration of the free, of the free
  uint32_t end;       // enum bfc_ending
};

// Those of an iteration, by request.
struct bfc_lifetimes {
  struct bfc_lifetime *items;
  size_t count, capacity;
  bool partial;  // not all of it is noted
};

#define BFC_NO_PLACE UINT64_MAX

// A request of a plan.
struct bfc_planned {
  uint64_t size;       // bytes, a multiple of the granule
  uint64_t places[2];  // addresses in even and odd iterations, or BFC_NO_PLACE
  uint64_t first;      // in the plan's first iteration
  uint64_t before[2];  // the block before the free chunk that had the place, by its address; 0: it began a region, or nobody knows yet
  uint32_t served;     // 1 + the last iteration in which it was served
  bool later;          // its block ends later: it has no place, and best fit finds it one
};

// Iterations as they are noted, and the plan that was made of one.
struct bfc_planner {
  uint32_t ends_root;                      // of ends.c
  struct bfc_lifetimes current, previous;  // of this iteration and the one before
  uint32_t position;                       // of the next request or free

  struct bfc_planned *requests;  // of the plan, in order
  size_t count, capacity;
  size_t cursor;   // the first that has not been served in this iteration, or is not looked for any more
  uint32_t first;  // the iteration it begins with, as bfc.ended counts them

  bool missed[2];  // the plan did not hold in this iteration, or the one before
  uint32_t made;   // plans
  uint32_t tries;  // to make one
  uint32_t next;   // ended iterations from which on another one is tried
};

struct bfc {
  struct bfc_options options;
  struct bfc_memory memory;
  uint64_t max_slack;
  struct bfc_stats stats;

  struct bfc_chunk *chunks;
  uint32_t used, capacity;  // slots ever taken (slot 0 with them), and there
  uint32_t recycled, recycled_count;

  struct bfc_live live;
  struct bfc_region *regions;  // by address
  size_t region_count, region_capacity;
  struct bfc_ranges unmapped;
  struct bfc_snapshot snapshot;

  uint64_t next_region;
  uint32_t last_grown;  // wall of the region grown last, 0 once that was released
  uint32_t ended;       // iterations
  uint32_t forgotten;   // of so many, from the first on, no use makes another one expected
  struct bfc_planner planner;

  struct bfc_freeset free;
  struct bfc_waiting waiting;
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

// allocator.c
bool bfc_reserve(struct bfc *bfc);  // host memory for one request or restore; false: there is none
void bfc_describe(const struct bfc *bfc, uint32_t chunk, struct bfc_block *out);
uint32_t bfc_take_slot(struct bfc *bfc);  // bfc_alloc has seen to it that there is one
void bfc_recycle(struct bfc *bfc, uint32_t chunk);
void bfc_merge(struct bfc *bfc, uint32_t chunk);      // a free chunk that is in no class, nor among the ends
uint32_t bfc_find_chunk(struct bfc *bfc, uint64_t rounded);  // by best fit or growth, and cut to what a request gets; 0: none
// Takes [addr, addr+size) out of a free chunk that has all of it: the chunk of just that, in no class.
uint32_t bfc_carve(struct bfc *bfc, uint32_t chunk, uint64_t addr, uint64_t size);
void bfc_hand_out(struct bfc *bfc, uint32_t chunk, uint64_t requested);  // a chunk that is in no class
uint32_t bfc_search(struct bfc *bfc, uint64_t rounded);  // 0: nothing fits
uint64_t bfc_handed_out(const struct bfc *bfc, uint64_t size, uint64_t rounded);

// freeset.c
void bfc_freeset_wait(struct bfc *bfc, uint32_t chunk, enum bfc_order order);  // for its place in it
void bfc_freeset_link_waiting(struct bfc *bfc);  // gives what waits its places
void bfc_freeset_insert(struct bfc *bfc, uint32_t chunk);  // with plans it waits
void bfc_freeset_remove(struct bfc *bfc, uint32_t chunk);
uint32_t bfc_freeset_first(struct bfc *bfc, uint64_t size, uint64_t addr);  // at or after; 0: none
uint32_t bfc_freeset_after(struct bfc *bfc, uint32_t chunk);
uint32_t bfc_freeset_largest(struct bfc *bfc);

// live.c
bool bfc_live_reserve(struct bfc_live *table);  // room for one more; false: no host memory
void bfc_live_insert(struct bfc_live *table, uint64_t addr, uint32_t chunk);
uint32_t bfc_live_find(const struct bfc *bfc, uint64_t addr);
uint32_t bfc_live_remove(struct bfc *bfc, uint64_t addr);  // the chunk, 0: not there

// extend.c
uint64_t bfc_first_region(const struct bfc_options *options);
uint32_t bfc_extend_and_search(struct bfc *bfc, uint64_t rounded);
bool bfc_extend_by(struct bfc *bfc, uint64_t lack);
size_t bfc_region_at(const struct bfc *bfc, uint64_t addr);  // first region that ends after addr

// garbage.c
bool bfc_worth_collecting(const struct bfc *bfc, uint64_t rounded);
void bfc_collect_garbage(struct bfc *bfc);

// uses.c
void bfc_note_use(struct bfc *bfc, uint64_t addr, uint64_t size);
void bfc_note_region(struct bfc *bfc, struct bfc_region *region);  // that has come to its size
void bfc_unmap_elsewhere(struct bfc *bfc, uint64_t bytes, uint32_t keep);      // from all free chunks but that one

// unmapped.c
void bfc_unmapped_add(struct bfc *bfc, uint64_t from, uint64_t to);  // room for one range is there
// Maps what is missing of a range that a request gets of a free chunk.
bool bfc_map_for(struct bfc *bfc, uint32_t chunk, struct bfc_range range);
uint32_t bfc_search_mapped(struct bfc *bfc, uint32_t best, uint64_t rounded);
uint64_t bfc_unmapped_within(const struct bfc *bfc, uint64_t from, uint64_t to);
void bfc_unmapped_remove(struct bfc *bfc, uint64_t from, uint64_t to);  // may leave one range more
bool bfc_unmapped_reserve(struct bfc *bfc, size_t more);  // room for more ranges; false: no host memory
size_t bfc_unmapped_from(const struct bfc *bfc, uint64_t addr);        // first range ending after addr

// ends.c
void bfc_ends_insert(struct bfc *bfc, uint32_t chunk);  // one that is free by itself, and was part of no other; it waits
void bfc_ends_place(struct bfc *bfc, uint32_t chunk);  // gives one that waits its place
void bfc_ends_remove(struct bfc *bfc, uint32_t chunk);  // one that is free no more, or part of another
uint32_t bfc_ends_first(struct bfc *bfc, uint64_t end);  // the first that ends there or behind; 0: none

// planner.c
void bfc_planner_requested(struct bfc *bfc, uint32_t chunk, uint64_t rounded);
void bfc_planner_freed(struct bfc *bfc, struct bfc_origin origin);
void bfc_planner_end(struct bfc *bfc);  // of an iteration
void bfc_planner_delete(struct bfc *bfc);

// plan.c
uint32_t bfc_plan_place(struct bfc *bfc, uint64_t rounded, uint64_t requested);  // what bfc_alloc does with plans; 0: no memory
// False, and the plan is what it was: it would take too long, or host memory is short.
bool bfc_plan_make(struct bfc *bfc, const struct bfc_lifetimes *lifetimes);
void bfc_plan_expect(struct bfc *bfc);  // its places to be used, and what is in use, and nothing else
bool bfc_plan_begins(const struct bfc *bfc);  // whether this is a plan's first iteration

// arrange.c

// Some positions of the circle of two iterations, from included, to not; none where they are equal.
// Those that go on behind the end of the circle are the first ones again.
struct bfc_positions {
  uint32_t from, to;
};

// A block that is live at the first positions of the circle, up to a position.
struct bfc_leaver {
  struct bfc_range range;
  uint32_t until;
};

// Blocks of which no two have an address in common while both are live. At most one begins to be
// live at a position.
struct bfc_arrangement {
  struct bfc_range *obstacles;  // always live; in the order of addresses, the first from 0, the last to BFC_NO_PLACE
  struct bfc_leaver *leaving;   // they meet nothing that is put anywhere
  size_t leaving_count;
  uint32_t circle;            // positions
  uint32_t *ends, leaves;     // a tree of maxima from [1], over positions from [leaves]: where what begins there ends, or 0
  struct bfc_range *places;   // by position, of the blocks that begin there
  struct bfc_range *met, *spare;  // what the block that is being placed meets in time; as much room
  size_t met_count;
};

// An item of an order by keys and then indices.
struct bfc_rank {
  uint64_t key, index;
};

void bfc_ranks_sort(struct bfc_rank *ranks, size_t count);
// The positions of a block whose request is in the first (0) or second (1) of the two iterations.
struct bfc_positions bfc_span(const struct bfc_lifetime *lifetime, uint32_t length, uint32_t iteration);
// With room for `most` to be met by one block. False: no host memory.
bool bfc_arrange_begin(struct bfc_arrangement *arrangement, uint32_t circle, size_t most);
void bfc_arrange_clear(struct bfc_arrangement *arrangement);  // of what was put
void bfc_arrange_end(struct bfc_arrangement *arrangement);    // after begin, whatever it said
void bfc_arrange_put(struct bfc_arrangement *arrangement, struct bfc_range range, struct bfc_positions span);
// Puts a block at the lowest address where it meets nothing, or nowhere: BFC_NO_PLACE.
uint64_t bfc_arrange_place(struct bfc_arrangement *arrangement, uint64_t size, struct bfc_positions span);

#endif
