// gpu.h - a device: its lock, its limit, what is mapped on it, and the arenas and pools that it has.
//
// All arenas of a device share one lock, since they share its memory, its limit and its statistics;
// torch's own allocator has one lock a device, too.
#ifndef MEMPROF_GPU_H
#define MEMPROF_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/counters.h"
#include "arena/fence.h"
#include "base/lock.h"
#include "bfc/bfc.h"
#include "device/vmm.h"

struct arena;
struct graph_memory;
struct pool;

enum { KEY_BITS = 12 };  // thousands of streams have an arena each

// Made at the first use, never freed. All but `lock` is under `lock`.
struct gpu {
  struct lock lock;
  struct vmm_device vmm;
  struct arena *arenas;  // newest first
  struct arena *by_key[1 << KEY_BITS];  // the same, by a hash of stream and pool
  struct arena *last;    // the arena that served the last request, or NULL: most requests repeat it
  struct arena *ended;   // ended arenas, for reuse; never freed, since a wrong pointer of the job's may still find one
  struct pool *pools;
  struct graph_memory *graph_memories;
  uint64_t limit;        // bytes that all arenas together may map; 0 = no limit
  uint64_t mapped;       // bytes that all arenas have mapped
  uint64_t *late_frees;  // blocks to free when the request under way is over (source.h)
  size_t late_free_count, late_free_room;
  bool shortage;         // it has been short of memory: see shortage.h
  bool short_now;        // it is: handles are of a page
  uint64_t frees;        // of blocks and of chunks, so far: greater after each
  struct fences fences;
  struct bfc_streams streams;  // what its arenas take of each other
  struct counters stats;
  struct counters_totals written;  // by the last totals events
};

// The state of the device with that ordinal, made now if this is its first use. NULL: no such device,
// no virtual memory management, or no driver.
struct gpu *gpu_get(int device);
// The same, but NULL before the first use.
struct gpu *gpu_existing(int device);
// The same with its lock held, which the caller releases; NULL in a process that the hook does not serve, too.
struct gpu *gpu_lock(int device);
// Between these two no device gets its first use. The caller holds no gpu->lock at gpus_hold.
void gpus_hold(void);
void gpus_let(void);

// The device whose lock the calling thread has because it is in a call of a source (source.h) or of an observer (observe.h), or NULL. Such a call can
// run any code: Python's garbage collector, for one, frees tensors in the middle of it.
extern __thread const struct gpu *gpu_held;

// Takes gpu->lock, unless the calling thread has it because of gpu_held. What it returns
// goes to gpu_give.
static inline bool gpu_take(struct gpu *gpu) {
  const bool takes = gpu_held != gpu;
  if (takes) lock_take(&gpu->lock);
  return takes;
}
static inline void gpu_give(struct gpu *gpu, bool taken) {
  if (taken) lock_give(&gpu->lock);
}

// All below need gpu->lock.

// Adds `amount` bytes, which may be negative, to what the device's arenas have mapped.
void gpu_mapped(struct gpu *gpu, int64_t amount);

// How many bytes more the limit lets arenas map; UINT64_MAX without one.
uint64_t gpu_left(const struct gpu *gpu);

// Whether the device's limit lets arenas map `bytes` more.
static inline bool gpu_allows(const struct gpu *gpu, uint64_t bytes) { return bytes <= gpu_left(gpu); }

#endif
