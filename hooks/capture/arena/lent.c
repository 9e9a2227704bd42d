// lent.c - see lent.h.
#include "arena/lent.h"

#include "arena/arena.h"
#include "arena/pending.h"

static driver_event *event_of(struct lent *lent, uint64_t number) { return &lent->events[number % LENT_EVENTS]; }

static void destroy(driver_event *event) {
  if (*event != NULL) driver_get()->event_destroy(*event);
  *event = NULL;
}

void lent_set_fence(struct arena *arena, uint64_t number, uint64_t fence) { arena->lent.fences[number % LENT_EVENTS] = fence; }

// Later fences have more before them: that of an event that was replaced is at most that of the oldest one.
uint64_t lent_fence(const struct arena *arena, uint64_t number) {
  const struct lent *lent = &arena->lent;
  if (lent->last >= LENT_EVENTS && number <= lent->last - LENT_EVENTS) number = lent->last - LENT_EVENTS + 1;
  return lent->fences[number % LENT_EVENTS];
}

// Takes the next number, whose event is recorded if `recorded`.
static uint64_t next(struct arena *arena, bool recorded) {
  struct lent *lent = &arena->lent;
  struct driver_scope scope;
  driver_event *event = event_of(lent, ++lent->last);
  lent_set_fence(arena, lent->last, arena->gpu->fences + 1);
  if (!driver_enter(arena->gpu->vmm.device, &scope)) {
    *event = NULL;  // the old one is lost with the device's context
    return lent->last;
  }
  destroy(event);
  if (recorded && !pending_mark(arena->stream, event)) *event = NULL;
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
  struct lent *lent = &arena->lent;
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
  struct lent *lent = &arena->lent;
  struct driver_scope scope;
  if (lent->over == lent->last || !driver_enter(arena->gpu->vmm.device, &scope)) return;
  for (uint64_t number = lent->last; number > lent->over && number + LENT_EVENTS > lent->last; number--) {
    if (*event_of(lent, number) == NULL || driver_get()->event_query(*event_of(lent, number)) != DRIVER_OK) continue;
    lent->over = number;
    break;
  }
  driver_leave(&scope);
}

uint64_t lent_none(struct arena *arena) { return arena->lent.over = next(arena, false); }

void lent_waited(struct arena *arena) { arena->lent.over = arena->lent.last; }

void lent_drop(struct arena *arena) {
  struct driver_scope scope;
  if (arena->lent.last == 0 || !driver_enter(arena->gpu->vmm.device, &scope)) return;
  for (int i = 0; i < LENT_EVENTS; i++) destroy(&arena->lent.events[i]);
  driver_leave(&scope);
}
