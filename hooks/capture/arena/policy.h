// policy.h - which policy an arena has, and what of it the arena does itself.
//
// The options name one policy for the main arenas: those of the default stream, of requests
// outside pools and regions. Arenas of other streams, of pools and of regions grow by what is
// needed, and take nothing back for it. All split alike. Arenas outside pools and regions are
// trimmed, and planned: the others' memory is kept for graphs, or paused as a whole.
#ifndef MEMPROF_POLICY_H
#define MEMPROF_POLICY_H

#include "arena/arena.h"

// The policy of an arena whose key is filled in, how much address space it reserves, and the
// size of its handles.
struct policy {
  struct bfc_options bfc;
  uint64_t reservation, handle;
};
void policy_of(const struct arena *arena, struct policy *out);

// Whether requests of that size are served apart from larger ones.
bool policy_small(uint64_t size, bool pooled, const struct tag *tag);

// The policy as it reads in an arena event: "growth=..." and " split=... trim=... placement=...".
void policy_growth_text(const struct bfc_options *options, char *text, size_t size);
void policy_rest_text(const struct arena *arena, const struct bfc_options *options, char *text, size_t size);

// bfc_memory.take of an arena that may take granules back for a growth; NULL for others.
bool (*policy_take(const struct arena *arena))(void *self, uint64_t addr, uint64_t bytes);

#endif
