// exchange.c - see exchange.h.
#include "arena/exchange.h"

#include <stdio.h>

#include "arena/arena.h"
#include "arena/handles.h"
#include "base/options.h"
#include "device/captures.h"
#include "device/devices.h"
#include "spool/spool.h"

// Waits for the device, once a request. False: a stream is captured, or the driver refused.
static bool wait_for_device(struct arena *arena) {
  struct gpu *gpu = arena->gpu;
  if (!captures_hold()) return false;
  if (!gpu->waited) {
    gpu->stats.syncs++;
    gpu->waited = driver_synchronize(gpu->vmm.device);
    if (gpu->waited) fence_waited(gpu);
  }
  captures_let();
  return gpu->waited;
}

// Second addresses.

// Waits until what was queued is over, before pages got second addresses under that number, on the arena's stream, and on all others
// that have arenas. Others are waited for only for a while: then the order of the arena's stream has to do, as for a block that torch's
// own allocator reuses.
static bool wait_for_streams(struct arena *arena, uint64_t number) {
  if (!lent_wait(arena, number)) return false;
  if (!fence_alone(arena)) fence_wait_for(arena->gpu, lent_fence(arena, number));
  return true;
}

// vmm.idle: an old mapping goes. Where it is not known whether its work is over, the device is waited for.
static bool old_mapping_goes(void *self, uint64_t number) {
  struct arena *arena = self;
  if (!captures_hold()) return false;
  const bool over = wait_for_streams(arena, number) || wait_for_device(arena);
  captures_let();
  return over;
}

// Notes what is queued before the request under way maps pages at second addresses. Returns its number.
static uint64_t note_queued(struct arena *arena) {
  const uint64_t number = lent_record(arena);
  if (!fence_alone(arena)) lent_set_fence(arena, number, fence_next(arena->gpu));
  return number;
}

// The pages' mappings stay, so that nothing is waited for.
static bool move_pages(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  struct vmm *vmm = &arena->memory.vmm;
  if (handles_within(arena, addr, bytes) != bytes || !captures_hold()) return false;
  if (!arena->exchange.moving) vmm->lent = note_queued(arena);
  arena->exchange.moving = true;
  captures_let();
  const size_t first = vmm_find(vmm, addr), last = vmm_find(vmm, addr + bytes);
  if (!vmm_lend(vmm, first, last)) return false;
  arena->exchange.paid += bytes;
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

// Where the driver maps no page twice: kernels may still be running on what was freed in stream order, so the device is waited for.
static bool unmap_pages(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  struct vmm *vmm = &arena->memory.vmm;
  if (handles_within(arena, addr, bytes) != bytes || !wait_for_device(arena)) return false;
  const size_t first = vmm_find(vmm, addr), last = vmm_find(vmm, addr + bytes);
  vmm_release(vmm, first, last);
  arena->exchange.paid += bytes;
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

bool (*exchange_try_unmap(const struct bfc_arena_policy *policy))(void *, uint64_t, uint64_t) {
  if (policy->options.growth != BFC_PAGES) return NULL;
  return driver_get()->lends ? move_pages : unmap_pages;
}

void exchange_begin(struct arena *arena) {
  struct exchange *exchange = &arena->exchange;
  arena->gpu->waited = exchange->moving = false;
  exchange->paid = arena->gpu->patient_until = 0;
  if (!exchange->stream_ended) return;
  // A new stream has the handle of one that was destroyed: its memory may still be in use. Where the wait is not possible, the arena
  // has the order of the new stream alone, as under torch's own allocator.
  if (captures_hold()) {
    if (!lent_wait(arena, exchange->end_event)) wait_for_device(arena);
    captures_let();
  }
  exchange->stream_ended = false;
}

void exchange_end(struct arena *arena) {
  if (arena->memory.vmm.loose_count > 0 && wait_for_device(arena)) vmm_release_lent(&arena->memory.vmm);
}

void exchange_mapped(struct arena *arena, uint64_t bytes) {
  uint64_t *paid = &arena->exchange.paid;
  *paid -= bytes < *paid ? bytes : *paid;
}

// What the request has moved may still be used at its old addresses.
int64_t exchange_undo(struct arena *arena, uint64_t addr, uint64_t bytes) {
  struct vmm *vmm = &arena->memory.vmm;
  const size_t first = vmm_find(vmm, addr), last = vmm_find(vmm, addr + bytes);
  if (vmm->idle == NULL || !vmm_lend(vmm, first, last)) {
    if (vmm->idle != NULL) wait_for_device(arena);
    vmm_release(vmm, first, last);
  }
  arena->exchange.paid += bytes;
  return (int64_t)(last - first);
}

// Other arenas.

void exchange_join(struct arena *arena, const struct bfc_arena_policy *policy) {
  const bool maps = arena->memory.kind->maps, pages = policy->options.growth == BFC_PAGES;
  arena->exchange.takes = maps && options_get()->policy.preset == BFC_COMPACT;
  arena->exchange.gives = maps && fence_covers(arena) && pages;
  if (maps && pages && driver_get()->lends) arena->memory.vmm.idle = old_mapping_goes;
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

bool exchange_wait(struct gpu *gpu, uint64_t needed) {
  uint64_t bytes = 0;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) bytes += fence_covers(each) ? handles_free(each) : 0;
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
  struct vmm *from = &taking->from->memory.vmm;
  // A handle serves another arena only where it is as large as its handles.
  struct vmm *to = taking->to->exchange.gives && taking->to->memory.vmm.idle != NULL && taking->to->memory.page == taking->from->memory.page ? &taking->to->memory.vmm : NULL;
  const uint64_t page = taking->from->memory.page;
  for (uint64_t at = addr; at < addr + bytes; at += page) {
    const size_t mapping = vmm_find(from, at);
    if (mapping == from->count || from->mappings[mapping].addr != at || from->mappings[mapping].bytes != page) continue;
    if (vmm_is_registered(from, at, page) || !vmm_pass(from, mapping, to)) continue;
    bfc_unmap(taking->from->bfc, at, page);
    arena_unmapped(taking->from, at, page, 1);
    taking->taken += page;
  }
}

void exchange_take(struct arena *arena, uint64_t bytes) {
  if (!arena->exchange.takes) return;
  const struct sums sums = sum(arena->gpu, arena);
  uint64_t want = bfc_streams_want(&arena->gpu->streams, bytes, arena->exchange.paid, sums.mapped, sums.touched);
  if (want == 0 || !sums.idle) return;
  if (!captures_hold()) {
    event(arena, NULL, want, 0);
    return;
  }
  fence_look(arena->gpu);
  for (struct arena *from = arena->gpu->arenas; from != NULL && want > 0; from = from->next) {
    if (from == arena || !holds_idle(from)) continue;
    struct taking taking = {arena, from, 0};
    event(arena, from, want, from->exchange.fence.over);
    bfc_spare(from->bfc, (want + from->memory.page - 1) / from->memory.page, from->exchange.fence.over, &taking, take_range);
    want -= taking.taken < want ? taking.taken : want;
    arena->exchange.paid += taking.taken;
    bfc_streams_took(&arena->gpu->streams, taking.taken);
  }
  captures_let();
}

void exchange_end_iteration(struct gpu *gpu) {
  const struct sums sums = sum(gpu, NULL);
  bfc_streams_end_iteration(&gpu->streams, sums.mapped);
  if (!sums.idle || gpu->arenas->next == NULL || !captures_hold()) return;
  fence_look(gpu);  // the next request that lacks memory finds what the iteration left
  captures_let();
}

void exchange_stream_ends(void *stream) {
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL) continue;
    const bool taken = gpu_take(gpu);
    for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
      if (arena->stream != stream || arena->exchange.stream_ended) continue;
      arena->exchange.stream_ended = true;
      arena->exchange.end_event = 0;
      if (!captures_hold()) continue;
      const uint64_t number = lent_record(arena);
      if (arena->exchange.lent.events[number % LENT_EVENTS] != NULL) arena->exchange.end_event = number;
      captures_let();
    }
    gpu_give(gpu, taken);
  }
}
