// bfc.h - best-fit with coalescing, the native twin of the Go package bfc/.
//
// Memory comes in *regions* from a struct bfc_memory; a region is tiled without
// gaps by *chunks*, each wholly free or wholly in use, all multiples of 256 bytes.
// A request takes the smallest free chunk that fits, at the lowest address among
// equals. It gets the whole chunk only if that is less than twice the rounded
// request and less than 128 MiB larger; otherwise the chunk is split. A freed
// chunk merges with its free neighbours at once. When nothing fits, the memory is
// asked for a region that doubles each time.
//
// Pages inside a free chunk can be unmapped, and are mapped again before the chunk is handed out:
// placement does not look at what is mapped, but with growth pages.
//
// Work that was queued before a free may still read the freed bytes. Frees have numbers, from 1 on, and the owner says how
// far that work is over (bfc_over). A free page is *clear* once it is over for the last free of a block that touched it: only then may the page be unmapped for
// others, or its address get another page. An address whose page serves another one, and that is not clear yet, is *retired*: no request gets it but with that same page.
//
// The rules are written down in the package comment of bfc/ (Go); a differential
// test drives both with the same operations and compares every placement. Not
// thread-safe: the owner (arena.c) holds its lock.
#ifndef MEMPROF_BFC_H
#define MEMPROF_BFC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BFC_GRANULE = 256, BFC_BINS = 21 };
#define BFC_FIRST_REGION ((uint64_t)2 << 20)
#define BFC_MAX_SLACK ((uint64_t)128 << 20)

enum bfc_growth {
  BFC_DOUBLE,  // 2 MiB, then doubling
  BFC_NEEDED,  // what the request lacks beyond a free tail
  BFC_PAGES,   // what the request lacks once pages that are free anywhere are used up: see pages.c
};

struct bfc_options {
  uint64_t limit;            // most bytes mapped at a time; UINT64_MAX = no limit
  uint64_t headroom;         // bytes of the device that growth beyond the request leaves free; 0 = off
  enum bfc_growth growth;
  bool always_split;         // a block gets its rounded request, and never slack
  bool trims;                // note which pages each iteration uses: for bfc_excess
};

// Where regions come from. Each call is made under the owner's lock.
struct bfc_memory {
  void *self;
  uint64_t granularity;  // grants are multiples of it; a power of two >= 256
  // Maps round_up(bytes, granularity) at *addr; false: refused. With `coalesces` the grant is right
  // behind the last one, unless the address reservation is used up.
  bool (*grow)(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted);
  // Maps pages that were unmapped.
  bool (*map)(void *self, uint64_t addr, uint64_t bytes);
  // Undoes a map of the same request after a later one was refused.
  void (*unmap)(void *self, uint64_t addr, uint64_t bytes);
  // Bytes of the device that nobody has; called only when the headroom could clip a growth.
  uint64_t (*device_free)(void *self);
  bool coalesces;        // adjacent grants become one region
  // Unmaps pages of a free chunk, since a request maps as many elsewhere. false: refused, nothing has
  // changed. Called only where grants coalesce.
  bool (*try_unmap)(void *self, uint64_t addr, uint64_t bytes);
  // Brings bfc_over up to date, without a wait: a request has found a page that is not clear. Called once a request; NULL: not at all.
  void (*look)(void *self);
  // Whether a growth by bytes, rounded up, would lie right behind the last one. Called only where grants coalesce; NULL: it would.
  bool (*adjoins)(void *self, uint64_t bytes);
};

struct bfc;  // opaque

struct bfc_block {
  uint64_t addr;
  uint64_t size;       // bytes of the chunk handed out
  uint64_t requested;  // bytes asked for
  uint32_t chunk;      // index of the chunk, for bfc_set_note
};

struct bfc_stats {
  uint64_t bytes_in_use, reserved;  // of the chunks handed out; mapped
};

// NULL when host memory is short. `memory` is copied; its `self` must outlive the allocator.
struct bfc *bfc_new(const struct bfc_options *options, const struct bfc_memory *memory);
void bfc_delete(struct bfc *bfc);  // does not call memory

// false: size 0, or no memory. Then regions and the size of the next one may have grown (as in the
// reference), and free pages may be unmapped; nothing else has changed.
bool bfc_alloc(struct bfc *bfc, uint64_t size, struct bfc_block *out);

// false: `addr` is not the start of a chunk in use; nothing changes.
bool bfc_free(struct bfc *bfc, uint64_t addr, struct bfc_block *out);

// Makes [addr, addr+size) a block: a checkpoint of the allocator had it there. Since free chunks
// always merge, regions and blocks determine all chunks: freeing all blocks and restoring those of a
// checkpoint gives the chunks of the checkpoint. false: not whole granules, not mapped, not within one
// free chunk, or host memory is short; nothing has changed.
bool bfc_restore(struct bfc *bfc, uint64_t addr, uint64_t size, uint64_t requested, struct bfc_block *out);

// The block that starts at addr, and the one that contains it; false: there is none. `containing` is
// O(log n) in the number of chunks, but O(n) at its first call after a change.
bool bfc_find(const struct bfc *bfc, uint64_t addr, struct bfc_block *out);
bool bfc_containing(struct bfc *bfc, uint64_t addr, struct bfc_block *out);

// A 64-bit value of the owner's with a chunk in use (arena.c keeps its pending list there).
void bfc_set_note(struct bfc *bfc, uint32_t chunk, uint64_t note);
uint64_t bfc_note(const struct bfc *bfc, uint32_t chunk);

// Notes that the caller has unmapped [addr, addr+bytes), or will before any other call: whole pages,
// mapped, and within one free chunk. false: they are not; nothing has changed.
bool bfc_unmap(struct bfc *bfc, uint64_t addr, uint64_t bytes);

// Notes that the caller has mapped [addr, addr+bytes) ahead of a request: whole pages, all unmapped.
// false: they are not, or they exceed the limit; nothing has changed.
bool bfc_remap(struct bfc *bfc, uint64_t addr, uint64_t bytes);

// Notes that others know the memory behind [addr, addr+size) by its physical pages: a communication library, a network
// card, another process. With growth pages no request takes a page of it until bfc_deregister was called for the range as
// often; other growths need no note, since their memory refuses to unmap it.
void bfc_register(struct bfc *bfc, uint64_t addr, uint64_t size);
void bfc_deregister(struct bfc *bfc, uint64_t addr, uint64_t size);

// How much of what other arenas of the device hold idle a request takes before its own arena maps more, with growth pages: so
// much that all together map no more than their blocks have touched at a time, and a little slack. In bytes.
struct bfc_streams {
  uint64_t most;   // the most that blocks of all arenas have touched at a time, as far as requests that map have seen
  uint64_t slack;  // steps of it
  uint64_t moved;  // what requests took of other arenas in this iteration
};

// How many bytes a request takes of other arenas before it maps `bytes`. Its own arena has unmapped `released` bytes for it. mapped
// and touched are sums of all arenas.
uint64_t bfc_streams_want(struct bfc_streams *streams, uint64_t bytes, uint64_t released, uint64_t mapped, uint64_t touched);
void bfc_streams_took(struct bfc_streams *streams, uint64_t bytes);
void bfc_streams_end_iteration(struct bfc_streams *streams, uint64_t mapped);  // mapped is the sum of all arenas

// Bytes of the pages that blocks touch; 0 but with growth pages.
uint64_t bfc_touched(const struct bfc *bfc);

// How many blocks were freed or lost their slack so far: the number of the last free.
uint64_t bfc_frees(const struct bfc *bfc);

// Says that all work that was queued before the free with that number, on whatever stream, is over; 0: of no free that is known.
void bfc_over(struct bfc *bfc, uint64_t frees);

// Whether all pages of a range are clear, as far as they are noted: with growth pages or trims.
bool bfc_is_clear(const struct bfc *bfc, uint64_t addr, uint64_t bytes);

// Calls visit for the pages that a request of another arena takes, so many at most: pages that nobody has registered, that no block touches,
// and that are clear. They come in the order in which a request of this arena takes them, adjacent ones as one range.
// `visit` may call bfc_unmap.
void bfc_spare(struct bfc *bfc, uint64_t pages, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));

// Says that the device has no more memory than is mapped, now or from time to time. From now on each page
// counts: see shortage.c.
void bfc_shortage(struct bfc *bfc);
bool bfc_in_shortage(const struct bfc *bfc);

// Frees the slack of the block at `addr`. false: no block begins there, it has no slack, or host memory is
// short; nothing has changed.
bool bfc_shrink(struct bfc *bfc, uint64_t addr, struct bfc_block *out);

// Ends the iteration under way.
void bfc_end_iteration(struct bfc *bfc);
uint32_t bfc_ended(const struct bfc *bfc);  // how many have

// With the option `trims`: calls visit for ranges of whole pages of free chunks that are mapped and clear, and that no block has touched
// since the first `ended` - 1 iterations, so not in the last one that had ended then. Addresses ascend. `visit` must not call back
// into bfc.
void bfc_excess(const struct bfc *bfc, uint32_t ended, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));

// Calls visit for each range of free bytes that is mapped and clear, addresses ascending (for reclaim). Where pages are not noted, a free chunk is
// clear as a whole: once the last free that is a part of it is over. `visit` must not call back into bfc.
void bfc_clear_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));

// The same, clear or not.
void bfc_free_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));

uint64_t bfc_in_use(const struct bfc *bfc);    // bytes of the chunks handed out
uint64_t bfc_reserved(const struct bfc *bfc);  // bytes mapped
uint64_t bfc_largest_free(struct bfc *bfc);
uint64_t bfc_next_region(const struct bfc *bfc);
uint64_t bfc_wanted(const struct bfc *bfc);    // bytes that the request under way will map besides those that the memory is asked for

// Every chunk, in address order; region_start marks the first of a region.
struct bfc_chunk_info {
  uint64_t addr, size, requested;
  uint64_t left;  // of a free chunk: the number of the last free that is a part of it
  bool free, region_start;
};
void bfc_walk(const struct bfc *bfc, void *self, void (*visit)(void *self, const struct bfc_chunk_info *chunk));

// The same without unmapped bytes: of free chunks it visits the mapped parts.
void bfc_walk_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, const struct bfc_chunk_info *chunk));

#endif
