// counters.h - what a device counts for memprof_get_stats.
//
// Each request and each free is counted, in some ten counters by torch's rules. Most of them follow from
// others, so only what differs is added up at an event, and memprof_get_stats derives the rest:
//
//   live and pending blocks = live blocks + pending blocks, and most frees make no block pending
//   inactive bytes          = reserved bytes - bytes of live and pending blocks
//   sum of what came        = what is there + sum of what went
#ifndef MEMPROF_COUNTERS_H
#define MEMPROF_COUNTERS_H

#include <stdint.h>

struct counter {
  int64_t current, peak;
  int64_t freed;  // sum of what went since the last reset
  int64_t base;   // `current` at that reset, and what pauses and resumes have moved since
};

// Pending blocks, beside the counter of live ones.
struct counter_pending {
  int64_t current;
  int64_t base;  // `current` when the sums were reset
  int64_t peak;  // of live and pending, noted while there are pending blocks
};

// Requests and frees of the process so far, and their bytes: what its events come to.
struct counters_totals {
  int64_t requests, requested, frees, freed;
};

// Under the device's lock.
struct counters {
  struct counter blocks, requested, provided;  // live blocks, the bytes that they requested, and the bytes of their chunks
  struct counter torch_bytes;                  // their bytes as torch counts them
  struct counter segment, reserved;            // mapped handles and bytes
  struct counter_pending pending, pending_provided, pending_torch_bytes;
  int64_t inactive_peak;
  int64_t retries, ooms, device_allocs, device_frees, syncs;  // as in struct memprof_stats
  struct counters_totals apart;  // what the counters do not have: before the last reset, and frees in paused arenas
};

static inline void counter_add(struct counter *counter, int64_t amount) {
  counter->current += amount;
  if (counter->current > counter->peak) counter->peak = counter->current;
}

static inline void counter_subtract(struct counter *counter, int64_t amount) {
  counter->current -= amount;
  counter->freed += amount;
}

// The sum of what came since the last reset.
static inline int64_t counter_allocated(const struct counter *counter) { return counter->current - counter->base + counter->freed; }

// The bytes that torch's own allocator would hand out for a request, of which its statistics are sums.
static inline int64_t counters_torch_bytes(uint64_t requested) {
  enum { TORCH_BLOCK = 512 };  // of which torch's blocks are multiples
  return (int64_t)((requested + TORCH_BLOCK - 1) & ~(uint64_t)(TORCH_BLOCK - 1));
}

// Notes the peaks of live and pending blocks.
void counters_note_active(struct counters *counters);

static inline int64_t counters_inactive(const struct counters *counters) {
  return counters->reserved.current - counters->provided.current - counters->pending_provided.current;
}

// Notes the peak of inactive bytes, after anything that may have made them more.
static inline void counters_note_inactive(struct counters *counters) {
  const int64_t inactive = counters_inactive(counters);
  if (inactive > counters->inactive_peak) counters->inactive_peak = inactive;
}

// A block is live.
static inline void counters_live(struct counters *counters, uint64_t requested, uint64_t provided) {
  counter_add(&counters->blocks, 1);
  counter_add(&counters->requested, (int64_t)requested);
  counter_add(&counters->provided, (int64_t)provided);
  counter_add(&counters->torch_bytes, counters_torch_bytes(requested));
  if (counters->pending.current != 0) counters_note_active(counters);
}

// A block is freed. If it is not pending, counters_note_inactive follows.
static inline void counters_freed(struct counters *counters, uint64_t requested, uint64_t provided) {
  counter_subtract(&counters->blocks, 1);
  counter_subtract(&counters->requested, (int64_t)requested);
  counter_subtract(&counters->provided, (int64_t)provided);
  counter_subtract(&counters->torch_bytes, counters_torch_bytes(requested));
}

// A block that was freed is pending (sign 1), or no longer is (-1).
void counters_pend(struct counters *counters, uint64_t requested, uint64_t provided, int sign);

// A live block has lost that many bytes of slack.
void counters_shrunk(struct counters *counters, uint64_t bytes);

// Memory was mapped, or unmapped where the amounts are negative.
void counters_mapped(struct counters *counters, int64_t bytes, int64_t handles);

// What an arena has when it is paused or resumed.
struct counters_moved {
  struct counters_blocks {
    int64_t blocks, requested, provided, torch_bytes;
  } live, pending;
  int64_t mapped, handles;
};

// Adds (sign 1) or subtracts (-1) it. Sums of what came and went stay, except those of handles.
void counters_move(struct counters *counters, const struct counters_moved *moved, int sign);

// Counts the free of a block that statistics leave out.
static inline void counters_freed_apart(struct counters *counters, uint64_t requested) {
  counters->apart.frees++;
  counters->apart.freed += (int64_t)requested;
}

struct counters_totals counters_totals(const struct counters *counters);

// Counts a call of memprof_empty_cache for a device that has no arena yet.
void counters_early_sync(int device);

#endif
