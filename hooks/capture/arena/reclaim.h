// reclaim.h - unmaps free memory, so that others can use it.
//
// A handle can be released if a free chunk covers it completely, and nobody has registered it (registered.h). Reclaim does that when a request of
// an arena would fail otherwise, when another library's allocation on the device fails, when torch
// empties its cache, and for the trimmer. Addresses stay reserved, and the pages are mapped again when
// their chunk is handed out.
#ifndef MEMPROF_RECLAIM_H
#define MEMPROF_RECLAIM_H

#include "arena/arena.h"

// With gpu->lock held: waits for the device, then releases free handles of all arenas until they make `wanted`
// bytes (UINT64_MAX: all), and returns the bytes unmapped. First it writes a `reclaim` event with the `arena`
// of the request that failed (NULL: none did), the `requested` bytes of that request (0: none) and the reason
// `why`. If there is neither a handle to release nor a pending block, it does nothing and writes nothing. If
// `requested` is not 0, the device is short of memory from now on (shortage.h), also if nothing can be unmapped
// because a stream is captured. // *retry: another attempt of the request may succeed.
//
// What the request of an arena lacks may be no more than arenas hold free whose streams can be waited for. Then the device is
// not waited for (streams_wait): handles of these arenas are released, and the reason is "streams".
uint64_t reclaim(struct gpu *gpu, struct arena *arena, uint64_t requested, uint64_t wanted, const char *why, bool *retry);

// With gpu->lock held: how many bytes to unmap so that a request of `bytes` can be mapped. That is its bytes, a
// page for the one that it shares with another block, and the mapped bytes above the limit.
uint64_t reclaim_lack(const struct gpu *gpu, uint64_t bytes);

// With gpu->lock held and the device waited for: releases all free handles of an arena.
void reclaim_all(struct arena *arena);

// With gpu->lock held: the bytes of free handles of an arena that are not registered.
uint64_t reclaimable_of(const struct arena *arena);

// With gpu->lock held: the bytes of handles that lie completely in a range and are not registered.
uint64_t reclaimable_within(const struct arena *arena, uint64_t addr, uint64_t bytes);

// With gpu->lock held, and all work that used the range done: releases free handles that lie completely
// in the range, from its end on, until they make `wanted` bytes. Returns the bytes unmapped.
uint64_t reclaim_range(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted);

// Another library's allocation of `bytes` on `device` failed: releases as much as the device lacks for
// it. True: memory was unmapped, and the allocation should be tried again.
bool reclaim_for_other_library(int device, uint64_t bytes);

#endif
