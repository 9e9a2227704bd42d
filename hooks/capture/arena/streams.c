// streams.c - see streams.h.
#include "arena/streams.h"

#include <stdio.h>

#include "arena/graph_memory.h"
#include "arena/reclaim.h"
#include "base/options.h"
#include "device/captures.h"
#include "device/devices.h"
#include "spool/spool.h"

// The handle of each thread's own default stream.
#define PER_THREAD ((void *)2)

// Whether work on what the arena holds free is over when its stream is done. A graph uses free memory of its pool on any stream, and the
// handle of a thread's default stream stands for other streams in other threads.
static bool follows_stream(const struct arena *arena) {
  return arena->home == NULL && arena->tag == NULL && arena->stream != PER_THREAD;
}

void streams_join(struct arena *arena, const struct bfc_arena_policy *policy) {
  const bool maps = source_of(arena) == NULL && (arena->home == NULL || arena->home->range == NULL);
  arena->takes = maps && options_get()->policy.growth == BFC_PAGES;
  arena->gives = maps && follows_stream(arena) && policy->policy.growth == BFC_PAGES;
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

static bool idle(struct arena *arena) {
  struct driver_scope scope;
  if (arena->stream_ended || driver_get()->stream_query == NULL || !driver_enter(arena->gpu->vmm.device, &scope)) return false;
  int capturing = 0;
  const bool over = driver_get()->stream_capturing(arena->stream, &capturing) == DRIVER_OK && capturing == 0 &&
                    driver_get()->stream_query(arena->stream) == DRIVER_OK;
  driver_leave(&scope);
  return over;
}

// How many frees of the arena, from the first on, are over: the work that had been queued when each was made. Captures are
// held back. Where the stream is busy, an event is recorded, which a later request asks for.
static uint64_t frees_over(struct arena *arena) {
  const uint64_t frees = bfc_frees(arena->bfc);
  struct lent *lent = &arena->lent;
  if (idle(arena)) {
    lent->over = lent->last;
    return lent->over_frees = frees;
  }
  lent_look(arena);
  if (!arena->stream_ended && (lent->last == 0 || lent->frees[lent->last % LENT_EVENTS] < frees)) lent_record(arena);
  return lent->over_frees;
}

// Waits for what was queued on the arena's stream, until it was destroyed if it was. False: it cannot be waited for.
static bool wait_for(struct arena *arena) {
  return lent_wait(arena, arena->stream_ended ? arena->end_event : lent_record(arena));
}

// The same without a wait.
static bool is_over(struct arena *arena) {
  if (!arena->stream_ended) return idle(arena);
  lent_look(arena);
  return arena->end_event != 0 && arena->end_event <= arena->lent.over;
}

static uint64_t note_over(struct arena *arena, bool over) {
  arena->over = over;
  return over ? reclaimable_of(arena) : 0;
}

static bool left(const struct arena *arena) { return follows_stream(arena) && !arena->over && reclaimable_of(arena) > 0; }

bool streams_wait(struct gpu *gpu, struct arena *first, uint64_t needed, uint64_t wanted) {
  uint64_t all = 0, bytes = 0;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    each->over = false;
    all += follows_stream(each) ? reclaimable_of(each) : 0;
  }
  if (needed == 0 || all < needed) return false;
  for (struct arena *each = gpu->arenas; each != NULL && bytes < wanted; each = each->next) {
    // Also one without a free handle: it may have some when its blocks have lost their slack.
    if (follows_stream(each)) bytes += note_over(each, is_over(each));
  }
  if (bytes < needed && left(first)) bytes += note_over(first, wait_for(first));
  for (struct arena *each = gpu->arenas; each != NULL && bytes < needed; each = each->next) {
    if (left(each)) bytes += note_over(each, wait_for(each));
  }
  return bytes >= needed;
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
  for (struct arena *from = arena->gpu->arenas; from != NULL && want > 0; from = from->next) {
    if (from == arena || !holds_idle(from)) continue;
    struct taking taking = {arena, from, 0};
    const uint64_t over = frees_over(from);
    event(arena, from, want, over);
    bfc_spare(from->bfc, (want + from->page - 1) / from->page, over, &taking, take_range);
    want -= taking.taken < want ? taking.taken : want;
    arena->paid += taking.taken;
    bfc_streams_took(&arena->gpu->streams, taking.taken);
  }
  captures_let();
}

void streams_end_iteration(struct gpu *gpu) {
  bfc_streams_end_iteration(&gpu->streams, sum(gpu, NULL).mapped);
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
      arena->end_event = lent_record(arena);
      captures_let();
    }
    gpu_give(gpu, taken);
  }
}
