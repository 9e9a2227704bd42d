// source.h - memory of a pool that comes from an allocator of the framework's.
//
// torch makes a MemPool with an allocator, NCCL's for instance. The pool's arenas then grow by what that
// source returns, a grant each, and virtual memory management is not used. Memory stays the source's:
// serving engines have allocators (vLLM's cumem, torch_memory_saver) that unmap it while the engine sleeps
// and map it again at the same addresses. interpose/ sees those calls and tells them here:
//
//   all grants of an arena are unmapped     the arena is paused: its memory is in no sum
//   all of them are mapped again            it is resumed
//   a grant without blocks is unmapped      its memory has left the arena, and returns when it is mapped
#ifndef MEMPROF_SOURCE_H
#define MEMPROF_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct source {
  void *self;
  void *(*allocate)(void *self, size_t bytes);
  void (*release)(void *self, void *ptr);
};

// What a source returned for a growth.
struct source_grant {
  void *ptr;             // as the source returned it
  uint64_t addr, bytes;  // the whole pages in it, which the arena uses
  uint64_t away;         // of these, bytes that the source has unmapped
  bool left;             // it had no block when they were unmapped: the arena counts it as unmapped
};

// The source of the arena's pool, or NULL. Needs gpu->lock, as do the next three.
const struct source *source_of(const struct arena *arena);

// Memory for an arena from its pool's source: `bytes` at *addr, whole pages. False: the source has none.
bool source_grow(struct arena *arena, uint64_t bytes, uint64_t *addr);

// Returns all memory of an arena without blocks to its source.
void source_return(struct arena *arena);

// Bytes of grants that have not left the arena, and their number.
uint64_t source_bytes(const struct arena *arena, int64_t *grants);

// The next three take the lock. Whether an arena has memory of a source at `addr`.
bool source_holds(uint64_t addr);

// The job unmaps, or has mapped, [addr, addr+bytes).
void source_unmaps(uint64_t addr, uint64_t bytes);
void source_mapped(uint64_t addr, uint64_t bytes);

#endif
