// host.c - see host.h.
#include "device/host.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/lock.h"
#include "base/options.h"
#include "device/driver.h"

static struct lock lock;
static void **idle;  // pinned slabs that are not in use
static size_t idle_count, idle_room;
static uint64_t slabs_in_use;

static uint64_t slabs_of(uint64_t bytes) { return (bytes + HOST_SLAB - 1) / HOST_SLAB; }

static bool may_grow(void) {
  const uint64_t limit = options_get()->backup_limit;
  return limit == 0 || (slabs_in_use + idle_count + 1) * (uint64_t)HOST_SLAB <= limit;
}

static void *take_slab(void) {
  void *slab = NULL;
  if (idle_count > 0) {
    slab = idle[--idle_count];
  } else if (!may_grow() || driver_get()->host_alloc == NULL || driver_get()->host_alloc(&slab, HOST_SLAB, 0) != DRIVER_OK) {
    return NULL;
  }
  slabs_in_use++;
  return slab;
}

static void give_slab(void *slab) {
  slabs_in_use--;
  if (array_reserve(&idle, &idle_room, idle_count + 1, sizeof *idle)) {
    idle[idle_count++] = slab;
  } else {
    driver_get()->host_free(slab);
  }
}

bool host_take(struct host_room *room, uint64_t bytes) {
  const size_t wanted = (size_t)slabs_of(bytes);
  *room = (struct host_room){.slabs = calloc(wanted == 0 ? 1 : wanted, sizeof *room->slabs)};
  if (room->slabs == NULL) return false;
  lock_take(&lock);
  while (room->count < wanted && (room->slabs[room->count] = take_slab()) != NULL) room->count++;
  lock_give(&lock);
  if (room->count == wanted) return true;
  host_give(room);
  return false;
}

void host_give(struct host_room *room) {
  lock_take(&lock);
  for (size_t i = 0; i < room->count; i++) give_slab(room->slabs[i]);
  lock_give(&lock);
  free(room->slabs);
  *room = (struct host_room){0};
}

// How many bytes of [place, place + rest), from place on, lie in one slab, and where (*host).
static uint64_t part_of(const struct host_room *room, uint64_t place, uint64_t rest, char **host) {
  const uint64_t inside = place % HOST_SLAB;
  *host = (char *)room->slabs[place / HOST_SLAB] + inside;
  return rest < HOST_SLAB - inside ? rest : HOST_SLAB - inside;
}

bool host_copy_out(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream) {
  char *host;
  for (uint64_t done = 0, piece; done < bytes; done += piece) {
    piece = part_of(room, place + done, bytes - done, &host);
    if (driver_get()->copy_out(host, addr + done, piece, stream) != DRIVER_OK) return false;
  }
  return true;
}

bool host_copy_in(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream) {
  char *host;
  for (uint64_t done = 0, piece; done < bytes; done += piece) {
    piece = part_of(room, place + done, bytes - done, &host);
    if (driver_get()->copy_in(addr + done, host, piece, stream) != DRIVER_OK) return false;
  }
  return true;
}

void host_prepare(uint64_t bytes) {
  struct host_room room;
  if (host_take(&room, bytes)) host_give(&room);
}

void host_usage(uint64_t *kept, uint64_t *used) {
  lock_take(&lock);
  *used = slabs_in_use * (uint64_t)HOST_SLAB;
  *kept = *used + idle_count * (uint64_t)HOST_SLAB;
  lock_give(&lock);
}
