// source.c - see source.h.
#include "arena/source.h"

#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/hook.h"
#include "device/own_calls.h"
#include "spool/spool.h"

const struct source *source_of(const struct arena *arena) {
  return arena->home == NULL || arena->home->source.allocate == NULL ? NULL : &arena->home->source;
}

// Asks a source for `bytes` that start at a page. A source may return any address; then it is asked for
// a page more.
static bool take(const struct source *source, uint64_t bytes, uint64_t unit, struct source_grant *out) {
  void *ptr = source->allocate(source->self, bytes);
  if (ptr != NULL && ((uintptr_t)ptr & (unit - 1)) != 0) {
    source->release(source->self, ptr);
    ptr = source->allocate(source->self, bytes + unit);
  }
  *out = (struct source_grant){.ptr = ptr, .addr = ((uintptr_t)ptr + unit - 1) & ~(unit - 1), .bytes = bytes};
  return ptr != NULL;
}

bool source_grow(struct arena *arena, uint64_t bytes, uint64_t *addr) {
  if (!array_reserve(&arena->grants, &arena->grant_room, arena->grant_count + 1, sizeof *arena->grants)) return false;
  struct source_grant *more = &arena->grants[arena->grant_count];
  // The source's CUDA calls are part of this growth: they must not be recorded, nor wait for the lock.
  own_calls_begin();
  const struct source *source = source_of(arena);
  bool ok = take(source, bytes, arena->gpu->vmm.granularity, more);
  if (ok && !arena_add_range(arena, more->addr, bytes)) {
    source->release(source->self, more->ptr);
    ok = false;
  }
  own_calls_end();
  if (!ok) return false;
  *addr = more->addr;
  arena->grant_count++;
  return true;
}

void source_return(struct arena *arena) {
  const struct source *source = source_of(arena);
  own_calls_begin();
  for (size_t i = 0; i < arena->grant_count; i++) {
    const struct source_grant *grant = &arena->grants[i];
    if (grant->left) continue;  // its source has released it
    if (bfc_unmap(arena->bfc, grant->addr, grant->bytes)) arena_unmapped(arena, grant->addr, grant->bytes, 1);
    source->release(source->self, grant->ptr);
  }
  own_calls_end();
  free(arena->grants);
  arena->grants = NULL;
  arena->grant_count = arena->grant_room = 0;
}

uint64_t source_bytes(const struct arena *arena, int64_t *grants) {
  uint64_t bytes = 0;
  *grants = 0;
  for (size_t i = 0; i < arena->grant_count; i++) {
    if (arena->grants[i].left) continue;
    bytes += arena->grants[i].bytes;
    ++*grants;
  }
  return bytes;
}

// Bytes of a grant within [addr, addr+bytes).
static uint64_t within(const struct source_grant *grant, uint64_t addr, uint64_t bytes) {
  const uint64_t from = grant->addr > addr ? grant->addr : addr;
  const uint64_t grant_end = grant->addr + grant->bytes, end = addr + bytes, to = grant_end < end ? grant_end : end;
  return from < to ? to - from : 0;
}

static void event(const struct arena *arena, enum memprof_kind kind) {
  int64_t grants;
  arena_event(arena, kind, 0, source_bytes(arena, &grants), 0, spool_string("tag="));
}

// Whether all memory of the arena, or none of it, is unmapped.
static bool all_away(const struct arena *arena) {
  size_t staying = 0;
  for (size_t i = 0; i < arena->grant_count; i++) {
    if (arena->grants[i].left) continue;
    if (arena->grants[i].away < arena->grants[i].bytes) return false;
    staying++;
  }
  return staying > 0;
}

static bool none_away(const struct arena *arena) {
  for (size_t i = 0; i < arena->grant_count; i++) {
    if (!arena->grants[i].left && arena->grants[i].away > 0) return false;
  }
  return true;
}

static void unmapped(struct arena *arena, uint64_t addr, uint64_t bytes) {
  for (size_t i = 0; i < arena->grant_count; i++) {
    struct source_grant *grant = &arena->grants[i];
    grant->away += within(grant, addr, bytes);
    if (grant->away > grant->bytes) grant->away = grant->bytes;  // it unmapped what was unmapped
    if (grant->left || arena->paused || grant->away < grant->bytes || !bfc_unmap(arena->bfc, grant->addr, grant->bytes)) continue;
    arena_unmapped(arena, grant->addr, grant->bytes, 1);
    grant->left = true;
  }
  if (arena->paused || !all_away(arena)) return;
  pause_count(arena, -1);
  arena->paused = true;
  event(arena, MEMPROF_PAUSE);
}

static void mapped(struct arena *arena, uint64_t addr, uint64_t bytes) {
  for (size_t i = 0; i < arena->grant_count; i++) {
    const uint64_t back = within(&arena->grants[i], addr, bytes);
    arena->grants[i].away -= back < arena->grants[i].away ? back : arena->grants[i].away;
  }
  if (arena->paused && none_away(arena)) {
    event(arena, MEMPROF_RESUME);
    arena->paused = false;
    pause_count(arena, 1);
  }
  if (arena->paused) return;
  for (size_t i = 0; i < arena->grant_count; i++) {
    struct source_grant *grant = &arena->grants[i];
    if (!grant->left || grant->away > 0 || !bfc_remap(arena->bfc, grant->addr, grant->bytes)) continue;
    grant->left = false;
    arena_mapping(arena, MEMPROF_MAP, grant->addr, 0, grant->bytes, 1);
  }
}

static bool tell(uint64_t addr, uint64_t bytes, void (*change)(struct arena *, uint64_t, uint64_t)) {
  struct arena *arena = hook_on() ? arena_of(addr) : NULL;
  if (arena == NULL) return false;
  lock_take(&arena->gpu->lock);
  const bool holds = arena->bfc != NULL && arena->grant_count > 0;
  if (holds && change != NULL) change(arena, addr, bytes);
  lock_give(&arena->gpu->lock);
  return holds;
}

bool source_holds(uint64_t addr) { return tell(addr, 0, NULL); }
void source_unmaps(uint64_t addr, uint64_t bytes) { tell(addr, bytes, unmapped); }
void source_mapped(uint64_t addr, uint64_t bytes) { tell(addr, bytes, mapped); }
