// arena.c - see arena.h.
#include "arena/arena.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/shortage.h"
#include "arena/trim.h"
#include "base/options.h"
#include "spool/spool.h"

static _Atomic(uint32_t) arena_count;

uint32_t arena_next_id(void) { return atomic_fetch_add(&arena_count, 1); }

// What nobody has of the device, or of the limit of all arenas, if that is less: a growth beyond the request that
// exceeds the limit would be refused, and might take the request for one that nothing is left for.
static uint64_t device_free(void *self) {
  struct arena *arena = self;
  uint64_t free_bytes, total;
  driver_memory(arena->gpu->vmm.device, &free_bytes, &total);
  const uint64_t used = total - free_bytes, left = gpu_left(arena->gpu);
  if (left < free_bytes) free_bytes = left;
  arena_event(arena, MEMPROF_DEVICE_USED, 0, used + free_bytes, used, 0);
  return free_bytes;
}

static void look(void *self) { fence_look(((struct arena *)self)->gpu); }

static void describe(const struct arena *arena, const struct bfc_arena_policy *policy) {
  const struct memory *memory = &arena->memory;
  struct memory_place place = {0};
  char text[700], uuid[DRIVER_UUID_TEXT], fields[256];
  memory->kind->place(arena, &place);
  driver_uuid_write(arena->gpu->vmm.uuid, uuid);
  bfc_policy_fields(policy, fields, sizeof fields);
  snprintf(text, sizeof text, "%s fraction=0 gc=0 granularity=%llu coalesces=%d pages=2 fences=1 takes=%d gives=%d pool=%llx.%llx tag=%s main=%d total=%llu uuid=%s%s", fields,
           (unsigned long long)memory->page, memory->kind->coalesces, arena->exchange.takes, arena->exchange.gives,
           (unsigned long long)arena->pool[0], (unsigned long long)arena->pool[1], arena->tag == NULL ? "" : arena->tag->label, arena->main, (unsigned long long)arena->gpu->vmm.total, uuid, place.text);
  arena_event(arena, MEMPROF_ARENA, place.base, policy->options.limit, place.bytes, spool_string(text));
}

// A zeroed struct for a new arena: that of one that has ended, or new host memory; NULL: there is none.
static struct arena *take_place(struct gpu *gpu) {
  struct arena *arena = gpu->ended;
  if (arena == NULL) return calloc(1, sizeof *arena);
  gpu->ended = arena->next;
  return arena;
}

static void give_place(struct gpu *gpu, struct arena *arena) {
  if (gpu->last == arena) gpu->last = NULL;
  *arena = (struct arena){.gpu = gpu, .next = gpu->ended};
  gpu->ended = arena;
}

// Frees an arena's parts and its place.
static void drop(struct arena *arena) {
  bfc_delete(arena->bfc);
  if (arena->pause != NULL) backup_drop(arena);
  free(arena->pause);
  free(arena->trim);
  free(arena->pending.entries);
  give_place(arena->gpu, arena);
}

static struct arena **by_key(struct gpu *gpu, const void *stream, uint64_t pool0, uint64_t pool1) {
  const uint64_t key = (uintptr_t)stream + pool0 * 0x9e3779b97f4a7c15 + pool1;
  return &gpu->by_key[(key * 0x9e3779b97f4a7c15) >> (64 - KEY_BITS)];
}

void arena_end(struct arena *arena) {
  struct arena **link = by_key(arena->gpu, arena->stream, arena->pool[0], arena->pool[1]);
  while (*link != arena) link = &(*link)->same;
  *link = arena->same;
  arena_remove_ranges(arena);
  arena_event(arena, MEMPROF_POOL_RELEASE, 0, 0, 0, 0);
  if (arena->memory.kind->end != NULL) arena->memory.kind->end(arena);
  drop(arena);
}

static void choose_policy(const struct arena *arena, struct bfc_arena_policy *out) {
  const struct bfc_arena kind = {
      .other_stream = arena->stream != NULL,
      .pool = arena->home != NULL,
      .tag = arena->tag != NULL,
      .graphs = arena->memory.kind->shared,
      .total = arena->gpu->vmm.total,
      .granularity = arena->gpu->vmm.granularity,
  };
  bfc_policy_for_arena(&options_get()->policy, &kind, out);
  // Slack of a chunk would make a job that repeats grow once more after its first resume.
  if (arena->tag != NULL && atomic_load(&arena->tag->exact)) out->options.always_split = true;
}

static const struct memory_kind *memory_of(const struct pool *home) {
  if (home != NULL && home->range != NULL) return &memory_range;
  return home != NULL && home->source.allocate != NULL ? &memory_source : &memory_vmm;
}

// Makes the allocator, the memory and the optional parts of an arena. False: no address space, or no host memory.
static bool make_parts(struct arena *arena, const struct bfc_arena_policy *policy) {
  const struct memory_kind *kind = arena->memory.kind;
  const struct bfc_memory memory = {
      .self = arena,
      .granularity = arena->memory.page,
      .grow = kind->grow,
      .map = kind->map,
      .unmap = kind->unmap,
      .device_free = device_free,
      .coalesces = kind->coalesces,
      .try_unmap = exchange_try_unmap(policy),
      .look = look,
      .adjoins = kind->adjoins,
  };
  arena->bfc = bfc_new(&policy->options, &memory);
  if (arena->tag != NULL) arena->pause = calloc(1, sizeof *arena->pause);
  if (policy->trim == BFC_TRIM_ITERATION) arena->trim = calloc(1, sizeof *arena->trim);
  if (arena->bfc == NULL || (arena->tag != NULL && arena->pause == NULL) || (policy->trim == BFC_TRIM_ITERATION && arena->trim == NULL)) return false;
  return kind->begin == NULL || kind->begin(arena, policy);
}

static struct arena *make_arena(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag) {
  pool_sweep(gpu);
  const bool pooled = pool0 != 0 || pool1 != 0;
  // The first request in a pool that was never opened holds the pool.
  struct pool *home = pooled ? pool_get(gpu, pool0, pool1, 1) : NULL;
  struct arena *arena = pooled && home == NULL ? NULL : take_place(gpu);
  if (arena == NULL) return NULL;
  const struct memory_kind *kind = memory_of(home);
  if (kind->shared) tag = NULL;
  *arena = (struct arena){.gpu = gpu, .stream = stream, .pool = {pool0, pool1}, .home = home, .tag = tag, .memory.kind = kind};
  arena->main = stream == NULL && !pooled && tag == NULL;
  struct bfc_arena_policy policy;
  choose_policy(arena, &policy);
  arena->memory.page = policy.page;
  arena->memory.handle = (policy.handle + policy.page - 1) & ~(policy.page - 1);
  arena->memory.fine = policy.fine;
  if (!make_parts(arena, &policy)) {
    drop(arena);
    return NULL;
  }
  arena->id = arena_next_id();
  arena->next = gpu->arenas;
  gpu->arenas = arena;
  struct arena **same = by_key(gpu, stream, pool0, pool1);
  arena->same = *same;
  *same = arena;
  exchange_join(arena, &policy);
  describe(arena, &policy);
  shortage_join(arena);
  return arena;
}

static bool serves(struct arena *arena, void *stream, uint64_t pool0, uint64_t pool1, const struct tag *tag) {
  return arena->stream == stream && arena->pool[0] == pool0 && arena->pool[1] == pool1 && !arena->paused &&
         (arena->tag == tag || arena->memory.kind->shared) && arena_whole(arena);
}

struct arena *arena_get(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag) {
  if (gpu->last != NULL && serves(gpu->last, stream, pool0, pool1, tag)) return gpu->last;
  for (struct arena *arena = *by_key(gpu, stream, pool0, pool1); arena != NULL; arena = arena->same) {
    if (arena != gpu->last && serves(arena, stream, pool0, pool1, tag)) return gpu->last = arena;
  }
  return make_arena(gpu, stream, pool0, pool1, tag);
}
