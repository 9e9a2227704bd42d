// backup.c - see backup.h.
#include "arena/backup.h"

#include <stdlib.h>

#include "arena/arena.h"
#include "base/array.h"

enum { NON_BLOCKING = 1 };

void byte_ranges_append(struct byte_ranges *to, uint64_t addr, uint64_t bytes) {
  if (to->count > 0 && to->list[to->count - 1].addr + to->list[to->count - 1].bytes == addr) {
    to->list[to->count - 1].bytes += bytes;
    return;
  }
  if (array_reserve(&to->list, &to->room, to->count + 1, sizeof *to->list)) {
    to->list[to->count++] = (struct byte_range){addr, bytes};
  } else {
    to->short_of_memory = true;
  }
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

void backup_drop(struct arena *arena) {
  host_give(&arena->backup.room);
  free(arena->backup.copies);
  arena->backup = (struct backup){0};
}

// Queues copies of a backup on a stream; with `live`, only of the parts that are live. False: refused.
typedef bool copier(const struct backup *backup, const struct byte_ranges *live, void *stream);

// Copies on a new stream of the device, so that the copies do not wait for the job's work.
static bool with_stream(const struct arena *arena, const struct byte_ranges *live, copier *copy) {
  const struct driver *driver = driver_get();
  struct driver_scope scope;
  void *stream = NULL;
  if (!driver_enter(arena->gpu->vmm.device, &scope)) return false;
  bool ok = driver->stream_create != NULL && driver->stream_create(&stream, NON_BLOCKING) == DRIVER_OK;
  ok = ok && copy(&arena->backup, live, stream);
  // Waits after a failure, too: copies that were queued before it still write.
  if (stream != NULL) {
    ok = driver->stream_synchronize(stream) == DRIVER_OK && ok;
    driver->stream_destroy(stream);
  }
  driver_leave(&scope);
  return ok;
}

static bool copy_out(const struct backup *backup, const struct byte_ranges *live, void *stream) {
  (void)live;
  uint64_t place = 0;
  for (size_t i = 0; i < backup->count; i++) {
    if (!host_copy_out(&backup->room, place, backup->copies[i].addr, backup->copies[i].bytes, stream)) return false;
    place += backup->copies[i].bytes;
  }
  return true;
}

// Copies back only to live blocks. Both lists are in the order of addresses, so one pass finds the
// parts that they share.
static bool copy_in(const struct backup *backup, const struct byte_ranges *live, void *stream) {
  size_t at = 0;
  uint64_t place = 0;
  for (size_t i = 0; i < backup->count; i++) {
    const struct byte_range copy = backup->copies[i];
    const uint64_t end = copy.addr + copy.bytes;
    while (at < live->count && live->list[at].addr + live->list[at].bytes <= copy.addr) at++;
    for (size_t k = at; k < live->count && live->list[k].addr < end; k++) {
      const uint64_t live_end = live->list[k].addr + live->list[k].bytes;
      const uint64_t from = live->list[k].addr > copy.addr ? live->list[k].addr : copy.addr, to = live_end < end ? live_end : end;
      if (!host_copy_in(&backup->room, place + (from - copy.addr), from, to - from, stream)) return false;
    }
    place += copy.bytes;
  }
  return true;
}

// Makes the copies; the list becomes the backup's.
static enum backup_result make(struct arena *arena, struct byte_ranges *live) {
  struct backup *backup = &arena->backup;
  *backup = (struct backup){.copies = live->list, .count = live->count, .fresh = true};
  live->list = NULL;
  for (size_t i = 0; i < backup->count; i++) backup->bytes += backup->copies[i].bytes;
  if (!host_take(&backup->room, backup->bytes)) return BACKUP_NO_HOST_MEMORY;
  return with_stream(arena, NULL, copy_out) ? BACKUP_OK : BACKUP_FAILED;
}

enum backup_result backup_take(struct arena *arena, bool unchanged) {
  struct byte_ranges live = {0};
  bfc_walk(arena->bfc, &live, append_live);
  enum backup_result result = live.short_of_memory ? BACKUP_NO_HOST_MEMORY : BACKUP_OK;
  if (result == BACKUP_OK && !(unchanged && same(&arena->backup, &live))) {
    backup_drop(arena);
    if (live.count > 0) result = make(arena, &live);
    if (result != BACKUP_OK) backup_drop(arena);
  }
  free(live.list);
  return result;
}

bool backup_restore(struct arena *arena) {
  if (arena->backup.count == 0) return true;
  struct byte_ranges live = {0};
  bfc_walk(arena->bfc, &live, append_live);
  const bool ok = !live.short_of_memory && with_stream(arena, &live, copy_in);
  free(live.list);
  return ok;
}
