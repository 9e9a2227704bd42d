// reclaim.c - see reclaim.h.
#include "arena/reclaim.h"

#include "arena/exchange.h"
#include "arena/handles.h"
#include "arena/shortage.h"
#include "arena/source.h"
#include "base/options.h"
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

static bool releases(struct gpu *gpu, const struct arena *arena) {
  if (arena_pinned(arena)) return false;
  return arena->home == NULL || arena->home->uses > 0 || pool_quiet(gpu, arena->home);
}

static uint64_t release_clear(struct gpu *gpu, uint64_t wanted) {
  uint64_t given = 0;
  for (struct arena *each = gpu->arenas; each != NULL && given < wanted; each = each->next) {
    if (releases(gpu, each)) handles_release(each, wanted, &given);
  }
  return given;
}

// Frees pending blocks whose streams are done.
static void poll_pending(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) pending_poll(each, true);
  fence_over(gpu, fence_record(gpu));  // what was pending is free by now
}

// Without the lock, since a source may wait for other threads.
static void give_back_to_sources(struct gpu *gpu) {
  lock_give(&gpu->lock);
  source_give_back();
  lock_take(&gpu->lock);
}

// Whether no amount of free memory can serve a request: it exceeds the device, its arena's limit, or what live
// blocks leave of the limit that the program has set. It begins no shortage, since programs make such requests to
// find out how much they can get.
static bool hopeless(const struct gpu *gpu, const struct arena *arena, uint64_t requested) {
  const bool limited = arena != NULL && arena->stream == NULL && arena->home == NULL && arena->tag == NULL;
  const uint64_t limit = options_get()->policy.limit, live = (uint64_t)gpu->stats.requested.current;
  return requested > gpu->vmm.total || (limited && limit != 0 && requested > limit) || (gpu->limit != 0 && live + requested > gpu->limit);
}

static void event(const struct gpu *gpu, const struct arena *arena, uint64_t requested, const char *why) {
  spool_write(&(struct spool_event){
      .kind = MEMPROF_RECLAIM,
      .device = gpu->vmm.device,
      .arena = arena == NULL ? MEMPROF_NO_ARENA : arena->id,
      .stream = arena == NULL ? 0 : (int64_t)(intptr_t)arena->stream,
      .requested = requested,
      .context = spool_string(why),
  });
}

bool reclaim_can(const struct gpu *gpu) { return anything_pending(gpu) || reclaimable(gpu) > 0 || pool_waits(gpu); }

uint64_t reclaim_clear(struct gpu *gpu, uint64_t wanted, const char *why) {
  event(gpu, NULL, 0, why);
  poll_pending(gpu);
  return release_clear(gpu, wanted);
}

uint64_t reclaim(struct gpu *gpu, struct arena *arena, uint64_t requested, uint64_t wanted, const char *why, bool *retry) {
  const bool shortage = requested > 0 && !hopeless(gpu, arena, requested) && shortage_due(gpu);
  *retry = shortage || reclaim_can(gpu);
  if (!*retry) return 0;
  event(gpu, arena, requested, why);
  if (arena != NULL) exchange_end(arena);
  if (shortage) shortage_begin(gpu);
  fence_over(gpu, fence_record(gpu));
  uint64_t given = release_clear(gpu, wanted);
  if (given < wanted && fence_wait(gpu)) {
    event(gpu, NULL, requested, "waited");  // what unmaps after other threads' events is still of a reclaim
    poll_pending(gpu);
    pool_sweep(gpu);
    given += release_clear(gpu, wanted - given);
    give_back_to_sources(gpu);  // last: other threads' events come between
  }
  return given;
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
