// source.h - memory of a pool that comes from an allocator of the framework's.
//
// torch makes a MemPool with an allocator, NCCL's for instance. The pool's arenas then grow by what that
// source returns, a grant each, and virtual memory management is not used. Memory stays the source's:
// serving engines have allocators (vLLM's cumem, torch_memory_saver) that unmap it while the engine sleeps
// and map it again at the same addresses. interpose/ wraps those calls and reports them here:
//
//   all grants of an arena are unmapped     the arena is paused: its memory is in no sum of the recording
//   all of them are mapped again            it is resumed
//   a grant without blocks is unmapped      its memory has left the arena, and returns when it is mapped
//
// An engine that has tags (vLLM's) allocates inside regions of the same tags, which Python code around it
// opens, so that each arena has one tag and the events of its pauses name it.
//
// A source may run Python under the device's lock: what Python's collector frees meanwhile is freed when the request is over,
// and requests of the source itself go to CUDA.
#ifndef MEMPROF_SOURCE_H
#define MEMPROF_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct gpu;

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

// All of these need gpu->lock.

// Whether an arena has memory of a source, and how many bytes that have not left it.
bool source_holds_any(const struct arena *arena);
uint64_t source_bytes(const struct arena *arena);

// The number of a segment of the arena: `otherwise`, but for memory of a source the place in the order in which it was returned.
int32_t source_number(const struct arena *arena, uint64_t addr, int32_t otherwise);

// Without gpu->lock: whether an arena's memory begins before `addr` and ends behind it.
bool source_holds(uint64_t addr);

// Without gpu->lock: the job is about to unmap, or has mapped, [addr, addr+bytes). Its thread may hold a lock
// (Python's, or the source's own) for which a source in another thread waits, and that thread has gpu->lock.
// So these two wait for gpu->lock for some 20 ms, and then leave the change to source_apply_late.
void source_unmaps(uint64_t addr, uint64_t bytes);
void source_mapped(uint64_t addr, uint64_t bytes);

// For a free inside a call of a source: notes the block at `addr`, which source_apply_late frees after the
// request under way.
void source_free_later(struct gpu *gpu, uint64_t addr);

// Applies the changes and frees that were left to later; gpu_apply_late (arena.h) asks first whether there are any.
// Needs gpu->lock, and that no request is under way.
void source_apply_late(struct gpu *gpu);

// Without gpu->lock: returns the memory of arenas that have ended to their sources, whose release may wait for the GPU.
void source_give_back(void);

// How many changes source_unmaps and source_mapped have left to later, of all devices.
extern _Atomic size_t source_late_count;

#endif
