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
// Physical memory inside a free chunk may be given back and is mapped again when
// the chunk is handed out: placement never looks at what is mapped.
//
// With the option `planned`, requests and frees of iterations are noted, and those of one that
// repeats itself get places in which all lifetimes are known: see plan.c.
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
  BFC_DOUBLE,  // classic: 2 MiB, then doubling
  BFC_NEEDED,  // only what the request lacks, a free tail credited; takes free granules first
  BFC_NONE,    // the whole limit at the first request
  BFC_STEP,    // what the request lacks, rounded up to a multiple of the step
};

struct bfc_options {
  uint64_t limit;            // most bytes ever mapped; UINT64_MAX = no limit
  uint64_t headroom;         // growth beyond the request leaves this much of the device free; 0 = off
  double fragmentation_fraction;  // > 0: max excess = fraction * limit instead of 128 MiB
  enum bfc_growth growth;
  bool garbage_collection;   // release wholly idle regions before giving up
  uint64_t step;             // of BFC_STEP, bytes
  uint64_t split;            // split where at least this is left over; 0 = the classic rule
  bool notes;                // note which granules each iteration uses: for bfc_excess and bfc_ahead
  bool planned;              // place the blocks of an iteration like the one before by a plan
};

// Where regions come from. Every call is made under the owner's lock.
struct bfc_memory {
  void *self;
  uint64_t granularity;  // grants are multiples of it; a power of two >= 256
  // A grant of exactly round_up(bytes, granularity) at *addr, or false. With `coalesces`
  // it lies right behind the last one unless the reservation is used up.
  bool (*grow)(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted);
  // Gives a whole region back (garbage collection).
  void (*release)(void *self, uint64_t addr, uint64_t bytes);
  // Maps granules that bfc_unmap gave back; [addr, addr+bytes) is granularity-aligned.
  bool (*map)(void *self, uint64_t addr, uint64_t bytes);
  // Undoes a map of the same call that failed later.
  void (*unmap)(void *self, uint64_t addr, uint64_t bytes);
  // Bytes of the device nobody has; asked only when headroom could clip a growth.
  uint64_t (*device_free)(void *self);
  bool coalesces;        // adjacent grants become one region
  // Takes back granules of a free chunk, which are mapped, for a request under way: what they
  // have serves elsewhere. false: nothing has changed. Only where grants coalesce.
  bool (*try_unmap)(void *self, uint64_t addr, uint64_t bytes);
};

struct bfc;  // opaque

struct bfc_block {
  uint64_t addr;
  uint64_t size;       // bytes of the chunk handed out
  uint64_t requested;  // bytes asked for
  uint32_t chunk;      // handle of the chunk, for bfc_tag
};

struct bfc_stats {
  uint64_t num_allocs;
  uint64_t bytes_in_use, peak_bytes_in_use;
  uint64_t largest_alloc;
  uint64_t reserved, peak_reserved;  // bytes mapped
};

// NULL when host memory is short. `memory` is copied; its `self` must outlive the allocator.
struct bfc *bfc_new(const struct bfc_options *options, const struct bfc_memory *memory);
void bfc_delete(struct bfc *bfc);  // does not call memory

// false: size 0, or no memory. On failure growth state may have advanced (the
// doubling persists, as in the reference), nothing else.
bool bfc_alloc(struct bfc *bfc, uint64_t size, struct bfc_block *out);

// false: `addr` is not the start of a chunk in use; nothing changes.
bool bfc_free(struct bfc *bfc, uint64_t addr, struct bfc_block *out);

// Makes [addr, addr+size) a block in use at a place that no policy chose: a checkpoint of the
// heap had it there. Since free chunks always merge, a heap is told by its regions and
// blocks: freeing all blocks and restoring those of a checkpoint gives the very heap that was
// checked. false: not whole granules, not mapped, not of one free chunk, or host memory is
// short; nothing has changed.
bool bfc_restore(struct bfc *bfc, uint64_t addr, uint64_t size, uint64_t requested, struct bfc_block *out);

// The chunk in use that starts at / contains addr. `containing` walks nothing: it is
// O(log n) in the number of chunks or better.
bool bfc_find(const struct bfc *bfc, uint64_t addr, struct bfc_block *out);
bool bfc_containing(struct bfc *bfc, uint64_t addr, struct bfc_block *out);

// A 64-bit note of the owner's on a chunk in use (arena.c keeps its pending list there).
void bfc_set_note(struct bfc *bfc, uint32_t chunk, uint64_t note);
uint64_t bfc_note(const struct bfc *bfc, uint32_t chunk);

// Marks free granules as given back: [addr, addr+bytes) is granularity-aligned, inside one
// free chunk and mapped. The caller has unmapped, or will before any other call. false: it
// was not so, nothing changed.
bool bfc_unmap(struct bfc *bfc, uint64_t addr, uint64_t bytes);

// The owner has mapped [addr, addr+bytes) again ahead of need: whole granules that had been
// given back. false: they had not, or the limit forbids it; nothing changed.
bool bfc_remap(struct bfc *bfc, uint64_t addr, uint64_t bytes);

// An iteration has ended. A granule is expected to be used that was in the iteration under way
// or the two before; in the first nothing is. This is where plans are made, which takes milliseconds
// for a thousand requests, and up to about three seconds for those that are live together most.
void bfc_end_iteration(struct bfc *bfc);
uint32_t bfc_ended(const struct bfc *bfc);  // how many have

// Call visit, in address order, for ranges of whole granules of free chunks: those that are
// mapped and not expected (none before two iterations have ended), those that were given back
// and are expected (none in the first iteration of a plan), and all that are mapped. Of the excess comes only what was last used in one
// of the first `ended` iterations. `visit` must not call back into bfc.
void bfc_excess(const struct bfc *bfc, uint32_t ended, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));
void bfc_ahead(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));
void bfc_idle(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));

// Calls visit for each free range that is mapped, in address order (for reclaim).
// `visit` must not call back into bfc.
void bfc_free_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, uint64_t addr, uint64_t bytes));

void bfc_get_stats(const struct bfc *bfc, struct bfc_stats *out);
void bfc_clear_peaks(struct bfc *bfc);
uint64_t bfc_largest_free(struct bfc *bfc);
uint64_t bfc_next_region(const struct bfc *bfc);

// Every chunk, in address order; region_start marks the first of a region.
struct bfc_chunk_info {
  uint64_t addr, size, requested;
  bool free, region_start;
};
void bfc_walk(const struct bfc *bfc, void *self, void (*visit)(void *self, const struct bfc_chunk_info *chunk));

// The same without what was given back: of free chunks come the pieces that are mapped.
void bfc_walk_mapped(const struct bfc *bfc, void *self, void (*visit)(void *self, const struct bfc_chunk_info *chunk));

#endif
