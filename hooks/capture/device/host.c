// host.c - see host.h.
#define _GNU_SOURCE
#include "device/host.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/array.h"
#include "base/lock.h"
#include "base/options.h"
#include "device/driver.h"
#include "device/file.h"

enum { OF_ALL_CONTEXTS = 1 };  // a flag of host_register

static struct lock lock;
static void **idle;  // pinned slabs that are not in use
static size_t idle_count, idle_room;
static uint64_t in_use;  // bytes of all rooms but files

static bool may_grow(uint64_t bytes) {
  const uint64_t limit = options_get()->backup_limit;
  return limit == 0 || in_use + idle_count * (uint64_t)HOST_SLAB + bytes <= limit;
}

static void *map(uint64_t bytes) {
  void *piece = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return piece == MAP_FAILED ? NULL : piece;
}

// Filling huge pages and registering them takes less than half as long as what the driver itself allocates. A child of
// fork() does not need them; if it shared them, a write of the parent would move its data to pages that the GPU does not read.
static void *pin(uint64_t bytes) {
  const struct driver *driver = driver_get();
  void *piece = driver->host_register == NULL || driver->host_unregister == NULL ? NULL : map(bytes);
  if (piece != NULL) {
    madvise(piece, bytes, MADV_HUGEPAGE);
    madvise(piece, bytes, MADV_DONTFORK);
    if (driver->host_register(piece, bytes, OF_ALL_CONTEXTS) == DRIVER_OK) return piece;
    munmap(piece, bytes);
  }
  return driver->host_alloc != NULL && driver->host_alloc(&piece, bytes, 0) == DRIVER_OK ? piece : NULL;
}

static void unpin(void *piece, uint64_t bytes) {
  const struct driver *driver = driver_get();
  if (driver->host_unregister != NULL && driver->host_unregister(piece) == DRIVER_OK) {
    munmap(piece, bytes);
  } else {
    driver->host_free(piece);
  }
}

static void drop_idle(void) {
  while (idle_count > 0) unpin(idle[--idle_count], HOST_SLAB);
}

static void *take_new(enum host_kind kind, uint64_t bytes) { return !may_grow(bytes) ? NULL : kind == HOST_PAGEABLE ? map(bytes) : pin(bytes); }

// Where the system or the limit has no room for a piece, slabs without use give way.
static void *take_piece(enum host_kind kind, uint64_t bytes) {
  if (kind == HOST_FILE) return file_map(bytes);
  void *piece = kind == HOST_SLABS && idle_count > 0 ? idle[--idle_count] : take_new(kind, bytes);
  if (piece == NULL && idle_count > 0) {
    drop_idle();
    piece = take_new(kind, bytes);
  }
  if (piece != NULL) in_use += bytes;
  return piece;
}

static void give_piece(enum host_kind kind, void *piece, uint64_t bytes) {
  if (kind != HOST_FILE) in_use -= bytes;
  if (kind == HOST_PAGEABLE || kind == HOST_FILE) {
    munmap(piece, bytes);
  } else if (kind == HOST_SLABS && array_reserve(&idle, &idle_room, idle_count + 1, sizeof *idle)) {
    idle[idle_count++] = piece;
  } else {
    unpin(piece, bytes);
  }
}

bool host_take(struct host_room *room, enum host_kind kind, uint64_t bytes) {
  enum { PAGE = 4096 };
  const uint64_t piece = kind == HOST_SLABS ? HOST_SLAB : (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
  const size_t wanted = bytes == 0 ? 0 : kind == HOST_SLABS ? (size_t)((bytes + HOST_SLAB - 1) / HOST_SLAB) : 1;
  *room = (struct host_room){.kind = kind, .piece = piece, .pieces = calloc(wanted == 0 ? 1 : wanted, sizeof *room->pieces)};
  if (room->pieces == NULL) return false;
  lock_take(&lock);
  while (room->count < wanted && (room->pieces[room->count] = take_piece(kind, piece)) != NULL) room->count++;
  lock_give(&lock);
  if (room->count == wanted) return true;
  host_give(room);
  return false;
}

void host_give(struct host_room *room) {
  lock_take(&lock);
  for (size_t i = 0; i < room->count; i++) give_piece(room->kind, room->pieces[i], room->piece);
  lock_give(&lock);
  free(room->pieces);
  *room = (struct host_room){0};
}

uint64_t host_bytes(const struct host_room *room) { return room->count * room->piece; }

// The part of [place, place + rest) that lies in one piece, and where.
static uint64_t part_of(const struct host_room *room, uint64_t place, uint64_t rest, char **host) {
  const uint64_t inside = place % room->piece;
  *host = (char *)room->pieces[place / room->piece] + inside;
  return rest < room->piece - inside ? rest : room->piece - inside;
}

void *host_at(const struct host_room *room, uint64_t place, uint64_t bytes) {
  char *host;
  if (place + bytes > host_bytes(room)) return NULL;
  return part_of(room, place, bytes, &host) == bytes ? host : NULL;
}

static bool copy(bool out, const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream) {
  const struct driver *driver = driver_get();
  char *host;
  for (uint64_t done = 0, part; done < bytes; done += part) {
    part = part_of(room, place + done, bytes - done, &host);
    if ((out ? driver->copy_out(host, addr + done, part, stream) : driver->copy_in(addr + done, host, part, stream)) != DRIVER_OK) return false;
  }
  return true;
}

bool host_copy_out(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream) { return copy(true, room, place, addr, bytes, stream); }

bool host_copy_in(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream) { return copy(false, room, place, addr, bytes, stream); }

bool host_write(const struct host_room *room) { return room->kind != HOST_FILE || room->count == 0 || file_write(room->pieces[0], room->piece); }

void host_usage(uint64_t *kept, uint64_t *used) {
  lock_take(&lock);
  *used = in_use;
  *kept = in_use + idle_count * (uint64_t)HOST_SLAB;
  lock_give(&lock);
}
