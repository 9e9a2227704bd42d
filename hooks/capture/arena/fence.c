// fence.c - see fence.h.
#define _GNU_SOURCE
#include "arena/fence.h"

#include <unistd.h>

#include "arena/arena.h"
#include "base/clock.h"

// The handle of each thread's own default stream.
#define PER_THREAD ((void *)2)

enum { LOOK_US = 50 };  // between two looks at a fence

uint64_t fence_patience = 50000000;

// Whether the arena's stream can be asked.
static bool known(const struct arena *arena) { return arena->stream != PER_THREAD && (!arena->exchange.stream_ended || arena->exchange.end_event != 0); }

bool fence_covers(const struct arena *arena) { return arena->home == NULL && arena->tag == NULL && known(arena); }

// Whether an arena of a pool or tag needs no event of its own, since another one stands for the same stream.
static bool repeats(const struct arena *arena) {
  bool before = true;
  for (const struct arena *each = arena->gpu->arenas; each != NULL; each = each->next) {
    if (each == arena)
      before = false;
    else if (each->stream == arena->stream && each->exchange.stream_ended == arena->exchange.stream_ended && known(each) == known(arena) && (before || fence_covers(each)))
      return true;
  }
  return false;
}

static bool asked(const struct arena *arena) { return fence_covers(arena) || !repeats(arena); }

// Whether the stream of an arena has nothing queued.
static bool idle(struct arena *arena) {
  struct driver_scope scope;
  if (!known(arena)) return false;
  if (arena->exchange.stream_ended) {
    lent_look(arena);
    return arena->exchange.end_event <= arena->exchange.lent.over;
  }
  if (driver_get()->stream_query == NULL || !driver_enter(arena->gpu->vmm.device, &scope)) return false;
  int capturing = 0;
  const bool over = driver_get()->stream_capturing(arena->stream, &capturing) == DRIVER_OK && capturing == 0 &&
                    driver_get()->stream_query(arena->stream) == DRIVER_OK;
  driver_leave(&scope);
  return over;
}

static bool all_idle(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (asked(each) && !idle(each)) return false;
  }
  return true;
}

// All that was queued so far is over: also what was to be before the next fence.
static void all_over(struct gpu *gpu) {
  gpu->fenced = false;
  gpu->fences_over = ++gpu->fences;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    each->exchange.fence.event = 0;
    if (fence_covers(each)) each->exchange.fence.over = bfc_frees(each->bfc);
  }
}

void fence_waited(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    lent_waited(each);
    if (each->exchange.stream_ended && each->exchange.end_event == 0) each->exchange.end_event = lent_none(each);
  }
  all_over(gpu);
}

// Whether the fence is over. If it is, so is what its arenas had freed before it.
static bool look(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (each->exchange.fence.event == 0) continue;
    lent_look(each);
    if (each->exchange.lent.over < each->exchange.fence.event) return false;
  }
  gpu->fenced = false;
  gpu->fences_over = gpu->fences;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (each->exchange.fence.event != 0) each->exchange.fence.over = each->exchange.fence.frees;
    each->exchange.fence.event = 0;
  }
  return true;
}

// Records an event on the arena's stream, or takes the one that was recorded when the stream was destroyed. 0: the driver refused, or
// the stream is captured or cannot be asked.
static uint64_t record(struct arena *arena) {
  if (!known(arena)) return 0;
  if (arena->exchange.stream_ended) return arena->exchange.end_event;
  const uint64_t number = lent_record(arena);
  return arena->exchange.lent.events[number % LENT_EVENTS] == NULL ? 0 : number;
}

static void raise_fence(struct gpu *gpu) {
  gpu->fenced = true;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    const bool is_asked = asked(each);
    each->exchange.fence.event = gpu->fenced && is_asked ? record(each) : 0;
    each->exchange.fence.frees = bfc_frees(each->bfc);
    if (is_asked && each->exchange.fence.event == 0) gpu->fenced = false;  // one stream is missing: there is no fence
  }
  if (gpu->fenced) gpu->fences++;
  gpu->fence_frees = gpu->frees;
}

bool fence_look(struct gpu *gpu) {
  if (all_idle(gpu)) {
    all_over(gpu);
    return true;
  }
  if (gpu->fenced && !look(gpu)) return false;
  raise_fence(gpu);
  return gpu->fenced;
}

uint64_t fence_next(struct gpu *gpu) {
  const bool last = fence_look(gpu) || (gpu->fenced && gpu->fence_frees == gpu->frees);
  return gpu->fences + !last;
}

bool fence_wait(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (asked(each) && !idle(each) && !lent_wait(each, record(each))) return false;
  }
  all_over(gpu);
  return true;
}

void fence_wait_for(struct gpu *gpu, uint64_t number) {
  if (gpu->fences_over >= number) return;
  if (gpu->patient_until == 0) gpu->patient_until = clock_now() + fence_patience;
  fence_look(gpu);
  while (gpu->fences_over < number && gpu->fenced && clock_now() < gpu->patient_until) {
    usleep(LOOK_US);
    fence_look(gpu);
  }
}

bool fence_alone(const struct arena *arena) {
  for (const struct arena *each = arena->gpu->arenas; each != NULL; each = each->next) {
    if (each->stream != arena->stream || each->exchange.stream_ended || !known(each)) return false;
  }
  return true;
}
