// reclaim.h - unmaps free memory, so that others can use it.
//
// Reclaim releases handles that are free (handles.h) when a request of an arena would fail otherwise, when another library's allocation
// on the device fails, when torch empties its cache, and for the trimmer.
#ifndef MEMPROF_RECLAIM_H
#define MEMPROF_RECLAIM_H

#include "arena/arena.h"

// With gpu->lock held: releases free handles of all arenas until they make `wanted`
// bytes (UINT64_MAX: all), and returns the bytes unmapped: first those that nobody can read any more, and if they do not suffice, once more after a wait
// for the device. The lock is released for the wait: `arena` may have ended since. First it writes a `reclaim` event with the `arena`
// of the request that failed (NULL: none did), the `requested` bytes of that request (0: none) and the reason
// `why`. If there is neither a handle to release nor a pending block, it does nothing and writes nothing. If
// `requested` is not 0, the device is short of memory from now on (shortage.h), also if nothing can be unmapped
// because a stream is captured.
// *retry: the event was written, and another attempt of the request has to follow.
uint64_t reclaim(struct gpu *gpu, struct arena *arena, uint64_t requested, uint64_t wanted, const char *why, bool *retry);

// With gpu->lock held: whether there is anything that reclaim could free; and reclaim without the wait, of what nobody can read any more, blocks that were pending included.
bool reclaim_can(const struct gpu *gpu);
uint64_t reclaim_clear(struct gpu *gpu, uint64_t wanted, const char *why);

// With gpu->lock held: how many bytes to unmap so that a request of `bytes` can be mapped. That is its bytes, a
// page for the one that it shares with another block, and the mapped bytes above the limit.
uint64_t reclaim_lack(const struct gpu *gpu, uint64_t bytes);

// Another library's allocation of `bytes` on `device` failed: releases as much as the device lacks for
// it. True: memory was unmapped, and the allocation should be tried again.
bool reclaim_for_other_library(int device, uint64_t bytes);

#endif
