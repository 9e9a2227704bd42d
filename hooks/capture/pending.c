// pending.c - see pending.h.
#include "pending.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"

enum { DISABLE_TIMING = 2 };

static bool capturing(void *stream) {
  int status = 0;
  return driver_get()->stream_capturing(stream, &status) == DRIVER_OK && status != 0;
}

static bool any_capturing(const struct pending_entry *entry) {
  for (uint32_t i = 0; i < entry->uses->count; i++) {
    if (capturing(entry->uses->streams[i])) return true;
  }
  return false;
}

bool pending_use(struct arena *arena, uint64_t addr, void *stream) {
  struct bfc_block block;
  if (stream == arena->stream || !bfc_find(arena->bfc, addr, &block)) return false;
  const uint64_t note = bfc_note(arena->bfc, block.chunk);
  if (note & 1) return false;  // already freed
  struct stream_uses *uses = (struct stream_uses *)(uintptr_t)note;
  const uint32_t count = uses == NULL ? 0 : uses->count;
  for (uint32_t i = 0; i < count; i++) {
    if (uses->streams[i] == stream) return true;
  }
  const bool first = uses == NULL;
  if (first || count == uses->capacity) {
    const uint32_t capacity = count == 0 ? 2 : 2 * count;
    struct stream_uses *larger = realloc(uses, sizeof *larger + capacity * sizeof *larger->streams);
    if (larger == NULL) return false;
    larger->count = count;
    larger->capacity = capacity;
    if (first) arena->noted++;
    uses = larger;
    bfc_set_note(arena->bfc, block.chunk, (uint64_t)(uintptr_t)uses);
  }
  uses->streams[uses->count++] = stream;
  return true;
}

static void forget(struct pending_entry *entry) {
  for (uint32_t i = 0; entry->events != NULL && i < entry->uses->count; i++) driver_get()->event_destroy(entry->events[i]);
  free(entry->events);
  free(entry->uses);
}

// Records the entry's events; false where it has to be tried again.
static bool record(struct arena *arena, struct pending_entry *entry) {
  const struct driver *driver = driver_get();
  if (any_capturing(entry)) return false;
  driver_event *events = calloc(entry->uses->count, sizeof *events);
  if (events == NULL) return false;
  struct driver_scope scope;
  if (!driver_enter(arena->gpu->vmm.device, &scope)) {
    free(events);
    return false;
  }
  uint32_t made = 0;
  for (; made < entry->uses->count; made++) {
    if (driver->event_create(&events[made], DISABLE_TIMING) != DRIVER_OK) break;
    if (driver->event_record(events[made], entry->uses->streams[made]) != DRIVER_OK) {
      driver->event_destroy(events[made]);
      break;
    }
  }
  driver_leave(&scope);
  if (made == entry->uses->count) {
    entry->events = events;
    return true;
  }
  while (made > 0) driver->event_destroy(events[--made]);
  free(events);
  return false;
}

static bool make_room(struct pending *pending) {
  if (pending->first + pending->count < pending->capacity) return true;
  if (pending->first > pending->capacity / 2) {
    memmove(pending->entries, pending->entries + pending->first, pending->count * sizeof *pending->entries);
    pending->first = 0;
    return true;
  }
  const size_t larger = pending->capacity == 0 ? 64 : 2 * pending->capacity;
  struct pending_entry *moved = realloc(pending->entries, larger * sizeof *moved);
  if (moved == NULL) return false;
  pending->entries = moved;
  pending->capacity = larger;
  return true;
}

bool pending_add(struct arena *arena, uint64_t addr, struct stream_uses *uses) {
  struct pending *pending = &arena->pending;
  if (!make_room(pending)) {
    driver_synchronize(arena->gpu->vmm.device);
    arena->gpu->stats.syncs++;
    free(uses);
    return false;
  }
  struct pending_entry *entry = &pending->entries[pending->first + pending->count++];
  *entry = (struct pending_entry){.addr = addr, .uses = uses};
  record(arena, entry);
  return true;
}

static bool complete(struct arena *arena, struct pending_entry *entry) {
  if (entry->events == NULL && !record(arena, entry)) return false;
  if (any_capturing(entry)) return false;
  for (uint32_t i = 0; i < entry->uses->count; i++) {
    // Anything but "not ready" means that there is nothing to wait for any more: a
    // driver that is shutting down, a stream that was destroyed with its work done.
    if (driver_get()->event_query(entry->events[i]) == DRIVER_NOT_READY) return false;
  }
  return true;
}

void pending_poll(struct arena *arena, bool wait) {
  struct pending *pending = &arena->pending;
  if (pending->count == 0) return;
  if (wait) {
    driver_synchronize(arena->gpu->vmm.device);
    arena->gpu->stats.syncs++;
  }
  while (pending->count > 0) {
    if (!complete(arena, &pending->entries[pending->first])) return;
    struct pending_entry entry = pending->entries[pending->first];
    pending->first++;
    if (--pending->count == 0) pending->first = 0;
    forget(&entry);
    arena_free_done(arena, entry.addr);
  }
}
