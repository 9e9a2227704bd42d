// reclaim.h - physical memory of free granules goes back to the device.
//
// A handle can be released when a free chunk covers it wholly. That is tried when a
// request of ours fails for good otherwise, when somebody else's allocation on the device
// fails (a library's cudaMalloc), and when torch empties its cache. Addresses stay
// reserved, and the granules are mapped again when their chunk is handed out.
#ifndef MEMPROF_RECLAIM_H
#define MEMPROF_RECLAIM_H

#include "arena/arena.h"

// With gpu->lock held: gives back handles until `wanted` bytes are reached, everything
// there is at UINT64_MAX. Waits for the device before the first is unmapped. A `reclaim`
// event comes first, with `arena` (the failed attempt's, or NULL), `requested` and the
// reason, but only if something can be given back or has become reusable. Returns the
// bytes given back; *retry says whether another attempt has a chance.
uint64_t reclaim(struct gpu *gpu, struct arena *arena, uint64_t requested, uint64_t wanted, const char *why, bool *retry);

// With gpu->lock held, and the device waited for: gives back all free handles of an arena.
void reclaim_all(struct arena *arena);

// With gpu->lock held: how much of a range can be given back, being whole handles.
uint64_t reclaimable_within(const struct arena *arena, uint64_t addr, uint64_t bytes);

// The same, and the work that used the range is done: gives back what free whole handles it has,
// up to `wanted`, from its end. Returns the bytes.
uint64_t reclaim_range(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted);

// Somebody else's allocation of `bytes` on `device` failed. True if memory was given back.
bool reclaim_for_other_library(int device, uint64_t bytes);

#endif
