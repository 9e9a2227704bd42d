// streams.c - see streams.h.
#include "arena/streams.h"

#include <stdio.h>

#include "arena/graph_memory.h"
#include "arena/policy.h"
#include "arena/reclaim.h"
#include "base/options.h"
#include "device/captures.h"
#include "device/devices.h"
#include "spool/spool.h"

void streams_join(struct arena *arena, const struct bfc_arena_policy *policy) {
  const bool maps = source_of(arena) == NULL && (arena->home == NULL || arena->home->range == NULL);
  arena->takes = maps && options_get()->policy.preset == BFC_COMPACT;
  arena->gives = maps && fence_covers(arena) && policy->options.growth == BFC_PAGES;
}

static bool holds_idle(const struct arena *arena) { return arena->gives && arena->vmm.mapped > bfc_touched(arena->bfc); }

// What arenas that map their memory themselves have mapped, and what of it cannot be taken since blocks touch it, or since it is
// of a pool or tag.
struct sums {
  uint64_t mapped, touched;
  bool idle;  // an arena but one holds some that can be taken
};

static struct sums sum(const struct gpu *gpu, const struct arena *but) {
  struct sums sums = {0, 0, false};
  for (const struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (!each->takes || each->paused) continue;
    sums.mapped += each->vmm.mapped;
    sums.touched += each->gives ? bfc_touched(each->bfc) : each->vmm.mapped;
    sums.idle |= each != but && holds_idle(each);
  }
  return sums;
}

bool streams_wait(struct gpu *gpu, uint64_t needed) {
  uint64_t bytes = 0;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) bytes += fence_covers(each) ? reclaimable_of(each) : 0;
  return needed > 0 && bytes >= needed && fence_wait(gpu);
}

static void event(struct arena *arena, const struct arena *from, uint64_t bytes, uint64_t frees) {
  char text[32] = "";
  if (from != NULL) snprintf(text, sizeof text, "arena=%u", from->id);
  arena_event(arena, MEMPROF_TAKE, 0, bytes, frees, from == NULL ? 0 : spool_string(text));
}

struct taking {
  struct arena *to, *from;
  uint64_t taken;  // bytes
};

// Takes a range of pages, as far as the driver unmaps them. Each has a handle.
static void take_range(void *self, uint64_t addr, uint64_t bytes) {
  struct taking *taking = self;
  struct vmm *from = &taking->from->vmm;
  // A handle serves another arena only where it is as large as its handles.
  struct vmm *to = taking->to->gives && taking->to->vmm.idle != NULL && taking->to->page == taking->from->page ? &taking->to->vmm : NULL;
  const uint64_t page = taking->from->page;
  for (uint64_t at = addr; at < addr + bytes; at += page) {
    const size_t mapping = vmm_find(from, at);
    if (mapping == from->count || from->mappings[mapping].addr != at || from->mappings[mapping].bytes != page) continue;
    if (vmm_is_registered(from, at, page) || !vmm_pass(from, mapping, to)) continue;
    bfc_unmap(taking->from->bfc, at, page);
    arena_unmapped(taking->from, at, page, 1);
    taking->taken += page;
  }
}

void streams_take(struct arena *arena, uint64_t bytes) {
  if (!arena->takes) return;
  const struct sums sums = sum(arena->gpu, arena);
  uint64_t want = bfc_streams_want(&arena->gpu->streams, bytes, arena->paid, sums.mapped, sums.touched);
  if (want == 0 || !sums.idle) return;
  if (!captures_hold()) {
    event(arena, NULL, want, 0);
    return;
  }
  fence_look(arena->gpu);
  for (struct arena *from = arena->gpu->arenas; from != NULL && want > 0; from = from->next) {
    if (from == arena || !holds_idle(from)) continue;
    struct taking taking = {arena, from, 0};
    event(arena, from, want, from->fence.over);
    bfc_spare(from->bfc, (want + from->page - 1) / from->page, from->fence.over, &taking, take_range);
    want -= taking.taken < want ? taking.taken : want;
    arena->paid += taking.taken;
    bfc_streams_took(&arena->gpu->streams, taking.taken);
  }
  captures_let();
}

void streams_end_iteration(struct gpu *gpu) {
  const struct sums sums = sum(gpu, NULL);
  bfc_streams_end_iteration(&gpu->streams, sums.mapped);
  if (!sums.idle || gpu->arenas->next == NULL || !captures_hold()) return;
  fence_look(gpu);  // the next request that lacks memory finds what the iteration left
  captures_let();
}

// Where the wait is not possible, the arena has the order of the new stream alone, as under torch's own allocator.
void streams_begin(struct arena *arena) {
  if (captures_hold()) {
    if (!lent_wait(arena, arena->end_event)) policy_wait(arena);
    captures_let();
  }
  arena->stream_ended = false;
}

void streams_end(void *stream) {
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL) continue;
    const bool taken = gpu_take(gpu);
    for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
      if (arena->stream != stream || arena->stream_ended) continue;
      arena->stream_ended = true;
      arena->end_event = 0;
      if (!captures_hold()) continue;
      const uint64_t number = lent_record(arena);
      if (arena->lent.events[number % LENT_EVENTS] != NULL) arena->end_event = number;
      captures_let();
    }
    gpu_give(gpu, taken);
  }
}
