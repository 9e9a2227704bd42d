// selection.c - see selection.h.
#include "arena/selection.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/thread_own.h"
#include "device/devices.h"
#include "memprof.h"
#include "spool/spool.h"

static bool (*_Atomic other_allocator)(void);

void pause_set_other_allocator(bool (*serves)(void)) { atomic_store(&other_allocator, serves); }

bool pause_other_allocator(void) {
  bool (*serves)(void) = atomic_load(&other_allocator);
  return serves != NULL && serves();
}

enum { TEXT = sizeof((struct thread_own *)0)->pause };

// Why the last call of the thread failed; "" if it did not.
const char *memprof_pause_message(void) { return thread_texts()->pause; }

void pause_clear_message(void) { thread_texts()->pause[0] = '\0'; }

double pause_gib(uint64_t bytes) { return (double)bytes / (double)((uint64_t)1 << 30); }

int pause_fail(int result, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(thread_texts()->pause, TEXT, format, values);
  va_end(values);
  return result;
}

void pause_add_message(const char *format, ...) {
  char *message = thread_texts()->pause;
  const size_t length = strlen(message);
  va_list values;
  va_start(values, format);
  vsnprintf(message + length, TEXT - length, format, values);
  va_end(values);
}

static bool wanted(const struct tag *tag, const char *const *names, size_t count) {
  if (tag == NULL) return false;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(names[i], tag->name) == 0) return true;
  }
  return count == 0;
}

static bool add(struct selection *selection, struct arena *arena) {
  if (!array_reserve(&selection->arenas, &selection->room, selection->count + 1, sizeof *selection->arenas)) return false;
  selection->arenas[selection->count++] = arena;
  return true;
}

// The first address of an arena, 0 if its pool has a source.
static uint64_t address_of(const struct arena *arena) { return arena->memory.vmm.reservation_count == 0 ? 0 : arena->memory.vmm.reservations[0].addr; }

static int by_address(const void *left, const void *right) {
  const uint64_t a = address_of(*(struct arena *const *)left), b = address_of(*(struct arena *const *)right);
  return (a > b) - (a < b);
}

// Gives the locks back.
void selection_end(struct selection *selection) {
  for (int i = selection->gpu_count; i-- > 0;) lock_give(&selection->gpus[i]->lock);
  free(selection->arenas);
}

static bool has_arenas(const struct selection *selection, const char *name, bool paused) {
  for (int i = 0; i < selection->gpu_count; i++) {
    for (const struct arena *arena = selection->gpus[i]->arenas; arena != NULL; arena = arena->next) {
      if (arena->paused == paused && arena->tag != NULL && strcmp(arena->tag->name, name) == 0) return true;
    }
  }
  return false;
}

static int no_arenas(const struct selection *selection, const char *name, bool paused) {
  if (has_arenas(selection, name, !paused)) return pause_fail(MEMPROF_WRONG_STATE, "the tag \"%s\" is %s", name, paused ? "not paused" : "paused already");
  if (pause_other_allocator()) {
    return pause_fail(MEMPROF_NOT_ACTIVE, "the tag \"%s\" has no memory of memprof's, which alone can be paused: this process has another allocator (--allocator native)", name);
  }
  if (!tag_known(name)) return pause_fail(MEMPROF_UNKNOWN_TAG, "no region was ever opened with the tag \"%s\"", name);
  return pause_fail(MEMPROF_WRONG_STATE, paused ? "the tag \"%s\" is not paused: it has no memory" : "the tag \"%s\" has no memory", name);
}

static int nothing_to_do(bool paused) {
  if (pause_other_allocator()) return pause_fail(MEMPROF_NOT_ACTIVE, "this process has another allocator (--allocator native), and only memprof's memory can be paused");
  return pause_fail(MEMPROF_WRONG_STATE, paused ? "nothing is paused" : "no tag has anything to pause");
}

// Locks all devices, and selects the arenas of the named tags (all if `count` is 0) that are paused, or
// that are not. An error if a name has none.
int selection_begin(struct selection *selection, const char *const *names, size_t count, bool paused) {
  memset(selection, 0, sizeof *selection);
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_lock(device);
    if (gpu == NULL) continue;
    selection->gpus[selection->gpu_count++] = gpu;
    tag_drop_spares(gpu);
    backup_drop_unused(gpu);
    for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
      if (arena->paused != paused || !wanted(arena->tag, names, count)) continue;
      if (source_holds_any(arena) && (paused || count == 0)) continue;  // its source pauses and resumes it
      if (!add(selection, arena)) return pause_fail(MEMPROF_NO_HOST_MEMORY, "no host memory for the list of arenas");
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (!has_arenas(selection, names[i], paused)) return no_arenas(selection, names[i], paused);
  }
  if (selection->count == 0) return nothing_to_do(paused);
  qsort(selection->arenas, selection->count, sizeof *selection->arenas, by_address);
  return MEMPROF_OK;
}

void pause_forget_ranges(struct arena *arena) {
  free(arena->pause->ranges);
  arena->pause->ranges = NULL;
  arena->pause->range_count = 0;
}

void pause_event(const struct arena *arena, enum memprof_kind kind, uint64_t started, uint64_t bytes, const char *field, const char *value) {
  char text[TEXT + 128];
  const int length = snprintf(text, sizeof text, "tag=%s", arena->tag->label);
  if (field != NULL) snprintf(text + length, sizeof text - (size_t)length, "\t%s=%s", field, value);
  arena_event(arena, kind, clock_now() - started, bytes, arena->pause->backup.bytes, spool_string(text));
}

void pause_write_failures(const struct selection *selection, enum memprof_kind kind, uint64_t started) {
  for (size_t i = 0; i < selection->count; i++) {
    const struct arena *arena = selection->arenas[i];
    if (arena->memory.vmm.mapped > 0 || arena->pause->range_count > 0 || source_holds_any(arena)) pause_event(arena, kind, started, 0, "failed", memprof_pause_message());
  }
}

// Statistics count neither paused memory nor its blocks: a pause subtracts them, a resume adds them.

struct moving {
  struct arena *arena;
  struct counters_moved sums;
};

// A block may be pending: a pause waits for what was freed before it, and another thread may free meanwhile.
static void add_block(void *self, const struct bfc_chunk_info *chunk) {
  struct moving *moving = self;
  struct bfc_block block;
  if (chunk->free) return;
  const bool pending = moving->arena->noted > 0 && bfc_find(moving->arena->bfc, chunk->addr, &block) && !arena_live(moving->arena, &block);
  struct counters_blocks *sums = pending ? &moving->sums.pending : &moving->sums.live;
  sums->blocks++;
  sums->requested += (int64_t)chunk->requested;
  sums->provided += (int64_t)chunk->size;
  sums->torch_bytes += counters_torch_bytes(chunk->requested);
}

// Adds (1) or subtracts (-1) all that the arena has.
void pause_count(struct arena *arena, int sign) {
  struct moving moving = {arena, {.mapped = (int64_t)arena->memory.vmm.mapped, .handles = (int64_t)arena->memory.vmm.count}};
  bfc_walk(arena->bfc, &moving, add_block);
  counters_move(&arena->gpu->stats, &moving.sums, sign);
  gpu_mapped(arena->gpu, sign * moving.sums.mapped);
}

int memprof_backup_at(const void *ptr, size_t size, void **copy) {
  struct bfc_block block;
  *copy = NULL;
  pause_clear_message();
  struct arena *arena = hook_on() ? arena_block((uintptr_t)ptr, &block) : NULL;
  if (arena == NULL || arena->tag == NULL || (uintptr_t)ptr + size > block.addr + block.size) {
    return pause_fail(MEMPROF_UNKNOWN_TAG, "%p is not memory of a tag: it has no backup", ptr);
  }
  lock_take(&arena->gpu->lock);
  const bool copied = arena->pause->backup.count > 0, paused = arena->paused, in_file = arena->pause->backup.room.kind == HOST_FILE;
  *copy = backup_at(arena, (uintptr_t)ptr, size);
  lock_give(&arena->gpu->lock);
  if (*copy != NULL || (copied && in_file) || !(copied || paused)) return MEMPROF_OK;
  if (copied) return pause_fail(MEMPROF_NO_BACKUP, "the copy of %zu bytes at %p is not in one piece of host memory", size, ptr);
  return pause_fail(MEMPROF_NO_BACKUP, "the tag \"%s\" is paused without a backup", arena->tag->name);
}
