// exchange.c - see exchange.h.
#include "arena/exchange.h"

#include <stdio.h>

#include "arena/arena.h"
#include "arena/handles.h"
#include "base/options.h"
#include "device/captures.h"
#include "spool/spool.h"

// Second addresses.

// vmm.idle: whether an old mapping may go.
static bool old_mapping_goes(void *self, uint64_t addr, uint64_t bytes) {
  const struct arena *arena = self;
  if (!bfc_is_clear(arena->bfc, addr, bytes)) fence_look(arena->gpu);
  return bfc_is_clear(arena->bfc, addr, bytes);
}

// The pages' mappings stay, unless the driver maps no page twice. Those of a large map, which has larger handles, do not move.
static bool try_unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  struct vmm *vmm = &arena->memory.vmm;
  const bool moves = driver_get()->aliases;
  const size_t first = vmm_find(vmm, addr), last = vmm_find(vmm, addr + bytes);
  if (handles_within(arena, addr, bytes) != bytes) return false;
  if (moves ? (last - first) * arena->memory.page != bytes || !vmm_unplace(vmm, first, last) : !bfc_is_clear(arena->bfc, addr, bytes)) return false;
  if (!moves) vmm_release(vmm, first, last);
  arena->exchange.moved |= moves;
  arena->exchange.released += bytes;
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

bool (*exchange_try_unmap(const struct bfc_arena_policy *policy))(void *, uint64_t, uint64_t) {
  return policy->options.growth == BFC_PAGES ? try_unmap : NULL;
}

void exchange_begin(struct arena *arena) {
  arena->gpu->fences.looked = arena->exchange.moved = false;
  arena->exchange.released = 0;
}

// What has a mapping of its own is mapped there again, without a call of the driver; what came from another arena is clear.
void exchange_end(struct arena *arena) {
  struct vmm *vmm = &arena->memory.vmm;
  uint64_t addr, bytes;
  while (vmm_put_back(vmm, &addr, &bytes)) {
    if (bfc_remap(arena->bfc, addr, bytes)) arena_mapping(arena, MEMPROF_MAP, addr, 0, bytes, 1);
  }
  vmm_release_unplaced(vmm);
  if (arena->exchange.moved) fence_record(arena->gpu);  // so that retired addresses become clear
  arena->exchange.moved = false;
}

void exchange_mapped(struct arena *arena, uint64_t bytes) {
  uint64_t *released = &arena->exchange.released;
  *released -= bytes < *released ? bytes : *released;
}

int64_t exchange_undo(struct arena *arena, uint64_t addr, uint64_t bytes) {
  struct vmm *vmm = &arena->memory.vmm;
  const size_t first = vmm_find(vmm, addr), last = vmm_find(vmm, addr + bytes);
  vmm_undo(vmm, first, last);
  arena->exchange.released += bytes;
  return (int64_t)(last - first);
}

// Other arenas.

void exchange_join(struct arena *arena, const struct bfc_arena_policy *policy) {
  const bool maps = arena->memory.kind->maps, pages = policy->options.growth == BFC_PAGES;
  arena->exchange.takes = maps && options_get()->policy.preset == BFC_COMPACT;
  arena->exchange.gives = maps && pages && arena->home == NULL && arena->tag == NULL;
  if (maps && pages && driver_get()->aliases) arena->memory.vmm.idle = old_mapping_goes;
}

static bool holds_idle(const struct arena *arena) { return arena->exchange.gives && arena->memory.vmm.mapped > bfc_touched(arena->bfc); }

// What arenas that map their memory themselves have mapped, and what of it cannot be taken since blocks touch it, or since it is
// of a pool or tag.
struct sums {
  uint64_t mapped, touched;
  bool idle;  // an arena but one holds some that can be taken
};

static struct sums sum(const struct gpu *gpu, const struct arena *but) {
  struct sums sums = {0, 0, false};
  for (const struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (!each->exchange.takes || each->paused) continue;
    sums.mapped += each->memory.vmm.mapped;
    sums.touched += each->exchange.gives ? bfc_touched(each->bfc) : each->memory.vmm.mapped;
    sums.idle |= each != but && holds_idle(each);
  }
  return sums;
}

uint64_t exchange_idle(const struct arena *arena) {
  const struct sums sums = sum(arena->gpu, arena);
  return arena->exchange.takes ? sums.mapped - sums.touched : 0;
}

static void event(struct arena *arena, const struct arena *from, uint64_t bytes) {
  char text[32] = "";
  if (from != NULL) snprintf(text, sizeof text, "arena=%u", from->id);
  arena_event(arena, MEMPROF_TAKE, 0, bytes, 0, from == NULL ? 0 : spool_string(text));
}

struct taking {
  struct arena *to, *from;
  uint64_t taken;  // bytes
};

// Takes a range of pages, as far as the driver unmaps them. Each has a handle.
static void take_range(void *self, uint64_t addr, uint64_t bytes) {
  struct taking *taking = self;
  struct vmm *from = &taking->from->memory.vmm;
  // A handle serves another arena only where it is as large as its handles.
  struct vmm *to = &taking->to->memory.vmm;
  const uint64_t page = taking->from->memory.page;
  const bool serves = taking->to->exchange.gives && to->idle != NULL && taking->to->memory.page == page;
  for (uint64_t at = addr; at < addr + bytes; at += page) {
    const size_t mapping = vmm_find(from, at);
    if (mapping == from->count || from->mappings[mapping].addr != at || from->mappings[mapping].bytes != page) continue;
    if (vmm_is_registered(from, at, page) || !vmm_pass(from, mapping, serves ? to : NULL)) continue;
    bfc_unmap(taking->from->bfc, at, page);
    arena_unmapped(taking->from, at, page, 1);
    taking->taken += page;
  }
}

void exchange_take(struct arena *arena, uint64_t bytes) {
  if (!arena->exchange.takes) return;
  const struct sums sums = sum(arena->gpu, arena);
  uint64_t want = bfc_streams_want(&arena->gpu->streams, bytes, arena->exchange.released, sums.mapped, sums.touched);
  if (want == 0 || !sums.idle) return;
  if (capturing()) {  // what is over cannot be asked for
    event(arena, NULL, want);
    return;
  }
  fence_look(arena->gpu);
  for (struct arena *from = arena->gpu->arenas; from != NULL && want > 0; from = from->next) {
    if (from == arena || !holds_idle(from)) continue;
    struct taking taking = {arena, from, 0};
    event(arena, from, want);
    bfc_spare(from->bfc, (want + from->memory.page - 1) / from->memory.page, &taking, take_range);
    want -= taking.taken < want ? taking.taken : want;
    arena->exchange.released += taking.taken;
    bfc_streams_took(&arena->gpu->streams, taking.taken);
  }
}

void exchange_end_iteration(struct gpu *gpu) {
  const struct sums sums = sum(gpu, NULL);
  bfc_streams_end_iteration(&gpu->streams, sums.mapped);
  if (sums.idle) fence_record(gpu);  // the next request that lacks memory finds what the iteration left
}
