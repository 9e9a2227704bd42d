// exchange.h - pages that are free serve other addresses, and other arenas, before more are mapped: preset compact.
//
// What becomes of a page, and when:
//
//                    a block of another address needs a page, and its own is free (bfc_memory.try_unmap)
//   mapped at A ────────────────────────────────────────────────────────────────────▶ mapped at B, and still at A
//    ▲  │                                                                               │               │
//    │  │            A needs its page again, and B is free: no call of the driver       │               │
//    │  └────────────────────────────────◀──────────────────────────────────────────────┘               │
//    │               A needs a page, B has this one: A's old mapping goes, when its work is over,       ▼
//    └───────────────and A gets another page ◀────────────────────────────────────────────────── mapped at B
//
//   mapped at A ── a request of another arena needs it (exchange_take), all work on it is over ──▶ of that arena
//
// Within an arena nothing is waited for as a rule, since the work of one stream runs in order, and by the time that an old
// mapping goes the event behind its last use is over (lent.h). Where it is not, the request waits for that event, and for a
// while for what other streams had queued (fence.h). device/loans.c has the mappings.
//
// Between arenas a page moves only if all work on it is over on all streams that have arenas (fence.h), and only where all arenas
// would otherwise map more than their blocks have touched at a time (bfc_streams_want). What is not over is left, and the
// request's arena maps more. The answers are `take` events, by which `verify` comes to the same decision.
// Arenas of pools and tags take, too, but give nothing: a graph uses free memory of its pool without a request.
#ifndef MEMPROF_EXCHANGE_H
#define MEMPROF_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "arena/fence.h"
#include "arena/lent.h"
#include "bfc/policy.h"

struct arena;
struct gpu;

// An arena's part of it. Under its device's lock.
struct exchange {
  bool takes;         // before it maps more it takes what other arenas hold free
  bool gives;         // other arenas take what it holds free
  bool moving;        // the request under way has mapped free pages at second addresses
  uint64_t paid;      // bytes that the request under way has unmapped, here or elsewhere, and not mapped
  struct lent lent;   // events behind the work of its stream
  struct fence fence; // what all streams have done
  bool stream_ended;  // its stream was destroyed: it must not be asked for
  uint64_t end_event;  // the number that `lent` gave the event recorded right before; 0: none could be
};

// All below need gpu->lock, but exchange_stream_ends.

// Decides what a new arena takes and gives.
void exchange_join(struct arena *arena, const struct bfc_arena_policy *policy);

// bfc_memory.try_unmap of an arena with growth pages; NULL for others.
bool (*exchange_try_unmap(const struct bfc_arena_policy *policy))(void *arena, uint64_t addr, uint64_t bytes);

// A request of the arena begins; it is over. What it has unmapped and not mapped again is released then.
void exchange_begin(struct arena *arena);
void exchange_end(struct arena *arena);

// The request is about to map so many bytes: takes what it wants of others. It has mapped them.
void exchange_take(struct arena *arena, uint64_t bytes);
void exchange_mapped(struct arena *arena, uint64_t bytes);

// Unmaps what the request has mapped, since it was refused more. Returns how many handles it unmapped.
int64_t exchange_undo(struct arena *arena, uint64_t addr, uint64_t bytes);

// An iteration has ended.
void exchange_end_iteration(struct gpu *gpu);

// Waits until no work uses what arenas hold free whose streams can be waited for (fence_covers), if that is `needed` bytes of whole
// handles. Captures are held back. False: it is less, and nothing was waited for; or the driver refused to wait.
bool exchange_wait(struct gpu *gpu, uint64_t needed);

// A stream is about to be destroyed.
void exchange_stream_ends(void *stream);

#endif
