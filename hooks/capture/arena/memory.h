// memory.h - where an arena's memory comes from, behind one door.
//
//   memory_vmm     physical memory that the hook maps itself (memory_vmm.c, device/vmm.h)
//   memory_source  what an allocator of the framework's returns for a pool (source.h)
//   memory_range   a range of a graph memory (graph_memory.h)
//
// The pool of an arena decides which. The allocator calls grow, map and unmap (struct bfc_memory).
#ifndef MEMPROF_MEMORY_H
#define MEMPROF_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bfc/policy.h"
#include "device/vmm.h"

struct arena;
struct source_grant;

// What an arena event says of the addresses.
struct memory_place {
  uint64_t base, bytes;
  char text[200];  // further fields, each behind a tab
};

struct memory_kind {
  bool coalesces;  // adjacent growths become one region
  bool maps;       // page by page, so that single pages can be registered, change their address or move to another arena
  bool shared;     // others map the same pages: it is never paused, and a block's pages are no arena's own
  bool foreign;    // somebody else pauses it: statistics go on counting its blocks
  bool (*begin)(struct arena *arena, const struct bfc_arena_policy *policy);  // NULL: nothing is done before the first growth
  bool (*grow)(void *arena, uint64_t bytes, uint64_t *addr, uint64_t *granted);
  bool (*map)(void *arena, uint64_t addr, uint64_t bytes);
  bool (*adjoins)(void *arena, uint64_t bytes);  // whether a growth would lie right behind the last one; NULL: it would
  void (*unmap)(void *arena, uint64_t addr, uint64_t bytes);
  void (*leave)(struct arena *arena);  // unmaps or returns all; no block is left, and the device was waited for
  void (*end)(struct arena *arena);    // ends its addresses; NULL: it has none of its own
  void (*place)(const struct arena *arena, struct memory_place *out);
};

extern const struct memory_kind memory_vmm, memory_source, memory_range;

// Under the device's lock.
struct memory {
  const struct memory_kind *kind;
  uint64_t page;     // bytes of a page of the allocator
  uint64_t handle;   // bytes of a handle, at most
  bool fine;         // handles are larger for large maps, and smaller where little of the device is free
  struct vmm vmm;    // of memory_vmm; zeros otherwise
  struct source_grant *grants;  // of memory_source
  size_t grant_count, grant_room;
  uint64_t grants_began;        // when the source began to unmap or map them
};

#endif
