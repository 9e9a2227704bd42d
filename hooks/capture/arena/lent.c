// lent.c - see lent.h.
#include "arena/lent.h"

#include "arena/arena.h"

enum { DISABLE_TIMING = 2 };

bool stream_captured(void *stream) {
  int status = 0;
  return driver_get()->stream_capturing(stream, &status) == DRIVER_OK && status != 0;
}

// An event of the stream's own context, which may be another device's. The three default
// streams are those of the device that is current.
bool stream_record(void *stream, driver_event *event) {
  const struct driver *driver = driver_get();
  void *context = NULL;
  const bool pushed = (uintptr_t)stream > 2 && driver->stream_context(stream, &context) == DRIVER_OK && driver->context_push(context) == DRIVER_OK;
  bool ok = driver->event_create(event, DISABLE_TIMING) == DRIVER_OK;
  if (ok && driver->event_record(*event, stream) != DRIVER_OK) {
    driver->event_destroy(*event);
    ok = false;
  }
  if (pushed) driver->context_pop(&context);
  return ok;
}

static driver_event *event_of(struct lent *lent, uint64_t number) { return &lent->events[number % LENT_EVENTS]; }

static void destroy(driver_event *event) {
  if (*event != NULL) driver_get()->event_destroy(*event);
  *event = NULL;
}

void lent_set_fence(struct arena *arena, uint64_t number, uint64_t fence) { arena->exchange.lent.fences[number % LENT_EVENTS] = fence; }

// Later fences have more before them: that of an event that was replaced is at most that of the oldest one.
uint64_t lent_fence(const struct arena *arena, uint64_t number) {
  const struct lent *lent = &arena->exchange.lent;
  if (lent->last >= LENT_EVENTS && number <= lent->last - LENT_EVENTS) number = lent->last - LENT_EVENTS + 1;
  return lent->fences[number % LENT_EVENTS];
}

// Takes the next number, whose event is recorded if `recorded`.
static uint64_t next(struct arena *arena, bool recorded) {
  struct lent *lent = &arena->exchange.lent;
  struct driver_scope scope;
  driver_event *event = event_of(lent, ++lent->last);
  lent_set_fence(arena, lent->last, arena->gpu->fences + 1);
  if (!driver_enter(arena->gpu->vmm.device, &scope)) {
    *event = NULL;  // the old one is lost with the device's context
    return lent->last;
  }
  destroy(event);
  if (recorded && (stream_captured(arena->stream) || !stream_record(arena->stream, event))) *event = NULL;
  driver_leave(&scope);
  return lent->last;
}

uint64_t lent_record(struct arena *arena) { return next(arena, true); }

static bool over(driver_event event) {
  const struct driver *driver = driver_get();
  if (driver->event_query(event) == DRIVER_OK) return true;
  return driver->event_synchronize != NULL && driver->event_synchronize(event) == DRIVER_OK;
}

bool lent_wait(struct arena *arena, uint64_t number) {
  struct lent *lent = &arena->exchange.lent;
  if (number == 0) return false;
  if (number <= lent->over) return true;
  struct driver_scope scope;
  if (!driver_enter(arena->gpu->vmm.device, &scope)) return false;
  // Older events were replaced. A later one is over only if those before it are.
  if (lent->last >= LENT_EVENTS && number <= lent->last - LENT_EVENTS) number = lent->last - LENT_EVENTS + 1;
  while (number <= lent->last && *event_of(lent, number) == NULL) number++;
  const bool waited = number <= lent->last && over(*event_of(lent, number));
  if (waited) lent->over = number;
  driver_leave(&scope);
  return waited;
}

void lent_look(struct arena *arena) {
  struct lent *lent = &arena->exchange.lent;
  struct driver_scope scope;
  if (lent->over == lent->last || !driver_enter(arena->gpu->vmm.device, &scope)) return;
  for (uint64_t number = lent->last; number > lent->over && number + LENT_EVENTS > lent->last; number--) {
    if (*event_of(lent, number) == NULL || driver_get()->event_query(*event_of(lent, number)) != DRIVER_OK) continue;
    lent->over = number;
    break;
  }
  driver_leave(&scope);
}

uint64_t lent_none(struct arena *arena) { return arena->exchange.lent.over = next(arena, false); }

void lent_waited(struct arena *arena) { arena->exchange.lent.over = arena->exchange.lent.last; }

void lent_drop(struct arena *arena) {
  struct driver_scope scope;
  if (arena->exchange.lent.last == 0 || !driver_enter(arena->gpu->vmm.device, &scope)) return;
  for (int i = 0; i < LENT_EVENTS; i++) destroy(&arena->exchange.lent.events[i]);
  driver_leave(&scope);
}
