// arena.h - one BFC over one stretch of device memory, and who may use it.
//
// An arena is keyed by (device, stream, pool, tag, small or not): a freed block is reused at once only by
// work of the stream it was allocated on, where the order of the stream protects it. The
// first arena of a device's default stream is its *main* arena: it reserves as much as the
// device has and grows by the policy of the options. Others are small until proven large,
// and grow by what is needed.
//
// All arenas of a device share one lock. Their decisions share the device's memory, its
// limit and torch's view of it, and torch's own allocator has one lock a device as well.
// Every event is written under it, in the order trace/event.go prescribes.
//
//   device 0 ── lock, limit, statistics
//     ├── arena 0: stream 0, main     bfc ── vmm      pending frees
//     ├── arena 3: stream 0x5581...   bfc ── vmm
//     └── arena 4: stream 0, pool 7   bfc ── vmm
#ifndef MEMPROF_ARENA_H
#define MEMPROF_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/backup.h"
#include "arena/pause.h"
#include "arena/pending.h"
#include "arena/pool.h"
#include "base/lock.h"
#include "bfc/bfc.h"
#include "device/vmm.h"
#include "memprof.h"
#include "spool/record.h"

struct gpu;
struct graph_memory;

struct arena {
  struct gpu *gpu;
  uint32_t id;  // of the process, in order of creation
  void *stream;
  uint64_t pool[2];  // 0, 0: none
  struct pool *home;  // the pool of that name, or NULL
  struct tag *tag;    // of the regions that allocate here, or NULL
  bool main;
  bool small;         // of requests below the option's size
  struct bfc *bfc;
  struct vmm vmm;             // unused where the pool has a source of its own
  struct pool_grant *grants;  // of that source
  size_t grant_count, grant_room;
  bool paused;                  // nothing is mapped, and nothing is allocated here
  struct stretch *ranges;  // while paused: what resume maps
  size_t range_count;
  struct backup backup;      // of the blocks, while paused or kept
  struct pending pending;
  bool trimming;            // excess waits for the event, recorded when that many iterations had ended
  uint32_t trim_ended;
  driver_event trim_event;
  uint64_t noted;      // chunks with a note: used on other streams, or freed and pending
  struct arena *next;  // of the device, newest first
};

// A device with its arenas. Made at the first use, never destroyed.
struct gpu {
  struct lock lock;
  struct vmm_device vmm;
  struct arena *arenas;
  struct arena *last;   // that was asked for, or NULL
  struct arena *ended;  // arenas that are no more, to be used again: a stray pointer may still find one
  struct pool *pools;
  struct graph_memory *graph_memories;
  uint64_t entered[2];  // the pool of a graph memory that a thread entered last
  uint64_t limit;   // of all arenas together, bytes; 0 = none
  uint64_t mapped;  // by all arenas
  uint64_t most_mapped;  // ever
  bool waited;      // for the device, since the request under way began
  struct memprof_stats stats;
};

// The device's state, or NULL: no such device, no virtual memory management, no driver.
struct gpu *gpu_get(int device);
// The same, but NULL unless something has used it.
struct gpu *gpu_existing(int device);
// Between these no device is used for the first time. Not with a gpu->lock.
void gpus_hold(void);
void gpus_let(void);

// All below need gpu->lock.

// The arena of the key that is whole and not paused, made now if there is none; NULL: no address
// space or host memory.
struct arena *arena_get(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag);

// The same for a request of that size, which may be served apart from larger ones.
struct arena *arena_for(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag, uint64_t size);

// A block, its events written but for the failure: false when nothing could be found.
bool arena_alloc(struct arena *arena, uint64_t size, uint32_t context, struct bfc_block *out);

// Whether a chunk in use is a live block, not one that was freed and is pending.
bool arena_live(const struct arena *arena, const struct bfc_block *block);

// Ends the life of a block. A block that other streams use becomes pending.
bool arena_free(struct arena *arena, uint64_t addr);

// The same for a block of which it is known that no stream uses it any more.
bool arena_free_now(struct arena *arena, uint64_t addr);

// Ends the wait of a pending block: its chunk can be reused.
void arena_free_done(struct arena *arena, uint64_t addr);

// Makes a block live where a checkpoint had it. False: the place is not free, or not mapped.
bool arena_restore(struct arena *arena, uint64_t addr, uint64_t size, uint64_t requested);

// Whether all that the arena has is mapped. After a pause that the driver let neither finish nor be
// undone some is not: that is tried again here. Until it succeeds nothing is handed out of the arena.
bool arena_whole(struct arena *arena);

// Notes addresses of the arena, so that pointers find it. False: there are too many pieces of
// addresses.
bool arena_add_range(struct arena *arena, uint64_t addr, uint64_t bytes);

// Accounts for memory that was mapped or unmapped as `handles` handles, with its event.
void arena_mapping(struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t bytes, int64_t handles);

// Maps free granules that had been given back, ahead of need. False: the memory is not to be had.
bool arena_map_ahead(struct arena *arena, uint64_t addr, uint64_t bytes);

// Accounts for free granules that were given back as `handles` handles, with their event.
void arena_unmapped(struct arena *arena, uint64_t addr, uint64_t bytes, int64_t handles);

// The end of an arena that was taken out of its device's list, with nothing in use or mapped.
void arena_end(struct arena *arena);

// Writes an event of the arena.
void arena_event(const struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t provided, uint32_t context);

// Notes that arenas of the device have mapped so many bytes more; amount may be negative.
void gpu_mapped(struct gpu *gpu, int64_t amount);

// Whether the limit leaves room for as many bytes.
bool gpu_allows(const struct gpu *gpu, uint64_t bytes);

// The number of a further arena of the process, whoever serves it.
uint32_t arena_next_id(void);

// Adds to the statistics: amount may be negative.
void gpu_count(struct memprof_stat *stat, int64_t amount);

// Without the lock: the arena whose reservation has the address, or NULL.
struct arena *arena_of(uint64_t addr);

// Without the lock: the live block that contains the address, and its arena; or NULL.
struct arena *arena_block(uint64_t addr, struct bfc_block *out);

#endif
