// internal.h - what the files of the native BFC share.
//
//   allocator.c  requests and frees: search, split, merge
//   freeset.c    the free chunks in the order (size, address)
//   live.c       the chunks in use by address
//   extend.c     regions: growth
//   unmapped.c   ranges of free chunks that are unmapped
//   uses.c       iterations, and which pages no block has used in one
//   pages.c      growth pages: free pages anywhere serve a request before more are mapped
//   clear.c      free memory that nobody can read any more
//   registered.c pages whose physical memory others know, which stay mapped
//   streams.c    how much a request takes of what other arenas hold idle, and which pages
//   restore.c    blocks of a checkpoint
//   stats.c      statistics, listings, the chunk around an address
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
  // The most slots that one request takes: a chunk and a wall for each of two growths, and the rests of a split.
  BFC_SLOTS_A_REQUEST = 6,
  BFC_GROWTHS_A_REQUEST = 2,
};

// The largest multiple of the granule below 2^64.
#define BFC_MAX_SIZE (UINT64_MAX - (BFC_GRANULE - 1))

enum bfc_state { BFC_UNUSED, BFC_FREE, BFC_IN_USE, BFC_WALL };

// A part of a region. The chunks of a region and its wall form a ring in address order. The wall is
// a chunk of 0 bytes at the region's end that counts as in use, so that each chunk has neighbours
// and a merge ends there. One cache line.
struct bfc_chunk {
  _Alignas(64) uint64_t addr;
  uint64_t size;
  uint64_t requested;  // 0 while free
  uint64_t note;       // the owner's, while in use
  uint64_t left;       // while free: the number of the last free that is a part of it; 0: none is
  uint32_t prev, next;  // indices of the neighbours; of an unused slot, next is the next unused one
  uint32_t child[2];    // while free: children in the treap of its class, with lesser and greater keys
  uint32_t priority;    // no child has a greater one; fixed for the life of the slot
  uint32_t state;       // enum bfc_state
};

_Static_assert(sizeof(struct bfc_chunk) == 64, "a chunk is a cache line");

// A range of addresses that one grant, or several adjacent ones, brought.
struct bfc_region {
  uint64_t addr, size;
  uint32_t wall;   // its next is the first chunk, its prev the last
  struct bfc_page *pages;  // with growth pages or trims; NULL otherwise
  size_t page_count;       // pages beyond these are not noted: they are neither taken nor trimmed
};

// What is known of one page of a region.
struct bfc_page {
  uint32_t back;  // 1 + the number of the frame that was mapped there last; 0: none
  uint32_t used;  // 1 + the iteration in which a block touched it last; 0: never
  uint64_t left;  // the number of the free after which no block touched it any more; 0: none has
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
  bool unused;      // it is in pager.unused
};

// The number of classes of pages by their last use: in this iteration, in the one before, in the one before
// that, and earlier.
enum { BFC_AGES = 4 };

enum {
  BFC_MOST_SLACK = 16,    // steps: 4 % of the pages that blocks have touched at a time
  BFC_MOST_REPEATED = 40, // steps where an iteration asks for what the last one did, and pages move for nothing
  BFC_SLACK_STEPS = 400,  // a step is that part of the pages
  BFC_MOVED_SHARE = 500,  // that part of the pages may move in an iteration before slack becomes greater
};

#define BFC_NO_PAGE UINT64_MAX   // a frame backs no page

// Addresses of pages to unmap: scratch.
struct bfc_victims {
  uint64_t *items;
  size_t count, capacity;
};

// Blocks that were handed out, and their bytes.
struct bfc_handed_out {
  uint64_t blocks, bytes;
};

// The state of growth pages. Counts are of pages.
struct bfc_pager {
  struct bfc_frame *frames;
  size_t frame_count, frame_capacity;
  uint32_t *unused;  // frames that backed no page when they came here; some may by now
  size_t unused_count, unused_capacity;  // capacity is at least that of frames
  uint64_t live;   // pages that blocks touch
  uint64_t most;   // the most of them so far
  uint64_t filled;  // the most bytes of blocks so far
  uint64_t slack;  // steps of it
  uint64_t moved;  // pages that were taken from other addresses in this iteration
  struct bfc_handed_out served, before;  // in this iteration, and in the last
  struct bfc_victims victims[BFC_AGES];
};

// The free chunks, by class of size.
struct bfc_freeset {
  uint64_t summary;                  // bit w: words[w] is not zero
  uint64_t words[BFC_CLASS_WORDS];   // bit c: class c holds something
  uint32_t roots[BFC_CLASSES];
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

struct bfc {
  struct bfc_options options;
  struct bfc_memory memory;
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
  uint64_t wanted;      // bytes that the request maps besides those that it asks the memory for
  uint32_t last_grown;  // wall of the region that was granted or lengthened last; 0: there is none
  uint32_t ended;       // how many iterations have ended: the number of the one under way
  uint64_t frees;       // blocks that were freed or lost their slack
  uint64_t over;        // work that was queued before so many of these is over
  bool looked;          // the request under way has called memory.look
  bool shortage;        // the device is short of memory: see shortage.c
  struct bfc_pager pager;

  struct bfc_freeset free;
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
void bfc_merge(struct bfc *bfc, uint32_t chunk);      // a free chunk that is not in the freeset
// Takes [addr, addr+size) out of a free chunk that has all of it. Returns the chunk of just that range, not in the freeset.
uint32_t bfc_carve(struct bfc *bfc, uint32_t chunk, uint64_t addr, uint64_t size);
uint32_t bfc_cut(struct bfc *bfc, uint32_t chunk, uint64_t rounded);  // the same, the part that a request gets
uint32_t bfc_split_back(struct bfc *bfc, uint32_t chunk, uint64_t size);  // a new chunk of its last bytes, not in the freeset
void bfc_hand_out(struct bfc *bfc, uint32_t chunk, uint64_t requested);  // a chunk that is not in the freeset
uint32_t bfc_search(struct bfc *bfc, uint64_t rounded);  // 0: nothing fits
uint64_t bfc_handed_out(const struct bfc *bfc, uint64_t size, uint64_t rounded);

// freeset.c
void bfc_freeset_insert(struct bfc *bfc, uint32_t chunk);
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
uint32_t bfc_extend_and_cut(struct bfc *bfc, uint64_t rounded);
uint32_t bfc_lengthen_and_cut(struct bfc *bfc, uint64_t rounded);  // grows by what the request lacks behind a free tail
uint32_t bfc_free_tail(struct bfc *bfc, uint64_t rounded);        // that a growth by what is lacking joins; 0: none
bool bfc_extend_by(struct bfc *bfc, uint64_t lack);
size_t bfc_region_at(const struct bfc *bfc, uint64_t addr);  // first region that ends after addr

// shortage.c
uint32_t bfc_squeeze(struct bfc *bfc, uint64_t rounded);  // where the fewest pages have to be mapped; cut; 0: no memory

// pages.c: all do nothing but with growth pages, and those with a * with trims
void bfc_note_pages(struct bfc *bfc, struct bfc_region *region, uint64_t bytes);  // * the last bytes of a region were mapped by a growth
void bfc_touch(struct bfc *bfc, uint32_t chunk);  // * a chunk has become a block
void bfc_leave(struct bfc *bfc, uint32_t chunk);  // * it no longer is; not merged yet
void bfc_backed(struct bfc *bfc, struct bfc_range range);       // it was mapped: both of these
void bfc_back_again(struct bfc *bfc, struct bfc_range range);   // pages whose last frame backs none get that
void bfc_back_others(struct bfc *bfc, struct bfc_range range);  // pages without a frame get one
void bfc_unbacked(struct bfc *bfc, struct bfc_range range);  // it was unmapped
bool bfc_map_pages(struct bfc *bfc, struct bfc_range range);  // bfc_map_for with growth pages
bool bfc_extend_by_pages(struct bfc *bfc, uint64_t lack, uint32_t tail);  // behind a free tail, or 0
void bfc_pages_end(struct bfc *bfc);  // of an iteration
void bfc_pages_delete(struct bfc *bfc);
// Lists in pager.victims up to `count` pages of each age: mapped, touched by no block, and left by the free with that number or an earlier one. The highest
// address comes first.
void bfc_list_free(struct bfc *bfc, uint64_t count, uint64_t free, struct bfc_range keep);
// The adjacent pages with which a list begins at *at, which is then behind them.
struct bfc_range bfc_first_run(const struct bfc *bfc, const uint64_t *addrs, size_t count, size_t *at);
struct bfc_page *bfc_page_at(const struct bfc *bfc, uint64_t addr);  // NULL: in no region, or not noted
struct bfc_pages bfc_pages_from(const struct bfc *bfc, uint64_t addr, uint64_t size);  // of a range in one region, as far as they are noted

// ready.c: with growth pages, of the best fit and the next larger chunks, the first that moves the fewest pages, and 0 if all have retired
// addresses; else the best fit
uint32_t bfc_most_ready(struct bfc *bfc, uint32_t best, uint64_t rounded);
bool bfc_has_retired(struct bfc *bfc, struct bfc_range range);  // of a free chunk, widened to whole pages

// unmapped.c
struct bfc_range bfc_reach(const struct bfc *bfc, uint32_t chunk, uint64_t rounded);  // the range that a request would get of a free chunk, widened to whole pages
bool bfc_map_range(struct bfc *bfc, struct bfc_range range);  // its unmapped part, all or nothing
void bfc_unmapped_add(struct bfc *bfc, uint64_t from, uint64_t to);  // room for one range is there
// Maps the unmapped part of a range that a request gets of a free chunk. False: it is refused, nothing is mapped.
bool bfc_map_for(struct bfc *bfc, struct bfc_range range);
uint32_t bfc_search_mapped(struct bfc *bfc, uint32_t best, uint64_t rounded);
uint64_t bfc_unmapped_within(const struct bfc *bfc, uint64_t from, uint64_t to);
bool bfc_unmapped_reserve(struct bfc *bfc, size_t more);  // room for more ranges; false: no host memory
size_t bfc_unmapped_from(const struct bfc *bfc, uint64_t addr);        // first range ending after addr

#endif
