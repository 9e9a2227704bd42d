// handles.h - handles that a free range of an arena's memory covers completely.
//
// A handle can be released if a free chunk covers it completely, and nobody has registered it (registered.h). Addresses stay
// reserved, and the pages are mapped again when their chunk is handed out.
#ifndef MEMPROF_HANDLES_H
#define MEMPROF_HANDLES_H

#include <stdint.h>

struct arena;

// All need gpu->lock.

// The bytes of such handles of an arena; 0 if nothing of it may be unmapped (arena_pinned).
uint64_t handles_free(const struct arena *arena);

// The bytes of handles that lie completely in a free range and are not registered.
uint64_t handles_within(const struct arena *arena, uint64_t addr, uint64_t bytes);

// Both release free handles, the last by address first, until they make `wanted` bytes. All work that used them is done. The first
// adds the bytes to *given, and stops when that is `wanted`; the second looks into one free range, and returns the bytes.
void handles_release(struct arena *arena, uint64_t wanted, uint64_t *given);
uint64_t handles_release_within(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted);

#endif
