// streams.h - what another stream holds idle serves a request before its arena maps more.
//
// Blocks are reused in the order of their stream only, so that each stream has arenas of its own. With growth pages, what one
// arena holds and no block touches is taken for a request of another one where all arenas would otherwise map more than
// their blocks have touched at a time (bfc_streams_want). The work on it has to be over on all streams (fence.h);
// nothing is waited for. What is not over is left, and the request's arena maps more. The answers are `take` events, by which
// `verify` comes to the same decision.
//
// Arenas of pools and tags take, too, but give nothing: a graph uses free memory of its pool without a request. With
// other growths only requests that would be refused take. Under any growth such a request waits for streams, if they hold
// what it lacks (streams_wait), else for the device (reclaim.c): kernels of streams without an arena, as NCCL's, can wait for another process.
#ifndef MEMPROF_STREAMS_H
#define MEMPROF_STREAMS_H

#include "arena/arena.h"
#include "bfc/policy.h"

// All need gpu->lock.

// Decides whether a new arena takes and gives.
void streams_join(struct arena *arena, const struct bfc_arena_policy *policy);

// A request of the arena is about to map so many bytes: takes what it wants of others.
void streams_take(struct arena *arena, uint64_t bytes);

// It has mapped them.
static inline void streams_paid(struct arena *arena, uint64_t bytes) { arena->paid -= bytes < arena->paid ? bytes : arena->paid; }

// Waits until no work uses what arenas hold free whose streams can be waited for (fence_covers), if that is `needed` bytes of whole
// handles. Captures are held back. False: it is less, and nothing was waited for; or the driver refused to wait.
bool streams_wait(struct gpu *gpu, uint64_t needed);

// An iteration has ended.
void streams_end_iteration(struct gpu *gpu);

// A new stream has the handle of one that was destroyed, and requests memory of its arena: waits for the old one's work.
void streams_begin(struct arena *arena);

// Without a lock: a stream is about to be destroyed.
void streams_end(void *stream);

#endif
