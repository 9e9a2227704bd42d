// pause.c - see pause.h.
#include "arena/pause.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/registered.h"
#include "arena/selection.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/options.h"
#include "base/problem.h"
#include "device/captures.h"
#include "device/file.h"
#include "memprof.h"

// Drops the copies that this call has made; copies that an earlier resume has kept stay.
static void drop_fresh(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) {
    if (selection->arenas[i]->pause->backup.fresh) backup_drop(selection->arenas[i]);
  }
}

static enum backup_result back_up_all(const struct selection *selection, bool unchanged) {
  enum backup_result result = BACKUP_OK;
  for (size_t i = 0; result == BACKUP_OK && i < selection->count; i++) {
    if (backup_wanted(selection->arenas[i])) result = backup_take(selection->arenas[i], unchanged);
  }
  if (result != BACKUP_OK) drop_fresh(selection);
  return result;
}

static int no_host_memory(const struct selection *selection) {
  uint64_t bytes = 0, kept, used;
  const uint64_t limit = options_get()->backup_limit;
  for (size_t i = 0; i < selection->count; i++) {
    const struct arena *arena = selection->arenas[i];
    if (backup_wanted(arena) && arena->pause->backup.count == 0) bytes += bfc_in_use(arena->bfc);
  }
  host_usage(&kept, &used);
  pause_fail(MEMPROF_NO_HOST_MEMORY, "no host memory for copies of %.2f GiB: %.2f GiB are pinned, %.2f GiB of them in use, and ", pause_gib(bytes), pause_gib(kept), pause_gib(used));
  if (limit == 0) pause_add_message("the system gives no more");
  if (limit != 0) pause_add_message("the backup limit is %.2f GiB", pause_gib(limit));
  return MEMPROF_NO_HOST_MEMORY;
}

static bool unmap_all(const struct selection *selection, size_t *arenas) {
  for (*arenas = 0; *arenas < selection->count; ++*arenas) {
    if (!vmm_detach(&selection->arenas[*arenas]->memory.vmm)) return false;
  }
  return true;
}

// Notes the ranges that a resume has to map. Before anything is unmapped: this may fail for want of host
// memory, and a failure after the unmapping could not be undone.
static bool note_ranges(struct arena *arena) {
  struct byte_ranges ranges = {0};
  for (size_t i = 0; i < arena->memory.vmm.count; i++) byte_ranges_append(&ranges, arena->memory.vmm.mappings[i].addr, arena->memory.vmm.mappings[i].bytes);
  arena->pause->ranges = ranges.list;
  arena->pause->range_count = ranges.count;
  return !ranges.short_of_memory;
}

static int check_pausable(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) {
    struct arena *arena = selection->arenas[i];
    if (backup_wanted(arena) && !arena_whole(arena)) {
      return pause_fail(MEMPROF_DEVICE_FAILED, "%.2f GiB of the tag \"%s\" are not mapped since a pause failed, and cannot be copied: nothing was paused",
                 pause_gib(vmm_detached_bytes(&arena->memory.vmm)), arena->tag->name);
    }
    if (registered_ends(arena)) {
      return pause_fail(MEMPROF_WRONG_STATE, "the tag \"%s\" has memory that is registered with NCCL, a network card or a multicast group, which would go on using what was unmapped: deregister it before the pause", arena->tag->name);
    }
    if (source_holds_any(arena)) return pause_fail(MEMPROF_WRONG_STATE, "the tag \"%s\" has memory of an allocator that is not memprof's, which cannot be paused", arena->tag->name);
    if (arena->home != NULL && atomic_load(&arena->tag->restore) == MEMPROF_RESTORE_NONE) {
      return pause_fail(MEMPROF_NO_BACKUP, "the tag \"%s\" has memory of CUDA graphs, which would replay garbage: give it a backup, or \"discard\" if no replay reads what it has not written", arena->tag->name);
    }
  }
  return MEMPROF_OK;
}

static void undo_notes(const struct selection *selection) {
  drop_fresh(selection);
  for (size_t i = 0; i < selection->count; i++) pause_forget_ranges(selection->arenas[i]);
}

// The driver refused to unmap one arena: maps the first `arenas` arenas again.
static int undo_unmapping(const struct selection *selection, size_t arenas) {
  uint64_t lost = 0;
  for (size_t i = 0; i < arenas; i++) {
    struct vmm *vmm = &selection->arenas[i]->memory.vmm;
    if (!vmm_attach(vmm)) lost += vmm_detached_bytes(vmm);
  }
  undo_notes(selection);
  if (lost == 0) return pause_fail(MEMPROF_DEVICE_FAILED, "the driver refused to unmap: nothing was paused");
  pause_fail(MEMPROF_DEVICE_FAILED, "the driver refused to unmap, and %.2f GiB that were unmapped could not be mapped again: blocks there cannot be used, and new ones get other memory", pause_gib(lost));
  problem("pause: %s", memprof_pause_message());
  return MEMPROF_DEVICE_FAILED;
}

static int pause_selected(const struct selection *selection, bool unchanged, bool waited) {
  int result = check_pausable(selection);
  if (result != MEMPROF_OK) return result;
  if (!waited) return pause_fail(MEMPROF_DEVICE_FAILED, "the device could not be waited for: nothing was paused");
  for (size_t i = 0; i < selection->count; i++) pending_poll(selection->arenas[i], true);
  switch (back_up_all(selection, unchanged)) {
    case BACKUP_NO_HOST_MEMORY: return no_host_memory(selection);
    case BACKUP_NO_DISK: return pause_fail(MEMPROF_NO_DISK, "%s: nothing was paused", file_message());
    case BACKUP_FAILED: return pause_fail(MEMPROF_DEVICE_FAILED, "the content could not be copied to the host: nothing was paused");
    case BACKUP_OK: break;
  }
  for (size_t i = 0; i < selection->count; i++) {
    if (note_ranges(selection->arenas[i])) continue;
    undo_notes(selection);
    return pause_fail(MEMPROF_NO_HOST_MEMORY, "no host memory for the list of what is mapped: nothing was paused");
  }
  size_t arenas;
  return unmap_all(selection, &arenas) ? MEMPROF_OK : undo_unmapping(selection, arenas + 1);
}

static uint64_t free_memory(const struct selection *selection) {
  uint64_t sum = 0;
  for (int i = 0; i < selection->gpu_count; i++) {
    uint64_t free_bytes, total;
    driver_memory(selection->gpus[i]->vmm.device, &free_bytes, &total);
    sum += free_bytes;
  }
  return sum;
}

// Reports if less memory has become free than was released: a process that opened a shared block still
// maps it, or another process has taken it at once.
static void check_freed(const struct selection *selection, uint64_t free_before, uint64_t released) {
  const uint64_t now = free_memory(selection), more = now > free_before ? now - free_before : 0;
  if (more >= released) return;
  pause_fail(MEMPROF_OK, "the pause of \"%s\"%s released %.2f GiB, yet only %.2f GiB more are free: somebody still maps the rest, or took it at once",
      selection->arenas[0]->tag->name, selection->count > 1 ? " and others" : "", pause_gib(released), pause_gib(more));
  problem("%s", memprof_pause_message());
}

static int pause_tags(const char *const *names, size_t count, int unchanged, bool waited) {
  struct selection selection;
  const uint64_t started = clock_now();
  pause_clear_message();
  int result = selection_begin(&selection, names, count, false);
  if (result == MEMPROF_OK && (result = pause_selected(&selection, unchanged != 0, waited)) != MEMPROF_OK) pause_write_failures(&selection, MEMPROF_PAUSE, started);
  const uint64_t free_before = result == MEMPROF_OK ? free_memory(&selection) : 0;
  uint64_t leaked = 0, total = 0;
  for (size_t i = 0; result == MEMPROF_OK && i < selection.count; i++) {
    struct arena *arena = selection.arenas[i];
    const uint64_t bytes = arena->memory.vmm.mapped;
    pause_count(arena, -1);
    arena->paused = true;
    arena->pause->backup.fresh = false;
    leaked += vmm_drop_detached(&arena->memory.vmm);  // from here on the pause cannot be undone
    total += bytes;
    pause_event(arena, MEMPROF_PAUSE, started, bytes, NULL, NULL);
  }
  if (result == MEMPROF_OK) check_freed(&selection, free_before, total);
  selection_end(&selection);
  if (leaked == 0) return result;
  problem("%llu bytes of paused memory could not be released and are lost to the device", (unsigned long long)leaked);
  return pause_fail(MEMPROF_LEAKED, "paused, but of %.2f GiB the driver did not take back %.2f GiB", pause_gib(total), pause_gib(leaked));
}

int memprof_pause(const char *const *names, size_t count, int unchanged) {
  if (!hook_on()) return pause_fail(MEMPROF_NOT_ACTIVE, "memprof's allocator does not serve this process: run it under `memprof record`");
  const bool waited = fence_wait_for_all();  // before any lock is held, and captures are
  if (!captures_hold()) return pause_fail(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured");
  const int result = pause_tags(names, count, unchanged, waited);
  captures_let();
  return result;
}

