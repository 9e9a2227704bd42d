// backup.c - see backup.h.
#include "arena/backup.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"

enum { NON_BLOCKING = 1 };

void byte_ranges_append(struct byte_ranges *to, uint64_t addr, uint64_t bytes) {
  struct byte_range *last = to->count > 0 ? &to->list[to->count - 1] : NULL;
  if (last != NULL && !to->apart && last->addr + last->bytes == addr) {
    last->bytes += bytes;
    return;
  }
  if (array_reserve(&to->list, &to->room, to->count + 1, sizeof *to->list)) {
    to->list[to->count++] = (struct byte_range){addr, bytes};
  } else {
    to->short_of_memory = true;
  }
}

static int mode_of(const struct arena *arena) { return arena->tag == NULL ? MEMPROF_RESTORE_NONE : atomic_load(&arena->tag->restore); }

bool backup_wanted(const struct arena *arena) {
  const int mode = mode_of(arena);
  return mode == MEMPROF_RESTORE_HOST || mode == MEMPROF_RESTORE_PINNED || mode == MEMPROF_RESTORE_PAGEABLE || mode == MEMPROF_RESTORE_DISK;
}

static void append_live(void *self, const struct bfc_chunk_info *chunk) {
  if (!chunk->free) byte_ranges_append(self, chunk->addr, chunk->size);
}

static bool same(const struct backup *backup, const struct byte_ranges *live) {
  if (backup->copies == NULL || backup->count != live->count) return false;
  for (size_t i = 0; i < live->count; i++) {
    if (backup->copies[i].addr != live->list[i].addr || backup->copies[i].bytes != live->list[i].bytes) return false;
  }
  return true;
}

static void drop_copies(struct backup *backup) {
  free(backup->copies);
  *backup = (struct backup){.room = backup->room};
}

void backup_drop(struct arena *arena) {
  host_give(&arena->pause->backup.room);
  drop_copies(&arena->pause->backup);
}

void backup_end(struct arena *arena) {
  struct backup *backup = &arena->pause->backup;
  if (backup->room.kind != HOST_PINNED || backup->room.count == 0) host_give(&backup->room);
  drop_copies(backup);
}

void backup_drop_unused(struct gpu *gpu) {
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (arena->tag == NULL || (arena->pause->backup.copies == NULL && arena->pause->backup.room.count == 0)) continue;
    if (bfc_in_use(arena->bfc) == 0) backup_drop(arena);
  }
}

void *backup_at(const struct arena *arena, uint64_t addr, uint64_t bytes) {
  const struct backup *backup = &arena->pause->backup;
  uint64_t place = 0;
  if (backup->room.count == 0 || backup->room.kind == HOST_FILE) return NULL;
  for (size_t i = 0; i < backup->count; place += backup->copies[i++].bytes) {
    const struct byte_range copy = backup->copies[i];
    if (addr >= copy.addr && addr + bytes <= copy.addr + copy.bytes) return host_at(&backup->room, place + (addr - copy.addr), bytes);
  }
  return NULL;
}

// Queues work on a stream; with `live`, only for the parts that are live.
typedef enum backup_result worker(struct arena *arena, const struct byte_ranges *live, void *stream);

// Works on a new stream of the device, so that it does not wait for the job's work.
static enum backup_result with_stream(struct arena *arena, const struct byte_ranges *live, worker *work) {
  const struct driver *driver = driver_get();
  struct driver_scope scope;
  void *stream = NULL;
  if (!driver_enter(arena->gpu->vmm.device, &scope)) return BACKUP_FAILED;
  const bool made = driver->stream_create != NULL && driver->stream_create(&stream, NON_BLOCKING) == DRIVER_OK;
  enum backup_result result = made ? work(arena, live, stream) : BACKUP_FAILED;
  // Also after a failure: what was queued still writes.
  if (made) {
    if (driver->stream_synchronize(stream) != DRIVER_OK && result == BACKUP_OK) result = BACKUP_FAILED;
    driver->stream_destroy(stream);
  }
  driver_leave(&scope);
  return result;
}

static enum backup_result copy_out(struct arena *arena, const struct byte_ranges *live, void *stream) {
  (void)live;
  const struct backup *backup = &arena->pause->backup;
  uint64_t place = 0;
  for (size_t i = 0; i < backup->count; i++) {
    if (!host_copy_out(&backup->room, place, backup->copies[i].addr, backup->copies[i].bytes, stream)) return BACKUP_FAILED;
    place += backup->copies[i].bytes;
  }
  return BACKUP_OK;
}

// Copies back only to live blocks. Both lists are in the order of addresses, so one pass finds the
// parts that they share.
static enum backup_result copy_in(struct arena *arena, const struct byte_ranges *live, void *stream) {
  const struct backup *backup = &arena->pause->backup;
  size_t at = 0;
  uint64_t place = 0;
  for (size_t i = 0; i < backup->count; i++) {
    const struct byte_range copy = backup->copies[i];
    const uint64_t end = copy.addr + copy.bytes;
    while (at < live->count && live->list[at].addr + live->list[at].bytes <= copy.addr) at++;
    for (size_t k = at; k < live->count && live->list[k].addr < end; k++) {
      const uint64_t live_end = live->list[k].addr + live->list[k].bytes;
      const uint64_t from = live->list[k].addr > copy.addr ? live->list[k].addr : copy.addr, to = live_end < end ? live_end : end;
      if (!host_copy_in(&backup->room, place + (from - copy.addr), from, to - from, stream)) return BACKUP_FAILED;
    }
    place += copy.bytes;
  }
  return BACKUP_OK;
}

static enum host_kind kind_of(int mode) {
  switch (mode) {
    case MEMPROF_RESTORE_PINNED: return HOST_PINNED;
    case MEMPROF_RESTORE_PAGEABLE: return HOST_PAGEABLE;
    case MEMPROF_RESTORE_DISK: return HOST_FILE;
    default: return HOST_SLABS;
  }
}

// Room in host memory: what the arena has, if it is of the kind, suffices, and is not much too large.
static bool take_room(struct backup *backup, enum host_kind kind) {
  const uint64_t there = host_bytes(&backup->room), most = backup->bytes * 2 > HOST_SLAB ? backup->bytes * 2 : HOST_SLAB;
  if (backup->room.count > 0 && backup->room.kind == kind && there >= backup->bytes && there <= most) return true;
  host_give(&backup->room);
  return host_take(&backup->room, kind, backup->bytes);
}

// Makes the copies; the list becomes the backup's. Room of earlier copies is used again.
static enum backup_result make(struct arena *arena, struct byte_ranges *live) {
  struct backup *backup = &arena->pause->backup;
  const enum host_kind kind = kind_of(mode_of(arena));
  drop_copies(backup);
  backup->copies = live->list, backup->count = live->count, backup->fresh = true;
  live->list = NULL;
  for (size_t i = 0; i < backup->count; i++) backup->bytes += backup->copies[i].bytes;
  if (!take_room(backup, kind)) return kind == HOST_FILE ? BACKUP_NO_DISK : BACKUP_NO_HOST_MEMORY;
  const enum backup_result result = with_stream(arena, NULL, copy_out);
  return result == BACKUP_OK && !host_write(&backup->room) ? BACKUP_NO_DISK : result;
}

enum backup_result backup_take(struct arena *arena, bool unchanged) {
  struct byte_ranges live = {0};
  bfc_walk(arena->bfc, &live, append_live);
  enum backup_result result = live.short_of_memory ? BACKUP_NO_HOST_MEMORY : BACKUP_OK;
  if (result == BACKUP_OK && !(unchanged && same(&arena->pause->backup, &live))) {
    if (live.count > 0) result = make(arena, &live);
    if (live.count == 0 || result != BACKUP_OK) backup_drop(arena);
  }
  free(live.list);
  return result;
}

enum backup_result backup_restore(struct arena *arena) {
  if (arena->pause->backup.count == 0) return BACKUP_OK;
  struct byte_ranges live = {0};
  bfc_walk(arena->bfc, &live, append_live);
  const enum backup_result result = live.short_of_memory ? BACKUP_NO_HOST_MEMORY : live.count == 0 ? BACKUP_OK : with_stream(arena, &live, copy_in);
  free(live.list);
  return result;
}
