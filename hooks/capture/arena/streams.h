// streams.h - what another stream holds idle serves a request before its arena maps more.
//
// Blocks are reused in the order of their stream only, so that each stream has arenas of its own. With growth pages, what one
// arena holds and no block touches is taken for a request of another one where all arenas would otherwise map more than
// their blocks have touched at a time (bfc_streams_want). The work on it has to be over, which events and streams are asked for;
// nothing is waited for. What is not over is left, and the request's arena maps more. The answers are `take` events, by which
// `verify` comes to the same decision.
//
// Arenas of pools and tags take, too, but give nothing: a graph uses free memory of its pool without a request. With
// other growths only requests that would be refused take. Under any growth such a request waits for streams, until they hold
// what it lacks (streams_wait); for the device only where they hold too little (reclaim.c).
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

// Sets `over` of arenas in which no work uses free memory any more, until those have `wanted` bytes of whole free handles: first
// asks all streams, then waits for one after the other until the bytes are `needed`. Captures are held back. False: all that
// can be asked have less, and nothing was waited for; or the driver refused to wait.
bool streams_wait(struct gpu *gpu, struct arena *first, uint64_t needed, uint64_t wanted);

// An iteration has ended.
void streams_end_iteration(struct gpu *gpu);

// Without a lock: a stream is about to be destroyed.
void streams_end(void *stream);

#endif
