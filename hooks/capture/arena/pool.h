// pool.h - private pools: memory of CUDA graphs and of MemPools, kept apart from all other.
//
// A pool is named by two numbers, as torch names it. It has an arena for each stream that requests
// memory in it. Whoever uses the pool holds it: a graph captured into it, a MemPool object, a scope
// that allocates from it. While it is held, nothing of its arenas is unmapped, since a replayed graph
// uses free memory of the pool without a request. When nobody holds it and its last block is freed,
// its arenas end, and their mappings and addresses are released.
//
// A pool may have a source, an allocator of the framework's (source.h).
#ifndef MEMPROF_POOL_H
#define MEMPROF_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/source.h"

struct gpu;
struct graph_range;

// Under its device's lock.
struct pool {
  uint64_t id[2];             // not 0, 0
  int64_t uses;               // how many hold it; at 0 it ends when it is empty
  bool may_unmap;                 // its free memory may be unmapped while it is held
  uint64_t fence;             // behind all replays, since nobody holds it; 0: not recorded yet
  struct source source;       // its functions are NULL if the pool has none
  struct graph_range *range;  // the range of a graph memory that its arenas grow in, or NULL
  struct pool *next;          // of the device
};

// Pools that are held from now on have this source, unless they get one of their own.
void pool_set_usual_source(struct source source);

// All below need gpu->lock.

// The pool of that name. If there is none, it is made, held `uses` times. NULL: no host memory.
struct pool *pool_get(struct gpu *gpu, uint64_t pool0, uint64_t pool1, int64_t uses);

// The pool of that name, or NULL.
struct pool *pool_find(const struct gpu *gpu, uint64_t pool0, uint64_t pool1);

// Whether it has an arena.
bool pool_has_arena(const struct gpu *gpu, const struct pool *pool);

// Whether pool_sweep could return the range of a pool, or a closed graph memory.
bool pool_waits(const struct gpu *gpu);

// Whether no work uses the free memory of a pool: nobody holds it, and no replay of before is under way. A graph uses what was free
// when it was replayed, so that the frees of its arenas do not tell.
bool pool_quiet(struct gpu *gpu, struct pool *pool);

// Ends arenas without blocks of pools that nobody holds, and then such pools, if all work on them is over. Does nothing while a
// stream is captured.
void pool_sweep(struct gpu *gpu);

#endif
