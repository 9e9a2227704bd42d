// reclaim.c - see reclaim.h.
#include "arena/reclaim.h"

#include "arena/exchange.h"
#include "arena/handles.h"
#include "arena/shortage.h"
#include "base/options.h"
#include "device/captures.h"
#include "spool/spool.h"

static uint64_t reclaimable(const struct gpu *gpu) {
  uint64_t sum = 0;
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) sum += handles_free(arena);
  return sum;
}

static bool anything_pending(const struct gpu *gpu) {
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (arena->pending.count > 0) return true;
  }
  return false;
}

// Waits for the device, since kernels may still use what was freed in stream order, and holds captures back.
// False: it cannot be waited for, so that nothing can be unmapped; then captures are not held.
static bool wait_for(struct gpu *gpu) {
  if (!captures_hold()) return false;
  gpu->stats.syncs++;
  if (driver_synchronize(gpu->vmm.device)) {
    fence_waited(gpu);
    return true;
  }
  captures_let();
  return false;
}

// What was waited for.
enum waited { NOTHING, STREAMS, DEVICE };

// Waits for as little as a request needs for a second attempt: for streams whose arenas hold what it lacks beyond what can be
// mapped as it is, or else for the device. Then captures are held back.
static enum waited wait_enough(struct gpu *gpu, struct arena *arena, uint64_t wanted) {
  if (arena != NULL && wanted != UINT64_MAX && captures_hold()) {
    const uint64_t room = arena_room(arena);
    if (exchange_wait(gpu, wanted > room ? wanted - room : 0)) return STREAMS;
    captures_let();
  }
  return wait_for(gpu) ? DEVICE : NOTHING;
}

// Releases what a request lent during a capture, when nothing could be waited for, and did not map.
static void release_lent(struct arena *arena, uint64_t *given) {
  *given += arena->memory.vmm.loose_bytes;
  vmm_release_lent(&arena->memory.vmm);
}

static uint64_t release_free(struct gpu *gpu, uint64_t wanted, enum waited waited) {
  uint64_t given = 0;
  for (struct arena *each = gpu->arenas; each != NULL && given < wanted; each = each->next) {
    if (arena_pinned(each) || (waited != DEVICE && !fence_covers(each))) continue;
    release_lent(each, &given);
    handles_release(each, wanted, &given);
  }
  return given;
}

// The device was waited for: frees pending blocks and ends pools.
static void finish_pending(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) pending_poll(each, true);
  pool_sweep(gpu);
}

// Whether no amount of free memory can serve a request: it exceeds the device, its arena's limit, or what live
// blocks leave of the limit that the program has set. It begins no shortage, since programs make such requests to
// find out how much they can get.
static bool hopeless(const struct gpu *gpu, const struct arena *arena, uint64_t requested) {
  const bool limited = arena != NULL && arena->stream == NULL && arena->home == NULL && arena->tag == NULL;
  const uint64_t limit = options_get()->policy.limit, live = (uint64_t)gpu->stats.requested.current;
  return requested > gpu->vmm.total || (limited && limit != 0 && requested > limit) || (gpu->limit != 0 && live + requested > gpu->limit);
}

uint64_t reclaim(struct gpu *gpu, struct arena *arena, uint64_t requested, uint64_t wanted, const char *why, bool *retry) {
  const bool shortage = requested > 0 && !hopeless(gpu, arena, requested) && shortage_due(gpu);
  *retry = shortage || anything_pending(gpu) || reclaimable(gpu) > 0 || pool_waits(gpu);
  if (!*retry) return 0;
  // This comes before the event, which announces a second attempt: without the wait there may be none.
  const enum waited waited = wait_enough(gpu, arena, wanted);
  *retry = waited != NOTHING || shortage;
  if (!*retry) return 0;
  spool_write(&(struct spool_event){
      .kind = MEMPROF_RECLAIM,
      .device = gpu->vmm.device,
      .arena = arena == NULL ? MEMPROF_NO_ARENA : arena->id,
      .stream = arena == NULL ? 0 : (int64_t)(intptr_t)arena->stream,
      .requested = requested,
      .context = spool_string(waited == STREAMS ? "streams" : why),
  });
  if (waited == DEVICE) finish_pending(gpu);
  if (shortage) shortage_begin(gpu);
  if (waited == NOTHING) return 0;
  captures_let();  // what was free when the device or the streams had finished may be unmapped during a capture
  return release_free(gpu, wanted, waited);
}

uint64_t reclaim_lack(const struct gpu *gpu, uint64_t bytes) {
  const uint64_t above = gpu->limit != 0 && gpu->mapped > gpu->limit ? gpu->mapped - gpu->limit : 0;
  return above + bytes + gpu->vmm.granularity;
}

bool reclaim_for_other_library(int device, uint64_t bytes) {
  struct gpu *gpu = gpu_existing(device);
  if (gpu == NULL) return false;
  uint64_t free_bytes, total;
  driver_memory(device, &free_bytes, &total);
  bool retry;
  lock_take(&gpu->lock);
  // A page more than the device lacks, since the driver rounds the other library's request up.
  const uint64_t lack = (bytes > free_bytes ? bytes - free_bytes : 0) + gpu->vmm.granularity;
  const uint64_t given = reclaim(gpu, NULL, bytes, lack, "foreign", &retry);
  lock_give(&gpu->lock);
  return given > 0;
}
