// counters.c - the functions of memprof.h for statistics and the limit.
#include <stdatomic.h>
#include <string.h>

#include "arena/arena.h"
#include "base/hook.h"
#include "device/devices.h"
#include "memprof.h"

void memprof_set_limit(int device, uint64_t bytes) {
  struct gpu *gpu = hook_on() ? gpu_get(device) : NULL;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  gpu->limit = bytes;
  lock_give(&gpu->lock);
}

uint64_t memprof_limit(int device) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return 0;
  const bool taken = gpu_take(gpu);
  const uint64_t limit = gpu->limit;
  gpu_give(gpu, taken);
  return limit;
}

uint64_t memprof_largest_free(int device) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return 0;
  uint64_t largest = 0;
  const bool taken = gpu_take(gpu);
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    const uint64_t bytes = bfc_largest_free(arena->bfc);
    if (bytes > largest) largest = bytes;
  }
  gpu_give(gpu, taken);
  return largest;
}

// Of devices that have no arena yet: calls of memprof_empty_cache since the last reset.
static _Atomic int64_t early_syncs[MOST_DEVICES];

void counters_early_sync(int device) {
  if (device_valid(device)) atomic_fetch_add(&early_syncs[device], 1);
}

void memprof_get_stats(int device, struct memprof_stats *stats) {
  memset(stats, 0, sizeof *stats);
  if (device_valid(device)) stats->syncs = atomic_load(&early_syncs[device]);
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  const int64_t early = stats->syncs;
  const bool taken = gpu_take(gpu);
  *stats = gpu->stats;
  gpu_give(gpu, taken);
  stats->syncs += early;
}

static void each(struct memprof_stats *stats, void (*change)(struct memprof_stat *stat)) {
  struct memprof_stat *all[] = {
      &stats->allocation,   &stats->requested_bytes, &stats->allocated_bytes, &stats->active,
      &stats->active_bytes, &stats->segment,         &stats->reserved_bytes,  &stats->inactive_bytes,
      &stats->torch_bytes,  &stats->torch_active,
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) change(all[i]);
}

static void reset_peak(struct memprof_stat *stat) { stat->peak = stat->current; }

static void reset_accumulated(struct memprof_stat *stat) { stat->allocated = stat->freed = 0; }

void memprof_reset_peak(int device) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  each(&gpu->stats, reset_peak);
  lock_give(&gpu->lock);
}

void memprof_reset_accumulated(int device) {
  if (device_valid(device)) atomic_store(&early_syncs[device], 0);
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  each(&gpu->stats, reset_accumulated);
  struct memprof_stats *stats = &gpu->stats;
  stats->retries = stats->ooms = stats->device_allocs = stats->device_frees = stats->syncs = 0;
  lock_give(&gpu->lock);
}
