// pool.h - memory that is kept apart: what graphs are captured into, and MemPools.
//
// A pool is named by two numbers, as torch does. It has an arena for each stream that asked
// in it. As long as something holds the pool (a graph captured into it, a MemPool object, a
// scope that allocates from it) nothing of its arenas is given back, since a replayed graph
// uses what is free there without asking. When the last holder has gone and the last block
// is freed, its arenas end: what they had mapped is unmapped, and their addresses return.
//
// A pool may have a source of its own, an allocator of the framework's: then its arenas grow
// by what that allocator gives, and no virtual memory management is in it.
#ifndef MEMPROF_POOL_H
#define MEMPROF_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct gpu;
struct graph_range;

struct pool_source {
  void *self;
  void *(*allocate)(void *self, size_t bytes);  // NULL: the pool has no source of its own
  void (*release)(void *self, void *ptr);
};

struct pool {
  uint64_t id[2];  // not 0, 0
  int64_t uses;    // holders; at 0 the pool ends when it is empty
  bool spare;      // its free memory may be given back while it is held
  struct pool_source source;
  struct graph_range *range;  // of a graph memory, that its arenas grow out of, or NULL
  struct pool *next;  // of the device
};

// What a source gave.
struct pool_grant {
  void *ptr;             // as the source knows it
  uint64_t addr, bytes;  // the granules in it
};

// All below need gpu->lock.

// The pool of that name, made with `uses` holders if there is none. NULL: no host memory.
struct pool *pool_get(struct gpu *gpu, uint64_t pool0, uint64_t pool1, int64_t uses);

// Whether nothing of the arena may be given back.
bool pool_pins(const struct arena *arena);

// Memory for an arena from its pool's source: `bytes` at *addr, both whole granules.
bool pool_grow(struct arena *arena, uint64_t bytes, uint64_t *addr);

// Whether the range of a pool is there to be returned by a sweep.
bool pool_waits(const struct gpu *gpu);

// Ends the arenas of pools that nobody holds, where nothing is in use any more. Waits for the
// device before the first; does nothing during a capture.
void pool_sweep(struct gpu *gpu);

#endif
