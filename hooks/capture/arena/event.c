// event.c - events of an arena, and what is counted with them.
#include "arena/arena.h"
#include "arena/observe.h"
#include "spool/spool.h"

void arena_event(const struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t provided, uint32_t context) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = arena->gpu->vmm.device,
      .arena = arena->id,
      .stream = (int64_t)(intptr_t)arena->stream,
      .addr = addr,
      .requested = requested,
      .provided = provided,
      .context = context,
  });
}

void arena_mapping(struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t bytes, int64_t handles) {
  const int64_t sign = kind == MEMPROF_MAP ? 1 : -1;
  gpu_mapped(arena->gpu, sign * (int64_t)bytes);
  counters_mapped(&arena->gpu->stats, sign * (int64_t)bytes, sign * handles);
  arena_event(arena, kind, addr, requested, bytes, 0);
  observe_mapping(arena, addr, bytes, kind == MEMPROF_MAP);
}

void arena_unmapped(struct arena *arena, uint64_t addr, uint64_t bytes, int64_t handles) {
  arena_mapping(arena, MEMPROF_UNMAP, addr, 0, bytes, handles);
}

bool arena_grown(struct arena *arena, bool ok, uint64_t asked, uint64_t addr, uint64_t bytes, int64_t handles) {
  if (ok)
    arena_mapping(arena, MEMPROF_MAP, addr, asked, bytes, handles);
  else
    arena_event(arena, MEMPROF_GROW_FAILED, 0, asked, 0, 0);
  return ok;
}
