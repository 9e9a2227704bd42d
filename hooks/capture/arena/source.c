// source.c - see source.h.
#include "arena/source.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/problem.h"
#include "device/driver.h"
#include "device/own_calls.h"
#include "spool/spool.h"

static const struct source *source_of(const struct arena *arena) { return &arena->home->source; }

// The source's CUDA calls serve the arena: they must be neither recorded as another library's nor wait for
// gpu->lock, which this thread has.
static void calls_begin(const struct gpu *gpu) {
  own_calls_begin();
  gpu_held = gpu;
}

static void calls_end(void) {
  gpu_held = NULL;
  own_calls_end();
}

// Requests `bytes` from a source, to start at a page. A source may return any address: if the first is no
// page's, it is released and a page more is requested, which has `bytes` from a page on.
static bool take(const struct source *source, uint64_t bytes, uint64_t unit, struct source_grant *out) {
  void *ptr = source->allocate(source->self, bytes);
  if (ptr != NULL && ((uintptr_t)ptr & (unit - 1)) != 0) {
    source->release(source->self, ptr);
    ptr = source->allocate(source->self, bytes + unit);
  }
  *out = (struct source_grant){.ptr = ptr, .addr = ((uintptr_t)ptr + unit - 1) & ~(unit - 1), .bytes = bytes};
  return ptr != NULL;
}

// Memory for an arena: `bytes` at *addr, whole pages. False: the source has none.
static bool add_grant(struct arena *arena, uint64_t bytes, uint64_t *addr) {
  struct memory *memory = &arena->memory;
  if (!array_reserve(&memory->grants, &memory->grant_room, memory->grant_count + 1, sizeof *memory->grants)) return false;
  struct source_grant *more = &memory->grants[memory->grant_count];
  const struct source *source = source_of(arena);
  calls_begin(arena->gpu);
  bool ok = take(source, bytes, arena->gpu->vmm.granularity, more);
  if (ok && !arena_add_range(arena, more->addr, bytes)) {
    source->release(source->self, more->ptr);
    ok = false;
  }
  calls_end();
  if (!ok) return false;
  *addr = more->addr;
  memory->grant_count++;
  return true;
}

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  struct arena *arena = self;
  const uint64_t unit = arena->memory.page;
  *granted = (bytes + unit - 1) & ~(unit - 1);
  *addr = 0;
  const bool ok = *granted <= arena_room(arena) && add_grant(arena, *granted, addr);
  return arena_grown(arena, ok, bytes, *addr, *granted, 1);
}

// Only the source can map its memory.
static bool map(void *self, uint64_t addr, uint64_t bytes) {
  arena_event(self, MEMPROF_MAP_FAILED, addr, bytes, 0, 0);
  return false;
}

// Grants of an arena that has ended.
struct ended {
  struct ended *next;
  struct source source;
  struct source_grant *grants;
  size_t count;
};

static struct ended *_Atomic all_ended;

static void give_back(const struct ended *of) {
  for (size_t i = 0; i < of->count; i++) {
    if (!of->grants[i].left) of->source.release(of->source.self, of->grants[i].ptr);  // else its source has released it
  }
  free(of->grants);
}

void source_give_back(void) {
  if (atomic_load_explicit(&all_ended, memory_order_relaxed) == NULL) return;
  own_calls_begin();
  const int mode = driver_relax();
  for (struct ended *each = atomic_exchange(&all_ended, NULL), *next; each != NULL; each = next) {
    next = each->next;
    give_back(each);
    free(each);
  }
  driver_restrict(mode);
  own_calls_end();
}

// All memory of an arena without blocks is the source's again.
static void leave(struct arena *arena) {
  struct memory *memory = &arena->memory;
  const struct ended ended = {NULL, *source_of(arena), memory->grants, memory->grant_count};
  for (size_t i = 0; i < ended.count; i++) {
    const struct source_grant *grant = &ended.grants[i];
    if (!grant->left && bfc_unmap(arena->bfc, grant->addr, grant->bytes)) arena_unmapped(arena, grant->addr, grant->bytes, 1);
  }
  struct ended *later = ended.count == 0 ? NULL : malloc(sizeof *later);
  if (later != NULL) {
    *later = ended;
    later->next = atomic_load(&all_ended);
    while (!atomic_compare_exchange_weak(&all_ended, &later->next, later)) continue;
  } else {  // no host memory: at once
    calls_begin(arena->gpu);
    give_back(&ended);
    calls_end();
  }
  memory->grants = NULL;
  memory->grant_count = memory->grant_room = 0;
}

static void place(const struct arena *arena, struct memory_place *out) { (void)arena, (void)out; }

const struct memory_kind memory_source = {.foreign = true, .grow = grow, .map = map, .leave = leave, .place = place};

bool source_holds_any(const struct arena *arena) { return arena->memory.grant_count > 0; }

int32_t source_number(const struct arena *arena, uint64_t addr, int32_t otherwise) {
  for (size_t i = 0; i < arena->memory.grant_count; i++) {
    if (arena->memory.grants[i].addr == addr) return (int32_t)i;
  }
  return otherwise;
}

uint64_t source_bytes(const struct arena *arena) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < arena->memory.grant_count; i++) bytes += arena->memory.grants[i].left ? 0 : arena->memory.grants[i].bytes;
  return bytes;
}

// Bytes of a grant within [addr, addr+bytes).
static uint64_t within(const struct source_grant *grant, uint64_t addr, uint64_t bytes) {
  const uint64_t from = grant->addr > addr ? grant->addr : addr;
  const uint64_t grant_end = grant->addr + grant->bytes, end = addr + bytes, to = grant_end < end ? grant_end : end;
  return from < to ? to - from : 0;
}

// Writes the pause or resume that ends now. Of its copies nothing is known but what memprof_tag_offloaded says.
static void event(const struct arena *arena, enum memprof_kind kind) {
  const struct tag *tag = arena->tag;
  const uint64_t bytes = source_bytes(arena);
  char text[160] = "tag=";
  if (tag != NULL) snprintf(text, sizeof text, "tag=%s\tby=source", tag->label);
  const uint64_t copied = tag != NULL && atomic_load_explicit(&tag->offloaded, memory_order_relaxed) ? bytes : 0;
  arena_event(arena, kind, arena->memory.grants_began != 0 ? clock_now() - arena->memory.grants_began : 0, bytes, copied, spool_string(text));
}

// Whether all memory of the arena, or none of it, is unmapped.
static bool all_away(const struct arena *arena) {
  size_t staying = 0;
  for (size_t i = 0; i < arena->memory.grant_count; i++) {
    if (arena->memory.grants[i].left) continue;
    if (arena->memory.grants[i].away < arena->memory.grants[i].bytes) return false;
    staying++;
  }
  return staying > 0;
}

static bool none_away(const struct arena *arena) {
  for (size_t i = 0; i < arena->memory.grant_count; i++) {
    if (!arena->memory.grants[i].left && arena->memory.grants[i].away > 0) return false;
  }
  return true;
}

static void unmapped(struct arena *arena, uint64_t addr, uint64_t bytes) {
  if (none_away(arena)) arena->memory.grants_began = clock_now();
  for (size_t i = 0; i < arena->memory.grant_count; i++) {
    struct source_grant *grant = &arena->memory.grants[i];
    grant->away += within(grant, addr, bytes);
    if (grant->away > grant->bytes) grant->away = grant->bytes;  // the source has unmapped the same bytes twice
    if (grant->left || arena->paused || grant->away < grant->bytes || !bfc_unmap(arena->bfc, grant->addr, grant->bytes)) continue;
    arena_unmapped(arena, grant->addr, grant->bytes, 1);
    grant->left = true;
  }
  if (arena->paused || !all_away(arena)) return;
  arena->paused = true;  // torch's statistics still count its blocks, since torch is not informed
  event(arena, MEMPROF_PAUSE);
}

static void mapped(struct arena *arena, uint64_t addr, uint64_t bytes) {
  if (all_away(arena)) arena->memory.grants_began = clock_now();
  for (size_t i = 0; i < arena->memory.grant_count; i++) {
    const uint64_t back = within(&arena->memory.grants[i], addr, bytes);
    arena->memory.grants[i].away -= back < arena->memory.grants[i].away ? back : arena->memory.grants[i].away;
  }
  if (arena->paused && none_away(arena)) {
    event(arena, MEMPROF_RESUME);
    arena->paused = false;
  }
  if (arena->paused) return;
  for (size_t i = 0; i < arena->memory.grant_count; i++) {
    struct source_grant *grant = &arena->memory.grants[i];
    if (!grant->left || grant->away > 0 || !bfc_remap(arena->bfc, grant->addr, grant->bytes)) continue;
    grant->left = false;
    arena_mapping(arena, MEMPROF_MAP, grant->addr, 0, grant->bytes, 1);
  }
}

static void apply(struct arena *arena, uint64_t addr, uint64_t bytes, bool back) {
  if (arena->bfc == NULL || arena->memory.grant_count == 0) return;
  if (back)
    mapped(arena, addr, bytes);
  else
    unmapped(arena, addr, bytes);
}

// Changes that found gpu->lock held for too long, in their order.
enum { MOST_LATE = 1024 };
static struct late {
  uint64_t addr, bytes;
  bool back;
} late[MOST_LATE];
static struct lock late_lock;  // nothing is called under it
_Atomic size_t source_late_count;

static void change_later(uint64_t addr, uint64_t bytes, bool back) {
  lock_take(&late_lock);
  const size_t count = atomic_load(&source_late_count);
  if (count < MOST_LATE) {
    late[count] = (struct late){addr, bytes, back};
    atomic_store(&source_late_count, count + 1);
  }
  lock_give(&late_lock);
  if (count == MOST_LATE) problem("memory that a pool's allocator has unmapped or mapped is not followed: its lock was held too long");
}

// The first late change of the device, taken out of the list.
static bool take_late(const struct gpu *gpu, struct late *out) {
  bool found = false;
  lock_take(&late_lock);
  const size_t count = atomic_load(&source_late_count);
  for (size_t i = 0; i < count; i++) {
    if (found) {
      late[i - 1] = late[i];
    } else {
      const struct arena *arena = arena_of(late[i].addr);
      found = arena == NULL || arena->gpu == gpu;
      if (found) *out = late[i];
    }
  }
  if (found) atomic_store(&source_late_count, count - 1);
  lock_give(&late_lock);
  return found;
}

void source_free_later(struct gpu *gpu, uint64_t addr) {
  if (array_reserve(&gpu->late_frees, &gpu->late_free_room, gpu->late_free_count + 1, sizeof *gpu->late_frees)) {
    gpu->late_frees[gpu->late_free_count++] = addr;
  } else {
    problem("no host memory to free a block later: it is lost");
  }
}

void source_apply_late(struct gpu *gpu) {
  struct late next;
  while (atomic_load_explicit(&source_late_count, memory_order_relaxed) > 0 && take_late(gpu, &next)) {
    struct arena *arena = arena_of(next.addr);
    if (arena != NULL) apply(arena, next.addr, next.bytes, next.back);
  }
  while (gpu->late_free_count > 0) {
    const uint64_t addr = gpu->late_frees[--gpu->late_free_count];
    struct arena *arena = arena_of(addr);
    if (arena == NULL || !arena_free(arena, addr)) problem("free of %p, which is not a live block", (void *)(uintptr_t)addr);
  }
}

// Takes the lock, or gives up after some 20 ms. A request holds it for microseconds and a growth for milliseconds,
// but a source that waits for this thread would hold it for ever.
static bool take_shortly(struct lock *lock) {
  for (int i = 0; i < 400; i++) {
    if (lock_try(lock)) return true;
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
  return false;
}

static void change(uint64_t addr, uint64_t bytes, bool back) {
  struct arena *arena = hook_on() ? arena_of(addr) : NULL;
  if (arena == NULL) return;
  if (!take_shortly(&arena->gpu->lock)) {
    change_later(addr, bytes, back);
    return;
  }
  gpu_apply_late(arena->gpu);
  apply(arena, addr, bytes, back);
  lock_give(&arena->gpu->lock);
}

bool source_holds(uint64_t addr) { return hook_on() && arena_of(addr) != NULL; }
void source_unmaps(uint64_t addr, uint64_t bytes) { change(addr, bytes, false); }
void source_mapped(uint64_t addr, uint64_t bytes) { change(addr, bytes, true); }

static void forget(void) { late_lock = (struct lock){0}; }

HOOK_PART(.order = HOOK_REST, .forget = forget);
