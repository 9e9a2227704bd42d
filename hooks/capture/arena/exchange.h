// exchange.h - pages that are free serve other addresses, and other arenas, before more are mapped: preset compact.
//
// A page has one of these states:
//
//                 a block of another address needs a page, and this one is free (bfc_memory.try_unmap)
//   mapped at A ───────────────────────────────────────────────────────────────▶ mapped at B, and still at A
//    ▲  │  ▲                                                                         │             │
//    │  │  └─────── A needs its page again, and B is free: no call of the driver ─────┘             │
//    │  │                                                                                          ▼
//    │  │                 A is clear (fence.h) and needs a page: its old mapping goes ──────▶ mapped at B
//    │  └── another arena's request needs it, and A is clear (exchange_take) ──▶ of that arena
//
// From the first step to the last A is *retired*: no request gets it with another page, so that whoever still reads it finds what was
// there until work of the arena's own stream writes a later block, as under torch's own allocator. Nothing is waited for: a request that finds
// only retired addresses gets new ones, and the same pages. device/unplaced.c has the mappings.
//
// Another arena takes pages only where all arenas would otherwise map more than their blocks have touched at a time
// (bfc_streams_want), and only clear ones. What is not clear is left, and the request's arena maps more. The answers are `take` events, by which
// `verify` comes to the same decision. Arenas of pools and tags take, too, but give nothing: a graph uses free memory of its pool without a request.
#ifndef MEMPROF_EXCHANGE_H
#define MEMPROF_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "bfc/policy.h"

struct arena;
struct gpu;

// An arena's part of it. Under its device's lock.
struct exchange {
  bool takes;         // before it maps more it takes what other arenas hold free
  bool gives;         // other arenas take what it holds free
  bool moved;         // the request under way has mapped free pages at second addresses
  uint64_t released;  // bytes that the request under way has unmapped, here or elsewhere, and not mapped
};

// All below need gpu->lock.

// Decides what a new arena takes and gives.
void exchange_join(struct arena *arena, const struct bfc_arena_policy *policy);

// bfc_memory.try_unmap of an arena with growth pages; NULL for others.
bool (*exchange_try_unmap(const struct bfc_arena_policy *policy))(void *arena, uint64_t addr, uint64_t bytes);

// A request of the arena begins. It is over, and so is its event: what it has unmapped and not mapped again goes back.
void exchange_begin(struct arena *arena);
void exchange_end(struct arena *arena);

// The request is about to map so many bytes: takes what it wants of others. It has mapped them.
void exchange_take(struct arena *arena, uint64_t bytes);
void exchange_mapped(struct arena *arena, uint64_t bytes);

// How many bytes of free pages, its own and other arenas', a request of the arena can use, at most.
uint64_t exchange_idle(const struct arena *arena);

// Unmaps what the request has mapped, since it was refused more. Returns how many handles it unmapped.
int64_t exchange_undo(struct arena *arena, uint64_t addr, uint64_t bytes);

// An iteration has ended.
void exchange_end_iteration(struct gpu *gpu);

#endif
