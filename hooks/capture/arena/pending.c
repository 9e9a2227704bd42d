// pending.c - see pending.h.
#include "arena/pending.h"

#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/problem.h"
#include "device/captures.h"

enum {
  DISABLE_TIMING = 2,
  LOOK_AHEAD = 64,  // the most entries that a poll finds unfinished before it stops, so that a request does not pay for a long queue
};

static bool stream_captured(void *stream) {
  int status = 0;
  return driver_get()->stream_capturing(stream, &status) == DRIVER_OK && status != 0;
}

// Records a new event in the stream's own context, which may be another device's. The three default
// streams are those of the device that is current. False: the driver refused.
static bool stream_record(void *stream, driver_event *event) {
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

// Whether a stream of an entry is being captured, also by a capture that began before the hook was there
// to count it.
static bool any_capturing(const struct pending_entry *entry) {
  if (capturing()) return true;
  for (uint32_t i = 0; i < entry->uses->count; i++) {
    if (stream_captured(entry->uses->streams[i])) return true;
  }
  return false;
}

// Where there was no host memory to note on which other streams a block is used: it may be used on any.
static struct stream_uses anywhere;

void pending_forget_uses(struct stream_uses *uses) {
  if (uses != &anywhere) free(uses);
}

bool pending_use(struct arena *arena, uint64_t addr, void *stream) {
  struct bfc_block block;
  if (stream == arena->stream || !bfc_find(arena->bfc, addr, &block)) return false;
  const uint64_t note = bfc_note(arena->bfc, block.chunk);
  if (note & 1) return false;  // already freed
  struct stream_uses *uses = (struct stream_uses *)(uintptr_t)note;
  if (uses == &anywhere) return false;
  const uint32_t count = uses == NULL ? 0 : uses->count;
  for (uint32_t i = 0; i < count; i++) {
    if (uses->streams[i] == stream) return false;
  }
  const bool first = uses == NULL;
  if (first || count == uses->capacity) {
    const uint32_t capacity = count == 0 ? 2 : 2 * count;
    struct stream_uses *larger = realloc(uses, sizeof *larger + capacity * sizeof *larger->streams);
    if (first) arena->noted++;
    if (larger == NULL) {
      free(uses);
      bfc_set_note(arena->bfc, block.chunk, (uint64_t)(uintptr_t)&anywhere);
      return true;
    }
    larger->count = count;
    larger->capacity = capacity;
    uses = larger;
    bfc_set_note(arena->bfc, block.chunk, (uint64_t)(uintptr_t)uses);
  }
  uses->streams[uses->count++] = stream;
  return true;
}

static void forget(struct pending_entry *entry) {
  for (uint32_t i = 0; entry->events != NULL && i < entry->uses->count; i++) driver_get()->event_destroy(entry->events[i]);
  free(entry->events);
  pending_forget_uses(entry->uses);
}

// Records the entry's events. False: it has to be tried again later. The device is current.
static bool record(struct pending_entry *entry) {
  if (any_capturing(entry)) return false;
  driver_event *events = calloc(entry->uses->count, sizeof *events);
  if (events == NULL) return false;
  uint32_t made = 0;
  while (made < entry->uses->count && stream_record(entry->uses->streams[made], &events[made])) made++;
  if (made == entry->uses->count) {
    entry->events = events;
    return true;
  }
  while (made > 0) driver_get()->event_destroy(events[--made]);
  free(events);
  return false;
}

static bool make_room(struct pending *pending) {
  if (pending->first + pending->count < pending->room) return true;
  if (pending->first > pending->room / 2) {
    memmove(pending->entries, pending->entries + pending->first, pending->count * sizeof *pending->entries);
    pending->first = 0;
    return true;
  }
  return array_reserve(&pending->entries, &pending->room, pending->first + pending->count + 1, sizeof *pending->entries);
}

void pending_add(struct arena *arena, uint64_t addr, struct stream_uses *uses) {
  struct pending *pending = &arena->pending;
  if (!make_room(pending)) {
    pending_forget_uses(uses);
    problem("no host memory to note that block %#llx is in use; it stays reserved until the job ends", (unsigned long long)addr);
    return;
  }
  struct pending_entry *entry = &pending->entries[pending->first + pending->count++];
  *entry = (struct pending_entry){.addr = addr, .uses = uses};
  struct driver_scope scope;
  if (uses == &anywhere || !captures_hold()) return;  // a stream whose capture begins meanwhile would have the event in its graph
  if (driver_enter(arena->gpu->vmm.device, &scope)) {
    record(entry);
    driver_leave(&scope);
  }
  captures_let();
}

// Streams that one poll has found to be still working, so that each is queried once.
struct busy {
  size_t count;
  void *streams[LOOK_AHEAD];
};

static bool is_busy(const struct busy *busy, void *stream) {
  for (size_t i = 0; i < busy->count; i++) {
    if (busy->streams[i] == stream) return true;
  }
  return false;
}

// Whether the driver's answer about an event may become another: the work is under way, or a capture that the hook does not know of
// forbids the question. With any other error it does not know the event any more.
static bool may_be_busy(driver_result result) {
  return result == DRIVER_NOT_READY || (result >= DRIVER_CAPTURE_FIRST && result <= DRIVER_CAPTURE_LAST);
}

// Gives an entry a fence in place of events. False: none can be recorded by now.
static bool fence(struct gpu *gpu, struct pending_entry *entry) {
  if (any_capturing(entry)) return false;
  entry->fence = fence_record(gpu);  // behind its free
  if (entry->fence == 0) entry->fence = fence_force(gpu);
  return entry->fence != 0;
}

// Whether an entry has what tells its end. The driver refuses events of a stream that was destroyed before the free.
static bool has_end(struct gpu *gpu, struct pending_entry *entry) {
  return entry->events != NULL || entry->fence != 0 || (entry->uses != &anywhere && record(entry)) || fence(gpu, entry);
}

// Whether all streams of an entry are done. The device is current.
static bool complete(struct gpu *gpu, struct pending_entry *entry, struct busy *busy) {
  if (!has_end(gpu, entry)) return false;
  if (entry->fence != 0) return fence_over(gpu, entry->fence);
  for (uint32_t i = 0; i < entry->uses->count; i++) {
    void *stream = entry->uses->streams[i];
    if (is_busy(busy, stream)) return false;
    const driver_result result = driver_get()->event_query(entry->events[i]);
    if (result == DRIVER_OK) continue;
    if (!may_be_busy(result)) return fence(gpu, entry) && fence_over(gpu, entry->fence);
    if (busy->count < LOOK_AHEAD) busy->streams[busy->count++] = stream;
    return false;
  }
  return true;
}

// Takes entry `at`, counted from the oldest, out of the queue and frees its block.
static void finish(struct arena *arena, size_t at) {
  struct pending *pending = &arena->pending;
  struct pending_entry *oldest = &pending->entries[pending->first];
  struct pending_entry entry = oldest[at];
  memmove(oldest + 1, oldest, at * sizeof *oldest);
  pending->first++;
  if (--pending->count == 0) pending->first = 0;
  forget(&entry);
  arena_free_done(arena, entry.addr);
}

void pending_poll(struct arena *arena, bool all) {
  struct driver_scope scope;
  if (arena->pending.count == 0 || !captures_hold()) return;
  if (!driver_enter(arena->gpu->vmm.device, &scope)) {
    captures_let();
    return;
  }
  struct busy busy = {0};
  for (size_t stay = 0; stay < arena->pending.count && (all || stay < LOOK_AHEAD);) {
    if (complete(arena->gpu, &arena->pending.entries[arena->pending.first + stay], &busy))
      finish(arena, stay);
    else
      stay++;
  }
  driver_leave(&scope);
  captures_let();
}
