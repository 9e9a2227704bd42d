// memory_vmm.c - physical memory that the hook maps itself. See memory.h.
#include "arena/arena.h"
#include "arena/handles.h"
#include "arena/registered.h"

static bool reserved(void *owner, uint64_t addr, uint64_t bytes) { return arena_add_range(owner, addr, bytes); }

static bool begin(struct arena *arena, const struct bfc_arena_policy *policy) {
  return vmm_init(&arena->memory.vmm, &arena->gpu->vmm, policy->reservation, arena->memory.page, policy->handle, arena, reserved);
}

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  struct arena *arena = self;
  struct vmm *vmm = &arena->memory.vmm;
  const uint64_t unit = arena->memory.page;
  *granted = (bytes + unit - 1) & ~(unit - 1);
  exchange_take(arena, *granted);
  const int64_t handles = vmm->created;
  *addr = 0;
  const bool ok = arena_prepare(arena, *granted) && vmm_grow(vmm, *granted, addr);
  if (ok) exchange_mapped(arena, *granted);
  return arena_grown(arena, ok, bytes, *addr, *granted, vmm->created - handles);
}

static bool adjoins(void *self, uint64_t bytes) {
  const struct memory *memory = &((const struct arena *)self)->memory;
  return ((bytes + memory->page - 1) & ~(memory->page - 1)) <= memory->vmm.limit - memory->vmm.end;
}

static bool map(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  struct vmm *vmm = &arena->memory.vmm;
  exchange_take(arena, bytes);
  const int64_t handles = vmm->created;
  if (!arena_prepare(arena, bytes) || !vmm_map(vmm, addr, bytes)) {
    arena_event(arena, MEMPROF_MAP_FAILED, addr, bytes, 0, 0);
    return false;
  }
  exchange_mapped(arena, bytes);
  arena_mapping(arena, MEMPROF_MAP, addr, bytes, bytes, vmm->created - handles);
  return true;
}

static void unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  arena_unmapped(arena, addr, bytes, exchange_undo(arena, addr, bytes));
}

static void leave(struct arena *arena) {
  uint64_t given = 0;
  registered_drop(arena);
  handles_release(arena, UINT64_MAX, &given);
}

static void end(struct arena *arena) { vmm_close(&arena->memory.vmm); }

static void place(const struct arena *arena, struct memory_place *out) {
  out->base = arena->memory.vmm.end;
  out->bytes = arena->memory.vmm.limit - arena->memory.vmm.end;
}

const struct memory_kind memory_vmm = {
    .coalesces = true,
    .maps = true,
    .begin = begin,
    .grow = grow,
    .map = map,
    .adjoins = adjoins,
    .unmap = unmap,
    .leave = leave,
    .end = end,
    .place = place,
};
