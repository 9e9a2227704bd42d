// trim.c - see trim.h.
#define _GNU_SOURCE
#include "arena/trim.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/handles.h"
#include "arena/reclaim.h"
#include "arena/totals.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/options.h"
#include "base/problem.h"
#include "base/thread.h"
#include "device/captures.h"
#include "device/devices.h"

enum { RETRY_US = 500 };  // between two looks at a fence

#define SLICE ((uint64_t)16 << 20)  // bytes that are unmapped while the lock is held once, or a page, if that is more

static _Atomic(uint32_t) wakes;
static _Atomic(uint32_t) followed;  // the wakes after which the trimmer found nothing left to do
static _Atomic bool running;
static struct lock working;  // held while the trimmer calls the driver; from the exit of the process on it stays held

// The first range that bfc_excess finds with a whole handle in it. It is called again after each slice.
struct excess {
  const struct arena *arena;
  uint64_t addr, bytes;
};

static void note_first(void *self, uint64_t addr, uint64_t bytes) {
  struct excess *excess = self;
  if (excess->bytes > 0 || handles_within(excess->arena, addr, bytes) == 0) return;
  excess->addr = addr;
  excess->bytes = bytes;
}

static struct excess excess_of(const struct arena *arena, uint32_t ended) {
  struct excess excess = {.arena = arena};
  bfc_excess(arena->bfc, ended, &excess, note_first);
  return excess;
}

// Ends an iteration in one arena, under the device's lock. When the fence is over, so is all work on what was freed before. True: the
// trimmer has something to do.
static bool end_iteration(struct arena *arena, uint64_t fence) {
  bfc_end_iteration(arena->bfc);
  struct trim *trim = arena->trim;
  if (trim == NULL) return false;
  if (fence != 0) *(trim->now.fence == 0 ? &trim->now : &trim->next) = (struct trim_mark){fence, bfc_ended(arena->bfc)};
  return trim->now.fence != 0;
}

static void start_trimmer(void);

void trim_iteration(void (*mark)(void *self), void *self) {
  struct gpu *gpus[MOST_DEVICES];
  bool wanted = false;
  gpus_hold();  // a device made meanwhile would have this mark in its recording, but not in its arenas
  for (int device = 0; device < MOST_DEVICES; device++) {
    gpus[device] = gpu_existing(device);
    if (gpus[device] == NULL) continue;
    lock_take(&gpus[device]->lock);
    totals_of_gpu(gpus[device]);
  }
  totals_of_process();
  mark(self);
  for (int device = MOST_DEVICES; device-- > 0;) {
    if (gpus[device] == NULL) continue;
    exchange_end_iteration(gpus[device]);
    const uint64_t fence = options_get()->policy.trim == BFC_TRIM_ITERATION ? fence_record(gpus[device]) : 0;
    for (struct arena *arena = gpus[device]->arenas; arena != NULL; arena = arena->next) wanted |= end_iteration(arena, fence);
    lock_give(&gpus[device]->lock);
  }
  gpus_let();
  if (!wanted) return;
  atomic_fetch_add(&wakes, 1);  // before the thread starts, which would trim twice otherwise
  start_trimmer();
  syscall(SYS_futex, &wakes, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

// Unmaps one slice of the pages that are still free and were not used meanwhile. False: none is left, and the next mark's turn has come.
static bool unmap_slice(struct arena *arena) {
  struct trim *trim = arena->trim;
  lock_take(&arena->gpu->lock);
  const struct excess excess = arena->paused ? (struct excess){0} : excess_of(arena, trim->now.ended);
  const bool done = excess.bytes > 0 && handles_release_within(arena, excess.addr, excess.bytes, SLICE) > 0;
  if (!done) *trim = (struct trim){.now = trim->next};
  lock_give(&arena->gpu->lock);
  return done;
}

// Whether the work on what an arena unmaps is over. *waits: it is not.
static bool is_over(struct arena *arena, bool *waits) {
  lock_take(&arena->gpu->lock);
  const uint64_t fence = arena->trim->now.fence;
  const bool over = fence != 0 && fence_over(arena->gpu, fence);
  *waits = fence != 0 && !over;
  lock_give(&arena->gpu->lock);
  return over;
}

// Unmaps what an arena did not use. True: the work is not over, or a thread waits to begin a capture, and the trimmer has
// to come back.
static bool trim_arena(struct arena *arena) {
  bool waits;
  while (is_over(arena, &waits)) {
    do {
      if (captures_count() > 0) return true;
    } while (unmap_slice(arena));
  }
  return waits;
}

// The next arena to trim, after one or from the first. Arenas without a pool never end, so `after` is
// valid without the lock.
static struct arena *next_arena(struct gpu *gpu, const struct arena *after) {
  lock_take(&gpu->lock);
  struct arena *arena = after == NULL ? gpu->arenas : after->next;
  while (arena != NULL && arena->trim == NULL) arena = arena->next;
  lock_give(&gpu->lock);
  return arena;
}

static bool trim_gpu(struct gpu *gpu) {
  struct driver_scope scope;
  if (!driver_enter(gpu->vmm.device, &scope)) return false;
  bool more = false;
  for (struct arena *arena = next_arena(gpu, NULL); arena != NULL; arena = next_arena(gpu, arena)) more |= trim_arena(arena);
  driver_leave(&scope);
  return more;
}

// Since when a device has had no request and no free.
struct activity {
  int64_t count;   // requests and frees so far
  uint64_t since;  // when the count last changed, in nanoseconds of clock_now; 0: not known
  uint64_t fence;  // recorded when it was idle for long enough; 0: it was not so far
  bool trimmed;    // the free memory was unmapped since
};

static int64_t activity_of(struct gpu *gpu) {
  lock_take(&gpu->lock);
  const int64_t count = counter_allocated(&gpu->stats.blocks) + gpu->stats.blocks.freed;
  lock_give(&gpu->lock);
  return count;
}

// Unmaps all free memory of a device that is idle, once nobody can read it any more. Returns the nanoseconds after which to look again.
static uint64_t trim_idle(struct gpu *gpu, struct activity *activity) {
  const uint64_t now = clock_now(), idle = options_get()->policy.idle_ns;
  const int64_t count = activity_of(gpu);
  if (activity->since == 0 || count != activity->count) *activity = (struct activity){.count = count, .since = now};
  if (activity->trimmed) return idle;
  const uint64_t passed = now - activity->since;
  if (passed < idle) return idle - passed;
  lock_take(&gpu->lock);
  if (activity->fence == 0) activity->fence = fence_record(gpu);
  activity->trimmed = activity->fence != 0 && fence_over(gpu, activity->fence);
  if (activity->trimmed && reclaim_can(gpu)) reclaim_clear(gpu, UINT64_MAX, "idle");
  lock_give(&gpu->lock);
  return activity->trimmed ? idle : RETRY_US * 1000;
}

static struct activity activities[MOST_DEVICES];

// Trims all devices. Returns the microseconds after which to do so again; 0: when an iteration ends.
static uint64_t trim_all(void) {
  const enum bfc_trim trim = options_get()->policy.trim;
  uint64_t next_ns = options_get()->policy.idle_ns;
  bool more = false;
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL) continue;
    if (trim == BFC_TRIM_ITERATION) more |= trim_gpu(gpu);
    const uint64_t again = trim == BFC_TRIM_IDLE ? trim_idle(gpu, &activities[device]) : 0;
    if (again < next_ns) next_ns = again;
  }
  if (trim == BFC_TRIM_IDLE) return next_ns / 1000 + 1;
  return more ? RETRY_US : 0;
}

static void *trim(void *nothing) {
  for (;;) {
    const uint32_t seen = atomic_load(&wakes);
    uint64_t wait_us = RETRY_US;
    lock_take(&working);
    if (captures_hold()) {
      wait_us = trim_all();
      captures_let();
    }
    lock_give(&working);
    if (wait_us == 0) {
      atomic_store(&followed, seen);
      // The wake of an iteration that it has followed may come late.
      while (atomic_load(&wakes) == seen) syscall(SYS_futex, &wakes, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, NULL, NULL, 0);
    } else {
      usleep(wait_us < 1000000 ? (useconds_t)wait_us : 999999);
    }
  }
  return nothing;
}

int memprof_trimming(void) { return atomic_load(&running) && atomic_load(&followed) != atomic_load(&wakes); }

// The process exits, and the driver is about to be destroyed: waits until the trimmer is not inside it,
// and keeps it out.
static void stop(void) {
  if (atomic_load(&running)) lock_take(&working);
}

static void register_stop(void) { atexit(stop); }

// Where the system gives no thread, nothing is trimmed before an iteration ends when it does.
static void start_trimmer(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static _Atomic bool reported;
  if (atomic_exchange(&running, true)) return;
  pthread_once(&once, register_stop);
  const int error = thread_start(trim, 0);
  if (error == 0) return;
  atomic_store(&running, false);
  if (!atomic_exchange(&reported, true)) problem("no thread for the trimmer: %s; free memory stays mapped", strerror(error));
}

static void trim_start(void) {
  if (options_get()->policy.trim == BFC_TRIM_IDLE) start_trimmer();
}

static void forget(void) {
  working = (struct lock){0};
  atomic_store(&running, false);
}

HOOK_PART(.order = HOOK_REST, .start = trim_start, .forget = forget);
