// counters.c - counters.h, and the functions of memprof.h for statistics and the limit.
#include "arena/counters.h"

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

static void note(struct counter_pending *pending, const struct counter *live) {
  const int64_t active = live->current + pending->current;
  if (active > pending->peak) pending->peak = active;
}

void counters_note_active(struct counters *counters) {
  note(&counters->pending, &counters->blocks);
  note(&counters->pending_provided, &counters->provided);
  note(&counters->pending_torch_bytes, &counters->torch_bytes);
}

void counters_pend(struct counters *counters, uint64_t requested, uint64_t provided, int sign) {
  counters->pending.current += sign;
  counters->pending_provided.current += sign * (int64_t)provided;
  counters->pending_torch_bytes.current += sign * counters_torch_bytes(requested);
}

void counters_shrunk(struct counters *counters, uint64_t bytes) {
  counter_subtract(&counters->provided, (int64_t)bytes);
  counters_note_inactive(counters);
}

void counters_mapped(struct counters *counters, int64_t bytes, int64_t handles) {
  if (bytes >= 0) {
    counter_add(&counters->reserved, bytes);
    counters_note_inactive(counters);
  } else {
    counter_subtract(&counters->reserved, -bytes);
  }
  if (handles >= 0) {
    counter_add(&counters->segment, handles);
    counters->device_allocs += handles;
  } else {
    counter_subtract(&counters->segment, -handles);
    counters->device_frees -= handles;
  }
}

static void move(struct counter *counter, int64_t amount) {
  counter_add(counter, amount);
  counter->base += amount;
}

static void move_pending(struct counter_pending *pending, int64_t amount) {
  pending->current += amount;
  pending->base += amount;
}

void counters_move(struct counters *counters, const struct counters_moved *moved, int sign) {
  move(&counters->blocks, sign * moved->live.blocks);
  move(&counters->requested, sign * moved->live.requested);
  move(&counters->provided, sign * moved->live.provided);
  move(&counters->torch_bytes, sign * moved->live.torch_bytes);
  move_pending(&counters->pending, sign * moved->pending.blocks);
  move_pending(&counters->pending_provided, sign * moved->pending.provided);
  move_pending(&counters->pending_torch_bytes, sign * moved->pending.torch_bytes);
  move(&counters->reserved, sign * moved->mapped);
  move(&counters->segment, sign * moved->handles);
  counters_note_active(counters);
  counters_note_inactive(counters);
  if (sign > 0) counters->device_allocs += moved->handles;
  if (sign < 0) counters->device_frees += moved->handles;
}

static int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

static struct memprof_stat stat_of(const struct counter *counter) {
  return (struct memprof_stat){counter->current, counter->peak, counter_allocated(counter), counter->freed};
}

// Live and pending. While nothing was pending, their peak was that of live ones.
static struct memprof_stat active_of(const struct counter *live, const struct counter_pending *pending) {
  struct memprof_stat stat = stat_of(live);
  stat.current += pending->current;
  stat.peak = greatest(live->peak, pending->peak);
  stat.freed -= pending->current - pending->base;
  return stat;
}

// Bytes become inactive when they are mapped or can be reused, and cease to be when they are unmapped or handed out.
static struct memprof_stat inactive_of(const struct counters *counters, const struct memprof_stats *stats) {
  return (struct memprof_stat){
      .current = counters_inactive(counters),
      .peak = counters->inactive_peak,
      .allocated = stats->reserved_bytes.allocated + stats->active_bytes.freed,
      .freed = stats->reserved_bytes.freed + stats->active_bytes.allocated,
  };
}

static void fill(struct memprof_stats *stats, const struct counters *counters) {
  *stats = (struct memprof_stats){
      .allocation = stat_of(&counters->blocks),
      .requested_bytes = stat_of(&counters->requested),
      .allocated_bytes = stat_of(&counters->provided),
      .active = active_of(&counters->blocks, &counters->pending),
      .active_bytes = active_of(&counters->provided, &counters->pending_provided),
      .segment = stat_of(&counters->segment),
      .reserved_bytes = stat_of(&counters->reserved),
      .torch_bytes = stat_of(&counters->torch_bytes),
      .torch_active = active_of(&counters->torch_bytes, &counters->pending_torch_bytes),
      .retries = counters->retries,
      .ooms = counters->ooms,
      .device_allocs = counters->device_allocs,
      .device_frees = counters->device_frees,
      .syncs = counters->syncs,
  };
  stats->inactive_bytes = inactive_of(counters, stats);
}

void memprof_get_stats(int device, struct memprof_stats *stats) {
  memset(stats, 0, sizeof *stats);
  if (device_valid(device)) stats->syncs = atomic_load(&early_syncs[device]);
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  const int64_t early = stats->syncs;
  const bool taken = gpu_take(gpu);
  fill(stats, &gpu->stats);
  gpu_give(gpu, taken);
  stats->syncs += early;
}

struct counters_totals counters_totals(const struct counters *counters) {
  const struct counters_totals *apart = &counters->apart;
  return (struct counters_totals){
      .requests = apart->requests + counter_allocated(&counters->blocks),
      .requested = apart->requested + counter_allocated(&counters->requested),
      .frees = apart->frees + counters->blocks.freed,
      .freed = apart->freed + counters->requested.freed,
  };
}

static void each(struct counters *counters, void (*change)(struct counter *counter)) {
  struct counter *all[] = {
      &counters->blocks, &counters->requested, &counters->provided, &counters->torch_bytes, &counters->segment, &counters->reserved,
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) change(all[i]);
}

static void each_pending(struct counters *counters, void (*change)(struct counter_pending *pending)) {
  change(&counters->pending);
  change(&counters->pending_provided);
  change(&counters->pending_torch_bytes);
}

static void reset_peak(struct counter *counter) { counter->peak = counter->current; }

static void forget_pending_peak(struct counter_pending *pending) { pending->peak = 0; }

static void reset_sums(struct counter *counter) {
  counter->base = counter->current;
  counter->freed = 0;
}

static void reset_pending_sums(struct counter_pending *pending) { pending->base = pending->current; }

void memprof_reset_peak(int device) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
  each(&gpu->stats, reset_peak);
  each_pending(&gpu->stats, forget_pending_peak);
  counters_note_active(&gpu->stats);
  gpu->stats.inactive_peak = counters_inactive(&gpu->stats);
  lock_give(&gpu->lock);
}

void memprof_reset_accumulated(int device) {
  if (device_valid(device)) atomic_store(&early_syncs[device], 0);
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
  gpu->stats.apart = counters_totals(&gpu->stats);
  each(&gpu->stats, reset_sums);
  each_pending(&gpu->stats, reset_pending_sums);
  struct counters *counters = &gpu->stats;
  counters->retries = counters->ooms = counters->device_allocs = counters->device_frees = counters->syncs = 0;
  lock_give(&gpu->lock);
}
