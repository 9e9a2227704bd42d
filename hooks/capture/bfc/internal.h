// internal.h - what the files of the native BFC share.
//
//   allocator.c  requests and frees: search, split, merge
//   freeset.c    the free chunks in the order (size, address)
//   live.c       the chunks in use by address
//   extend.c     regions: growth
//   garbage.c    regions: release of idle ones
//   unmapped.c   ranges of free chunks that are unmapped
//   uses.c       which pages each iteration uses, and what is unmapped or mapped for it
//   pages.c      growth pages: free pages anywhere serve a request before more are mapped
//   registered.c pages whose physical memory others know, which stay mapped
//   streams.c    how much a request takes of what other arenas hold idle, and which pages
//   restore.c    blocks of a checkpoint
//   stats.c      statistics, listings, the chunk around an address
//   planner.c    which blocks an iteration requests and when it frees them; when to plan
//   plan.c       where the blocks of the coming iterations lie, and how they get there
//   arrange.c    the places of a plan: blocks that are not live together overlap
//   ends.c       the free chunks by where they end
//   shortage.c   how requests are served once the device is short of memory
//
// Each is the twin of the file of that name in bfc/ (Go).
//
// Chunks are slots of one array, named by their index. Slot 0 is never a chunk, so that index 0 says
// "none". A request allocates the host memory that it may need before it changes anything, so that a
// failed malloc leaves the allocator as it was.
#ifndef MEMPROF_BFC_INTERNAL_H
#define MEMPROF_BFC_INTERNAL_H

#include "bfc/bfc.h"

enum {
  BFC_GRANULE_BITS = 8,
  // 16 classes to each power of two: see freeset.c.
  BFC_CLASS_BITS = 4,
  BFC_CLASSES = (64 - BFC_GRANULE_BITS - BFC_CLASS_BITS + 1) << BFC_CLASS_BITS,
  BFC_CLASS_WORDS = (BFC_CLASSES + 63) / 64,
  // The most slots that one request takes: a chunk and a wall for each of five growths (one for a
  // place of a plan, two before and two after garbage collection), and the rest of a split.
  BFC_SLOTS_A_REQUEST = 11,
  BFC_GROWTHS_A_REQUEST = 5,
};

// The largest multiple of the granule below 2^64.
#define BFC_MAX_SIZE (UINT64_MAX - (BFC_GRANULE - 1))

enum bfc_state { BFC_UNUSED, BFC_FREE, BFC_IN_USE, BFC_WALL };

// The orders that free chunks are linked into: by freeset.c and ends.c.
enum bfc_order { BFC_BY_SIZE = 1, BFC_BY_END = 2 };

// The request that a block was handed out for, where that is noted.
struct bfc_origin {
  uint32_t request;    // 1 + its index among the requests of its iteration; 0: not noted
  uint32_t iteration;  // from 0
};

// A part of a region. The chunks of a region and its wall form a ring in address order. The wall is
// a chunk of 0 bytes at the region's end that counts as in use, so that each chunk has neighbours
// and a merge ends there. One cache line.
struct bfc_chunk {
  uint64_t addr, size;
  uint64_t requested;  // 0 while free
  uint64_t note;       // the owner's, while in use
  uint32_t prev, next;  // indices of the neighbours; of an unused slot, next is the next unused one
  union {
    uint32_t child[2];         // while free: children in the treap of its class, with lesser and greater keys
    struct bfc_origin origin;  // while in use
  };
  uint32_t priority;    // no child has a greater one; fixed for the life of the slot
  uint16_t state;       // enum bfc_state
  uint8_t waits;        // while free: bitset of the orders it is not yet linked into; child (size) or near (end) is undefined until it is
  bool listed;          // in bfc_waiting
  uint32_t near[2];     // while free, with plans: children in the treap by end, which end before and behind it
};

_Static_assert(sizeof(struct bfc_chunk) == 64, "a chunk is a cache line");

// A range of addresses that one grant, or several adjacent ones, brought.
struct bfc_region {
  uint64_t addr, size;
  uint32_t wall;   // its next is the first chunk, its prev the last
  uint32_t *uses;    // by page, where uses are noted: 1 + the iteration of its last use, 0 for none
  size_t use_count;  // pages beyond these are always expected to be used
  struct bfc_page *pages;  // with growth pages
  size_t page_count;
};

// What is known of one page of a region.
struct bfc_page {
  uint32_t back;  // 1 + the number of the frame that was mapped there last; 0: none
  uint32_t used;  // 1 + the iteration in which a block touched it last; 0: never
  uint64_t left;  // pager.frees when a block last ceased to touch it; 0: never
  uint32_t registered;  // registrations by which others know its physical memory: it is not taken
  bool live;      // a block touches it
  bool listed;    // it is about to be unmapped
};

// Adjacent pages of a region.
struct bfc_pages {
  struct bfc_page *first;
  size_t count;
};

// A physical page.
struct bfc_frame {
  uint64_t page;   // address of the page that it backs, or UINT64_MAX
  bool spare;      // it is in pager.spare
};

// The number of classes of pages by their last use: in this iteration, in the one before, in the one before
// that, and earlier.
enum { BFC_AGES = 4 };

enum {
  BFC_MOST_SLACK = 8,     // steps: 2 % of the pages that blocks have touched at a time
  BFC_SLACK_STEPS = 400,  // a step is that part of the pages
  BFC_MOVED_SHARE = 500,  // that part of the pages may move in an iteration before slack becomes greater
};

#define BFC_ANY_FREE UINT64_MAX  // a number that no free has reached
#define BFC_NO_PAGE UINT64_MAX   // a frame backs no page

// Addresses of pages to unmap: scratch.
struct bfc_victims {
  uint64_t *items;
  size_t count, capacity;
};

// The state of growth pages. Counts are of pages.
struct bfc_pager {
  struct bfc_frame *frames;
  size_t frame_count, frame_capacity;
  uint32_t *spare;  // frames that backed no page when they came here; some may by now
  size_t spare_count, spare_capacity;  // capacity is at least that of frames
  uint64_t live;   // pages that blocks touch
  uint64_t most;   // the most of them so far
  uint64_t filled;  // the most bytes of blocks so far
  uint64_t slack;  // steps of it
  uint64_t moved;  // pages that were taken from other addresses in this iteration
  uint64_t frees;  // blocks that were freed or lost their slack
  struct bfc_victims victims[BFC_AGES];
};

// The free chunks, by class of size.
struct bfc_freeset {
  uint64_t summary;                  // bit w: words[w] is not zero
  uint64_t words[BFC_CLASS_WORDS];   // bit c: class c holds something
  uint32_t roots[BFC_CLASSES];
};

// With plans: the slots of all chunks that wait to be linked into an order, each once. A slot stays
// here when its chunk no longer waits, until bfc_freeset_link_waiting has looked at it.
struct bfc_waiting {
  uint32_t *items;  // room for each slot there is
  uint32_t count;
};

// An entry of the table: the upper half of the address's hash, and the chunk's index (0: empty).
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

// The chunks in use by address, for bfc_containing; made at its first call after a change.
struct bfc_snapshot {
  uint32_t *chunks;
  size_t count, capacity;
  bool stale;
};

enum bfc_ending {
  BFC_ENDS_LATER,  // after the next iteration, or not known
  BFC_ENDS_SAME,   // in the iteration of the request
  BFC_ENDS_NEXT,   // in the one after it
};

// When the block of a request is live, as far as it is known. Positions number the requests and
// frees of an iteration from 0.
struct bfc_lifetime {
  uint64_t size;      // bytes, a multiple of the granule
  uint32_t from, to;  // positions of the request and, in the iteration of the free, of the free
  uint32_t end;       // enum bfc_ending
};

// The lifetimes of an iteration, by request.
struct bfc_lifetimes {
  struct bfc_lifetime *items;
  size_t count, capacity;
  bool partial;  // the iteration has more requests or positions than are noted
};

#define BFC_NO_PLACE UINT64_MAX

// A request of a plan.
struct bfc_planned {
  uint64_t size;       // bytes, a multiple of the granule
  uint64_t places[2];  // addresses in even and odd iterations, or BFC_NO_PLACE
  uint64_t first;      // in the plan's first iteration
  uint64_t before[2];  // address of the block before the free chunk that had the place, in even and odd iterations; 0: the chunk began its region, or not known
  uint32_t served;     // 1 + the last iteration in which it was served
  bool later;          // its block ends later: it has no place, and is placed by best fit
};

// Where the blocks of an iteration are placed.
struct bfc_plan {
  struct bfc_planned *requests;  // in order
  size_t count, capacity;
  size_t cursor;   // the first request that is looked for in this iteration
  uint32_t first;  // the plan's first iteration
};

// Notes the requests and frees of iterations, decides when to make a plan, and has the plan.
struct bfc_planner {
  uint32_t ends_root;                      // of the treap by end: see ends.c
  struct bfc_lifetimes current, previous;  // of this iteration, and of the one before
  uint32_t position;                       // of the next request or free
  struct bfc_plan plan;
  bool missed[2];  // this iteration, and the one before: a request missed, or their number differs from the plan's
  uint32_t made;   // how many plans were made
  uint32_t tries;  // how many times making one was tried
  uint32_t next;   // the next try is when ended is at least this
};

struct bfc {
  struct bfc_options options;
  struct bfc_memory memory;
  uint64_t max_slack;
  struct bfc_stats stats;

  struct bfc_chunk *chunks;
  uint32_t used, capacity;  // slots that were ever taken, slot 0 included; slots that there is room for
  uint32_t recycled, recycled_count;

  struct bfc_live live;
  struct bfc_region *regions;  // by address
  size_t region_count, region_capacity;
  struct bfc_ranges unmapped;
  struct bfc_snapshot snapshot;

  uint64_t next_region;
  uint32_t last_grown;  // wall of the region that was granted or lengthened last; 0 once it is released
  uint32_t ended;       // how many iterations have ended: the number of the one under way
  bool shortage;        // the device is short of memory: see shortage.c
  uint32_t forgotten;   // uses in iterations [0, forgotten) do not make a page expected
  struct bfc_planner planner;
  struct bfc_pager pager;

  struct bfc_freeset free;
  struct bfc_waiting waiting;
};

// Rounds up to a multiple of unit, a power of two; past 2^64, to the last one below it.
static inline uint64_t bfc_round_up(uint64_t x, uint64_t unit) {
  return x > (uint64_t)0 - unit ? (uint64_t)0 - unit : (x + unit - 1) & ~(unit - 1);
}

static inline uint64_t bfc_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t bfc_greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

// How many bytes may still be mapped under the limit.
static inline uint64_t bfc_room(const struct bfc *bfc) {
  return bfc->stats.reserved >= bfc->options.limit ? 0 : bfc->options.limit - bfc->stats.reserved;
}

// allocator.c
bool bfc_reserve(struct bfc *bfc);  // host memory for one request or restore; false: there is none
void bfc_describe(const struct bfc *bfc, uint32_t chunk, struct bfc_block *out);
uint32_t bfc_take_slot(struct bfc *bfc);  // bfc_reserve has made sure that there is one
void bfc_recycle(struct bfc *bfc, uint32_t chunk);
void bfc_merge(struct bfc *bfc, uint32_t chunk);      // a free chunk that is linked into no order
uint32_t bfc_find_chunk(struct bfc *bfc, uint64_t rounded);  // by best fit or growth, cut to what a request gets; 0: none
// Takes [addr, addr+size) out of a free chunk that has all of it. Returns the chunk of just that range, linked into no order.
uint32_t bfc_carve(struct bfc *bfc, uint32_t chunk, uint64_t addr, uint64_t size);
uint32_t bfc_cut(struct bfc *bfc, uint32_t chunk, uint64_t rounded);  // the same, the part that a request gets
uint32_t bfc_split_back(struct bfc *bfc, uint32_t chunk, uint64_t size);  // a new chunk of its last bytes, linked into no order
void bfc_hand_out(struct bfc *bfc, uint32_t chunk, uint64_t requested);  // a chunk that is linked into no order
uint32_t bfc_search(struct bfc *bfc, uint64_t rounded);  // 0: nothing fits
uint64_t bfc_handed_out(const struct bfc *bfc, uint64_t size, uint64_t rounded);

// freeset.c
void bfc_freeset_wait(struct bfc *bfc, uint32_t chunk, enum bfc_order order);  // to be linked into that order
void bfc_freeset_link_waiting(struct bfc *bfc);  // links all waiting chunks into their orders
void bfc_freeset_insert(struct bfc *bfc, uint32_t chunk);  // with plans the chunk waits
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
uint32_t bfc_lengthen_and_search(struct bfc *bfc, uint64_t rounded);  // grows by what the request lacks behind a free tail
uint32_t bfc_free_tail(const struct bfc *bfc, uint64_t rounded);        // that a growth by what is lacking joins; 0: none
bool bfc_extend_by(struct bfc *bfc, uint64_t lack);
size_t bfc_region_at(const struct bfc *bfc, uint64_t addr);  // first region that ends after addr

// shortage.c
uint32_t bfc_squeeze(struct bfc *bfc, uint64_t rounded);  // where the fewest pages have to be mapped; cut; 0: no memory

// garbage.c
bool bfc_worth_collecting(const struct bfc *bfc, uint64_t rounded);
void bfc_collect_garbage(struct bfc *bfc);

// uses.c
void bfc_note_use(struct bfc *bfc, uint64_t addr, uint64_t size);
void bfc_note_region(struct bfc *bfc, struct bfc_region *region);  // that is new or has become longer
void bfc_unmap_elsewhere(struct bfc *bfc, uint64_t bytes, uint32_t keep);      // of all free chunks but `keep`

// pages.c: all do nothing but with growth pages
void bfc_note_pages(struct bfc *bfc, struct bfc_region *region, uint64_t bytes);  // the last bytes of a region were mapped by a growth
void bfc_touch(struct bfc *bfc, uint32_t chunk);  // a chunk has become a block
void bfc_leave(struct bfc *bfc, uint32_t chunk);  // it no longer is; not merged yet
void bfc_backed(struct bfc *bfc, struct bfc_range range);       // it was mapped: both of these
void bfc_back_again(struct bfc *bfc, struct bfc_range range);   // pages whose last frame backs none get that
void bfc_back_others(struct bfc *bfc, struct bfc_range range);  // pages without a frame get one
void bfc_unbacked(struct bfc *bfc, struct bfc_range range);  // it was unmapped
bool bfc_map_pages(struct bfc *bfc, struct bfc_range range);  // bfc_map_for with growth pages
bool bfc_extend_by_pages(struct bfc *bfc, uint64_t lack, uint32_t tail);  // behind a free tail, or 0
void bfc_pages_end(struct bfc *bfc);  // of an iteration
void bfc_pages_delete(struct bfc *bfc);
// Lists in pager.victims up to `count` pages of each age: mapped, touched by no block, and by none since the free with that number. The highest
// address comes first.
void bfc_list_free(struct bfc *bfc, uint64_t count, uint64_t free, struct bfc_range keep);
// The adjacent pages with which a list begins at *at, which is then behind them.
struct bfc_range bfc_first_run(const struct bfc *bfc, const uint64_t *addrs, size_t count, size_t *at);
struct bfc_page *bfc_page_at(const struct bfc *bfc, uint64_t addr);  // NULL: in no region, or not noted
struct bfc_pages bfc_pages_from(const struct bfc *bfc, uint64_t addr, uint64_t size);  // of a range in one region, as far as they are noted

// ready.c: with growth pages, of the best fit and the next larger chunks, the first that moves the fewest pages; else the best fit
uint32_t bfc_most_ready(struct bfc *bfc, uint32_t best, uint64_t rounded);

// unmapped.c
struct bfc_range bfc_reach(const struct bfc *bfc, uint32_t chunk, uint64_t rounded);  // the range that a request would get of a free chunk, widened to whole pages
bool bfc_map_range(struct bfc *bfc, struct bfc_range range);  // its unmapped part, all or nothing
void bfc_unmapped_add(struct bfc *bfc, uint64_t from, uint64_t to);  // room for one range is there
// Maps the unmapped part of a range that a request gets of a free chunk. False: it is refused, nothing is mapped.
bool bfc_map_for(struct bfc *bfc, uint32_t chunk, struct bfc_range range);
uint32_t bfc_search_mapped(struct bfc *bfc, uint32_t best, uint64_t rounded);
uint64_t bfc_unmapped_within(const struct bfc *bfc, uint64_t from, uint64_t to);
void bfc_unmapped_remove(struct bfc *bfc, uint64_t from, uint64_t to);  // may leave one range more
bool bfc_unmapped_reserve(struct bfc *bfc, size_t more);  // room for more ranges; false: no host memory
size_t bfc_unmapped_from(const struct bfc *bfc, uint64_t addr);        // first range ending after addr

// ends.c
void bfc_ends_insert(struct bfc *bfc, uint32_t chunk);  // one that was not merged into another; it waits
void bfc_ends_place(struct bfc *bfc, uint32_t chunk);  // links one that waits
void bfc_ends_remove(struct bfc *bfc, uint32_t chunk);  // one that is no longer free, or was merged into another
uint32_t bfc_ends_first(struct bfc *bfc, uint64_t end);  // the first that ends at or behind it; 0: none

// planner.c
void bfc_planner_requested(struct bfc *bfc, uint32_t chunk, uint64_t rounded);
void bfc_planner_freed(struct bfc *bfc, struct bfc_origin origin);
void bfc_planner_end(struct bfc *bfc);  // of an iteration
void bfc_planner_delete(struct bfc *bfc);

// plan.c
uint32_t bfc_plan_place(struct bfc *bfc, uint64_t rounded, uint64_t requested);  // a request with plans, handed out; 0: no memory
// False: it would take too long, or host memory is short; the plan is as it was.
bool bfc_plan_make(struct bfc *bfc, const struct bfc_lifetimes *lifetimes);
void bfc_plan_expect(struct bfc *bfc);  // notes the places as used now, and makes earlier uses count no more
bool bfc_plan_begins(const struct bfc *bfc);  // whether this is the plan's first iteration

// arrange.c

// The positions [from, to) on the circle of two iterations; none where they are equal. Behind the end
// of the circle they go on at its beginning.
struct bfc_positions {
  uint32_t from, to;
};

// A block of the iteration before the plan, live at the positions [0, until).
struct bfc_leaver {
  struct bfc_range range;
  uint32_t until;
};

// Blocks on a circle of positions. No two of them share an address while both are live, and at most
// one begins to be live at a position.
struct bfc_arrangement {
  struct bfc_range *obstacles;  // live at all positions; addresses ascending, the last ends at BFC_NO_PLACE
  struct bfc_leaver *leaving;   // also avoided by what is placed
  size_t leaving_count;
  uint32_t circle;            // number of positions
  uint32_t *ends, leaves;     // a tree of maxima from [1], its leaves, the positions, from [leaves]: where the block ends that begins there, or 0
  struct bfc_range *places;   // by position, of the blocks that begin there
  struct bfc_range *met, *spare;  // scratch: the blocks live together with the one being placed; as much room, to sort
  size_t met_count;
};

// An item to be sorted by key, then by index.
struct bfc_rank {
  uint64_t key, index;
};

void bfc_ranks_sort(struct bfc_rank *ranks, size_t count);
// The positions of a block whose request is in the first (0) or second (1) of the two iterations.
struct bfc_positions bfc_span(const struct bfc_lifetime *lifetime, uint32_t length, uint32_t iteration);
// With room for `most` blocks that are live together with one. False: no host memory.
bool bfc_arrange_begin(struct bfc_arrangement *arrangement, uint32_t circle, size_t most);
void bfc_arrange_clear(struct bfc_arrangement *arrangement);  // removes all blocks
void bfc_arrange_end(struct bfc_arrangement *arrangement);    // after begin, whatever that returned
void bfc_arrange_put(struct bfc_arrangement *arrangement, struct bfc_range range, struct bfc_positions span);
// Adds a block at the lowest address where it shares none with another while both are live. Returns the address; BFC_NO_PLACE: there is none.
uint64_t bfc_arrange_place(struct bfc_arrangement *arrangement, uint64_t size, struct bfc_positions span);

#endif
