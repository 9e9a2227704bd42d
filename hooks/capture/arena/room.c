// room.c - how much more can be mapped on a device, and in which handles.
#include <stdatomic.h>

#include "arena/arena.h"

static _Atomic uint64_t tag_margin;  // bytes that requests under a tag leave free on the device

void memprof_tag_margin(uint64_t bytes) { atomic_store(&tag_margin, bytes); }

// How many bytes can be mapped: what the limit leaves of the device's free memory, without the margin, and of
// what the request under way has unplaced.
static uint64_t room(const struct gpu *gpu, uint64_t unplaced, uint64_t margin) {
  uint64_t free_bytes, total;
  const bool known = driver_memory(gpu->vmm.device, &free_bytes, &total);
  free_bytes = free_bytes > margin ? free_bytes - margin : 0;
  const uint64_t left = gpu_left(gpu);
  free_bytes += known ? unplaced : 0;
  return known && free_bytes < left ? free_bytes : left;
}

// What is mapped in large handles can only be unmapped in them. So the less room there is, the smaller they
// are: filling a card of 140 GiB takes some 13,000 handles, where all of 32 MiB would be 4,500.
enum { HANDLES_IN_ROOM = 2048 };

// The other way round, mapping 70 GiB in pages takes 36,000 handles: 3 s of driver calls, and much more where
// other processes share the card. So one map has fewer handles than this, unless the device is short of memory,
// or they would be of more than LARGEST_FOR_MAP.
enum { HANDLES_IN_MAP = 4096 };
#define LARGEST_FOR_MAP ((uint64_t)32 << 20)
// A map of so many bytes has handles of LEAST_FOR_LARGE at least, however little room there is, but for pages that move one by one.
#define LARGE_MAP ((uint64_t)1 << 30)
#define LEAST_FOR_LARGE ((uint64_t)16 << 20)

void arena_set_handle(struct arena *arena, uint64_t room, uint64_t bytes) {
  const uint64_t page = arena->memory.page;
  uint64_t handle = arena->gpu->short_now ? page : arena->memory.handle;
  while (arena->memory.fine && !arena->gpu->short_now && handle < LARGEST_FOR_MAP && handle <= bytes / HANDLES_IN_MAP) handle *= 2;
  while (arena->memory.fine && handle > page && handle > room / HANDLES_IN_ROOM) handle /= 2;
  if (arena->memory.fine && !arena->exchange.gives && bytes >= LARGE_MAP && handle < LEAST_FOR_LARGE) handle = LEAST_FOR_LARGE;
  arena->memory.vmm.handle_bytes = handle;
}

uint64_t arena_room(const struct arena *arena) {
  return room(arena->gpu, arena->memory.vmm.unplaced_bytes, arena->tag == NULL ? 0 : atomic_load_explicit(&tag_margin, memory_order_relaxed));
}

bool arena_prepare(struct arena *arena, uint64_t bytes) {
  // What was unplaced is mapped again: nothing is taken of the device, so that the driver need not be asked what it has.
  if (bytes <= arena->memory.vmm.unplaced_bytes) {
    arena->memory.vmm.handle_bytes = arena->memory.handle;
    return true;
  }
  const uint64_t left = arena_room(arena);
  arena_set_handle(arena, left, bytes);
  const uint64_t wanted = bfc_wanted(arena->bfc);
  return bytes <= left && (wanted <= left - bytes || wanted - (left - bytes) <= exchange_idle(arena));
}

void gpu_emptied(struct gpu *gpu) {
  if (gpu->mapped <= room(gpu, 0, 0)) gpu->short_now = false;
}
