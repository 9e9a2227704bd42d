// fence.c - see fence.h.
#include "arena/fence.h"

#include "arena/arena.h"
#include "device/captures.h"
#include "device/devices.h"

static struct fence_slot *slot_of(struct gpu *gpu, uint64_t number) { return &gpu->fences.slots[number % FENCES]; }

// The contexts in which work may use the device's memory: its own, and those of its peers. 0: they are too many.
static size_t contexts_of(const struct gpu *gpu, void *out[DRIVER_CONTEXTS]) {
  size_t count = driver_contexts(gpu->vmm.device, out, DRIVER_CONTEXTS);
  for (int peer = 0; peer < MOST_DEVICES && count <= DRIVER_CONTEXTS; peer++) {
    if (gpu->vmm.peers >> peer & 1) count += driver_contexts(peer, out + count, DRIVER_CONTEXTS - count);
  }
  return count <= DRIVER_CONTEXTS ? count : 0;
}

static void drop_event(struct fence_event *event) {
  if (event->event != NULL) driver_get()->event_destroy(event->event);
  *event = (struct fence_event){0};
}

static bool record_in(struct fence_event *event, void *context) {
  enum { NO_TIMING = 2 };
  const struct driver *driver = driver_get();
  if (event->context != context) drop_event(event);
  if (driver->context_push(context) != DRIVER_OK) return false;
  event->context = context;
  event->over = false;
  if (event->event == NULL && driver->event_create(&event->event, NO_TIMING) != DRIVER_OK) event->event = NULL;
  const bool ok = event->event != NULL && driver->context_record(context, event->event) == DRIVER_OK;
  driver->context_pop(&context);
  return ok;
}

// Records the events of the next fence, with captures held back.
static bool record_events(struct gpu *gpu, struct fence_slot *slot) {
  void *contexts[DRIVER_CONTEXTS];
  const size_t count = driver_get()->context_record == NULL ? 0 : contexts_of(gpu, contexts);
  slot->count = 0;
  for (size_t i = 0; i < count; i++) {
    if (!record_in(&slot->events[i], contexts[i])) return false;
  }
  slot->count = count;
  return count > 0;
}

// The next fence has what is freed by now behind it.
static uint64_t next(struct gpu *gpu) {
  struct fences *fences = &gpu->fences;
  const uint64_t number = ++fences->recorded;
  fences->frees = gpu->frees;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) each->fence.frees[number % FENCES] = bfc_frees(each->bfc);
  return number;
}

// `alone`: also where no event tells its end.
static uint64_t record(struct gpu *gpu, bool alone) {
  struct fences *fences = &gpu->fences;
  if (fences->recorded - fences->over == FENCES || !captures_hold()) return 0;
  const bool ok = record_events(gpu, slot_of(gpu, fences->recorded + 1)) || alone;
  captures_let();
  return ok ? next(gpu) : 0;
}

uint64_t fence_record(struct gpu *gpu) {
  const struct fences *fences = &gpu->fences;
  return fences->recorded > 0 && fences->frees == gpu->frees ? fences->recorded : record(gpu, false);
}

uint64_t fence_force(struct gpu *gpu) { return record(gpu, true); }

// All fences up to that number are over.
static void set_over(struct gpu *gpu, uint64_t number) {
  struct fences *fences = &gpu->fences;
  if (number <= fences->over) return;
  fences->over = number;
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) {
    const uint64_t frees = each->fence.frees[number % FENCES];
    if (frees <= each->fence.over) continue;
    each->fence.over = frees;
    bfc_over(each->bfc, frees);
    arena_event(each, MEMPROF_FENCE, 0, 0, frees, 0);
  }
}

static bool is_over(struct fence_slot *slot) {
  for (size_t i = 0; i < slot->count; i++) {
    struct fence_event *event = &slot->events[i];
    if (!event->over) event->over = event->event == NULL || driver_get()->event_query(event->event) == DRIVER_OK;
    if (!event->over) return false;
  }
  return slot->count > 0;
}

// The last fence that is over. One without events is when a later one is.
static uint64_t last_over(struct gpu *gpu) {
  uint64_t over = gpu->fences.over;
  for (uint64_t number = over + 1; number <= gpu->fences.recorded; number++) {
    struct fence_slot *slot = slot_of(gpu, number);
    if (is_over(slot)) over = number;
    if (over < number && slot->count > 0) break;
  }
  return over;
}

bool fence_over(struct gpu *gpu, uint64_t number) {
  struct fences *fences = &gpu->fences;
  uint64_t over = fences->over;
  struct driver_scope scope;
  if (over == fences->recorded || !captures_hold()) return over >= number;
  if (driver_enter(gpu->vmm.device, &scope)) {
    over = last_over(gpu);
    driver_leave(&scope);
  }
  captures_let();
  set_over(gpu, over);
  return over >= number;
}

void fence_look(struct gpu *gpu) {
  if (gpu->fences.looked) return;
  gpu->fences.looked = true;
  if (!fence_over(gpu, gpu->fences.recorded) && gpu->fences.frees == gpu->frees) return;
  fence_over(gpu, fence_record(gpu));
}

bool fence_clear(const struct arena *arena) { return arena->fence.over >= bfc_frees(arena->bfc); }

// Without the lock. The events are not destroyed while their fence is under way, but in a context that ends.
static bool wait_for(int device, const struct fence_slot *slot) {
  const struct driver *driver = driver_get();
  const int mode = driver_relax();
  bool ok = true;
  if (slot->count == 0 || driver->event_synchronize == NULL) ok = driver_synchronize(device);
  for (size_t i = 0; ok && i < slot->count && driver->event_synchronize != NULL; i++) {
    ok = slot->events[i].over || driver->event_synchronize(slot->events[i].event) == DRIVER_OK;
  }
  driver_restrict(mode);
  return ok;
}

bool fence_wait(struct gpu *gpu) {
  if (!captures_hold()) return false;
  uint64_t number = fence_force(gpu);
  const struct fence_slot slot = number == 0 ? (struct fence_slot){0} : *slot_of(gpu, number);
  if (number == 0) number = gpu->fences.recorded;  // too many are under way: the device is waited for
  captures_let();
  gpu->stats.syncs++;
  struct driver_scope scope;
  lock_give(&gpu->lock);
  const bool entered = driver_enter(gpu->vmm.device, &scope);
  const bool ok = entered && wait_for(gpu->vmm.device, &slot);
  if (entered) driver_leave(&scope);
  lock_take(&gpu->lock);
  if (ok) set_over(gpu, number);
  return ok;
}

bool fence_wait_for_all(void) {
  bool ok = true;
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_lock(device);
    if (gpu == NULL) continue;
    ok &= fence_wait(gpu);
    lock_give(&gpu->lock);
  }
  return ok;
}

void fence_context_gone(void *context) {
  driver_context_gone(context);
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL) continue;
    const bool taken = gpu_take(gpu);
    for (size_t i = 0; i < (size_t)FENCES * DRIVER_CONTEXTS; i++) {
      struct fence_event *event = &gpu->fences.slots[i / DRIVER_CONTEXTS].events[i % DRIVER_CONTEXTS];
      if (event->context == context) *event = (struct fence_event){.over = true};
    }
    gpu_give(gpu, taken);
  }
}

void fence_device_reset(int device) {
  void *contexts[DRIVER_CONTEXTS];
  const size_t count = driver_contexts(device, contexts, DRIVER_CONTEXTS);
  for (size_t i = 0; i < count && i < DRIVER_CONTEXTS; i++) fence_context_gone(contexts[i]);
}
