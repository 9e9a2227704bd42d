// host.c - see host.h.
#include "host.h"

#include <stdlib.h>

#include "driver.h"
#include "lock.h"
#include "options.h"

static struct lock lock;
static void **idle;  // slabs that nobody uses
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
  if (idle_count == idle_room) {
    const size_t larger = idle_room == 0 ? 64 : 2 * idle_room;
    void **moved = realloc(idle, larger * sizeof *moved);
    if (moved == NULL) {
      driver_get()->host_free(slab);
      return;
    }
    idle = moved;
    idle_room = larger;
  }
  idle[idle_count++] = slab;
}

bool host_take(struct host_copy *copy, uint64_t addr, uint64_t bytes) {
  const size_t wanted = (size_t)slabs_of(bytes);
  *copy = (struct host_copy){.addr = addr, .bytes = bytes, .slabs = calloc(wanted == 0 ? 1 : wanted, sizeof *copy->slabs)};
  if (copy->slabs == NULL) return false;
  lock_take(&lock);
  while (copy->count < wanted && (copy->slabs[copy->count] = take_slab()) != NULL) copy->count++;
  lock_give(&lock);
  if (copy->count == wanted) return true;
  host_give(copy);
  return false;
}

void host_give(struct host_copy *copy) {
  lock_take(&lock);
  for (size_t i = 0; i < copy->count; i++) give_slab(copy->slabs[i]);
  lock_give(&lock);
  free(copy->slabs);
  *copy = (struct host_copy){0};
}

static uint64_t piece_of(const struct host_copy *copy, size_t slab) {
  const uint64_t rest = copy->bytes - slab * (uint64_t)HOST_SLAB;
  return rest < HOST_SLAB ? rest : HOST_SLAB;
}

bool host_copy_out(const struct host_copy *copy, void *stream) {
  for (size_t i = 0; i < copy->count; i++) {
    const uint64_t from = copy->addr + i * (uint64_t)HOST_SLAB;
    if (driver_get()->copy_out(copy->slabs[i], from, piece_of(copy, i), stream) != DRIVER_OK) return false;
  }
  return true;
}

bool host_copy_in(const struct host_copy *copy, uint64_t from, uint64_t to, void *stream) {
  for (size_t i = 0; i < copy->count; i++) {
    const uint64_t slab = copy->addr + i * (uint64_t)HOST_SLAB, slab_end = slab + piece_of(copy, i);
    const uint64_t first = from > slab ? from : slab, last = to < slab_end ? to : slab_end;
    if (first >= last) continue;
    if (driver_get()->copy_in(first, (const char *)copy->slabs[i] + (first - slab), last - first, stream) != DRIVER_OK) return false;
  }
  return true;
}

void host_prepare(uint64_t bytes) {
  struct host_copy copy;
  if (host_take(&copy, 0, bytes)) host_give(&copy);
}

void host_usage(uint64_t *kept, uint64_t *used) {
  lock_take(&lock);
  *used = slabs_in_use * (uint64_t)HOST_SLAB;
  *kept = *used + idle_count * (uint64_t)HOST_SLAB;
  lock_give(&lock);
}
