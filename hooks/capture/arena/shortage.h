// shortage.h - a device that is short of memory.
//
// A device is short of memory from the first request that its free memory could not serve to the end of the
// process. Then each page counts: the allocators of its arenas give no slack and place by pages (bfc/shortage.c), blocks
// lose the slack that they have, and new handles are of a page each, so that every page that becomes free
// can serve elsewhere. Only the handles become as large as before once the program has emptied the cache and no
// more is mapped than is free, until the next request that cannot be served. A request is refused only if the pages that blocks touch, and those that cannot be
// unmapped, are more than the device has. The latter are those of pools in use, as a graph may use
// free memory of its pool, and of larger handles with a live block that were mapped before.
//
// A request that finds no memory first unmaps as many free pages of all arenas as it can need, of those that nobody can read any more (fence.h). If they do
// not suffice it waits for the device, as cudaFree would, with no lock held; then it unmaps all free pages.
#ifndef MEMPROF_SHORTAGE_H
#define MEMPROF_SHORTAGE_H

#include "arena/arena.h"

// All need gpu->lock.

// Whether shortage_begin would change anything.
bool shortage_due(const struct gpu *gpu);

// The device is short of memory: has the allocators of all its arenas count pages, and frees the slack of
// blocks. Not to be called while an arena serves a request. Blocks of pools keep their slack, since a checkpoint
// may have their sizes.
void shortage_begin(struct gpu *gpu);

// Has the allocator of a new arena count pages, if the device is short of memory.
void shortage_join(struct arena *arena);

#endif
