// arena.h - an arena: one allocator and the device memory it hands out, for requests of one kind.
//
// The key of an arena is (device, stream, pool, tag). A freed block is reused at once
// only by requests with the same key: work on the same stream runs in order, so the block's last use
// is over by then. The *main* arena of a device is that of its default stream, without pool or
// tag. It reserves twice as many addresses as the device has memory, and grows by the policy of the
// options; bfc/policy.h says which part of the policy other arenas get.
//
// All arenas of a device share one lock, since they share its memory, its limit and its statistics;
// torch's own allocator has one lock a device, too. Every event of an arena is written under the
// lock, in the order that trace/event.go prescribes.
//
//   device 0 ── lock, limit, statistics
//     ├── arena 0: stream 0, main     bfc ── vmm      pending frees
//     ├── arena 3: stream 0x5581...   bfc ── vmm
//     └── arena 4: stream 0, pool 7   bfc ── vmm
#ifndef MEMPROF_ARENA_H
#define MEMPROF_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "arena/exchange.h"
#include "arena/gpu.h"
#include "arena/memory.h"
#include "arena/pause.h"
#include "arena/pending.h"
#include "arena/pool.h"
#include "arena/source.h"
#include "bfc/bfc.h"
#include "memprof.h"
#include "spool/record.h"

struct trim;

// Fields change under gpu->lock; the key, id, bfc and memory.kind never change while the arena lives.
struct arena {
  struct gpu *gpu;
  uint32_t id;        // unique in the process, in the order of making
  void *stream;       // the driver's handle, NULL: the default stream
  uint64_t pool[2];   // 0, 0: none
  struct pool *home;  // the pool of that name, or NULL
  struct tag *tag;    // of the regions whose requests it serves, or NULL
  bool main;
  bool shrunk;        // blocks have lost their slack, since the device is short of memory
  bool paused;        // nothing is mapped, and no request is served
  struct bfc *bfc;    // the allocator; NULL: the arena has ended
  struct memory memory;
  struct exchange exchange;  // what it exchanges with others
  struct fence_part fence;   // what of its free memory nobody can read any more
  struct pending pending;    // freed blocks that other streams may still use
  uint64_t noted;            // chunks whose note is not 0: used on other streams, or freed and pending
  struct pause *pause;       // of arenas with a tag; NULL for others
  struct trim *trim;         // of arenas that trim.c trims by iterations; NULL for others
  struct arena *next;        // of the device, newest first
  struct arena *same;        // of the same place in gpu->by_key, newest first
};

// All below need gpu->lock.

// Applies changes and frees that were left to later, if there are any (source.h). No request is under way.
static inline void gpu_apply_late(struct gpu *gpu) {
  if (atomic_load_explicit(&source_late_count, memory_order_relaxed) > 0 || gpu->late_free_count > 0) source_apply_late(gpu);
}

// The arena with that key that is not paused and has all its memory mapped (arena_whole), made now if
// there is none. NULL: no address space, or no host memory.
struct arena *arena_get(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag);

// Allocates a block and writes its events. False: neither the arena nor the device has room; the event
// of the failure is left to the caller.
bool arena_alloc(struct arena *arena, uint64_t size, uint32_t context, struct bfc_block *out);

// Whether a chunk in use is a live block; false: it was freed and is pending.
bool arena_live(const struct arena *arena, const struct bfc_block *block);

// Frees the block at `addr`. If other streams use it, it becomes pending. False: no live block is there.
bool arena_free(struct arena *arena, uint64_t addr);

// The same if the caller knows that no stream uses the block any more: it does not become pending.
bool arena_free_now(struct arena *arena, uint64_t addr);

// Frees the chunk of a pending block for reuse.
void arena_free_done(struct arena *arena, uint64_t addr);

// Makes the block of a checkpoint live again at its address. False: the place is not free, or not
// mapped.
bool arena_restore(struct arena *arena, uint64_t addr, uint64_t size, uint64_t requested);

// Whether all mappings of the arena are mapped. They are not after a pause that failed halfway and
// could not be undone; then this tries again to map the rest. Until that succeeds no request is
// served from the arena.
bool arena_whole(struct arena *arena);

// Adds addresses of the arena, so that arena_of finds it by a pointer (addresses.c). False: too many ranges. An arena that ends
// removes all of its.
bool arena_add_range(struct arena *arena, uint64_t addr, uint64_t bytes);
void arena_remove_ranges(const struct arena *arena);

// Whether nothing of the arena may be unmapped: its pool is held and may not unmap.
static inline bool arena_pinned(const struct arena *arena) { return arena->home != NULL && arena->home->uses > 0 && !arena->home->may_unmap; }

// Counts `bytes` that were mapped (MEMPROF_MAP) or unmapped (MEMPROF_UNMAP) as `handles` handles, and
// writes the event.
void arena_mapping(struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t bytes, int64_t handles);

// Sets the size of the handles of the next map, of `bytes`, where `room` bytes of the device can be mapped.
void arena_set_handle(struct arena *arena, uint64_t room, uint64_t bytes);

// Whether `bytes` more can be mapped, and what the request maps besides, in handles whose size this sets. Asked before the driver is,
// since creating handles until it refuses would be slow, and other processes would lack their memory meanwhile.
bool arena_prepare(struct arena *arena, uint64_t bytes);

// The allocator's request for `asked` bytes has got `bytes` at an address, in so many handles: counts them, and writes the event. Or not
// (`ok` false): writes that. Returns `ok`.
bool arena_grown(struct arena *arena, bool ok, uint64_t asked, uint64_t addr, uint64_t bytes, int64_t handles);

// Counts free pages that the caller has unmapped as `handles` handles, and writes the event.
void arena_unmapped(struct arena *arena, uint64_t addr, uint64_t bytes, int64_t handles);

// Ends an arena that is out of its device's list and has nothing in use or mapped.
void arena_end(struct arena *arena);

// Writes an event of the arena.
void arena_event(const struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t provided, uint32_t context);

// How many bytes more an arena can map: what the limit leaves of the device's free memory.
uint64_t arena_room(const struct arena *arena);

// With gpu->lock held, after the program had all free memory unmapped: if no more is mapped than can be mapped, the
// device is no longer short of memory, and new handles are as large as before. A job that probes how much it
// can allocate then does not map the rest in pages, 3 s for 70 GiB.
void gpu_emptied(struct gpu *gpu);

// A new id for an arena. Other allocators' arenas get theirs here, too.
uint32_t arena_next_id(void);

// Without the lock: the arena whose addresses include `addr`, or NULL.
struct arena *arena_of(uint64_t addr);

// Without the lock: the live block that contains the address, and its arena; or NULL.
struct arena *arena_block(uint64_t addr, struct bfc_block *out);

#endif
