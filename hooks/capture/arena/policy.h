// policy.h - which policy an arena has, and how it unmaps free pages for a growth.
//
// The options have one policy for all arenas; bfc/policy.h says which part of it each gets.
#ifndef MEMPROF_POLICY_H
#define MEMPROF_POLICY_H

#include "arena/arena.h"
#include "bfc/policy.h"

// The policy of an arena whose key is filled in.
void policy_of(const struct arena *arena, struct bfc_arena_policy *out);

// Waits until what used a mapping is done, whose pages were lent under that number (lent.h), on all streams that have arenas; where
// that is not known (0), for the device. False: it cannot be waited for.
bool policy_wait_lent(void *arena, uint64_t number);

// Waits for the device, once a request. False: a stream is captured, or the driver refused.
bool policy_wait(void *arena);

// Whether pages of the arena that are free serve other addresses while their old mappings stay.
bool policy_lends(const struct bfc_arena_policy *policy);

// bfc_memory.try_unmap of an arena that may unmap free pages before it grows; NULL for others.
bool (*policy_try_unmap(const struct bfc_arena_policy *policy))(void *self, uint64_t addr, uint64_t bytes);

#endif
