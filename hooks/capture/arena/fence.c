// fence.c - see fence.h.
#include "arena/fence.h"

#include "arena/arena.h"

// The handle of each thread's own default stream.
#define PER_THREAD ((void *)2)

bool fence_covers(const struct arena *arena) {
  const bool known = !arena->stream_ended || arena->end_event != 0;
  return arena->home == NULL && arena->tag == NULL && arena->stream != PER_THREAD && known;
}

// Whether the stream of an arena has nothing queued.
static bool idle(struct arena *arena) {
  struct driver_scope scope;
  if (arena->stream_ended) {
    lent_look(arena);
    return arena->end_event <= arena->lent.over;
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
    if (fence_covers(each) && !idle(each)) return false;
  }
  return true;
}

// All that was queued so far is over.
static void all_over(struct gpu *gpu) {
  gpu->fenced = false;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    each->fence.event = 0;
    if (fence_covers(each)) each->fence.over = bfc_frees(each->bfc);
  }
}

// Whether the fence is over. If it is, so is what its arenas had freed before it.
static bool look(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (each->fence.event == 0) continue;
    lent_look(each);
    if (each->lent.over < each->fence.event) return false;
  }
  gpu->fenced = false;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (each->fence.event != 0) each->fence.over = each->fence.frees;
    each->fence.event = 0;
  }
  return true;
}

// Records an event on the arena's stream, or takes the one that was recorded when the stream was destroyed. 0: the driver refused, or
// the stream is captured.
static uint64_t record(struct arena *arena) {
  if (arena->stream_ended) return arena->end_event;
  const uint64_t number = lent_record(arena);
  return arena->lent.events[number % LENT_EVENTS] == NULL ? 0 : number;
}

static void raise_fence(struct gpu *gpu) {
  gpu->fenced = true;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    each->fence.event = gpu->fenced && fence_covers(each) ? record(each) : 0;
    each->fence.frees = bfc_frees(each->bfc);
    if (fence_covers(each) && each->fence.event == 0) gpu->fenced = false;  // one stream is missing: there is no fence
  }
}

void fence_look(struct gpu *gpu) {
  if (all_idle(gpu))
    all_over(gpu);
  else if (!gpu->fenced || look(gpu))
    raise_fence(gpu);
}

bool fence_wait(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    if (fence_covers(each) && !idle(each) && !lent_wait(each, record(each))) return false;
  }
  all_over(gpu);
  return true;
}
