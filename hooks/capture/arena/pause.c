// pause.c - see pause.h.
#include "arena/pause.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/pool.h"
#include "arena/reclaim.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/options.h"
#include "base/problem.h"
#include "device/captures.h"
#include "device/devices.h"
#include "memprof.h"
#include "spool/spool.h"

static bool (*_Atomic other_allocator)(void);

void pause_set_other_allocator(bool (*serves)(void)) { atomic_store(&other_allocator, serves); }

static bool other_allocator_serves(void) {
  bool (*serves)(void) = atomic_load(&other_allocator);
  return serves != NULL && serves();
}

// Why the last call of the thread failed; "" if it did not.
static __thread char message[768];

const char *memprof_pause_message(void) { return message; }

static double gib(uint64_t bytes) { return (double)bytes / (double)((uint64_t)1 << 30); }

// Sets the message and returns `result`.
__attribute__((format(printf, 2, 3))) static int set_message(int result, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  return result;
}

__attribute__((format(printf, 1, 2))) static void add_message(const char *format, ...) {
  const size_t length = strlen(message);
  va_list values;
  va_start(values, format);
  vsnprintf(message + length, sizeof message - length, format, values);
  va_end(values);
}

// The arenas of one call's tags, by address, with the locks of all devices held.
struct selection {
  struct arena **arenas;
  size_t count, room;
  struct gpu *gpus[MOST_DEVICES];
  int gpu_count;
};

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
static uint64_t address_of(const struct arena *arena) { return arena->vmm.reservation_count == 0 ? 0 : arena->vmm.reservations[0].addr; }

static int by_address(const void *left, const void *right) {
  const uint64_t a = address_of(*(struct arena *const *)left), b = address_of(*(struct arena *const *)right);
  return (a > b) - (a < b);
}

// Gives the locks back.
static void end_selection(struct selection *selection) {
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
  if (has_arenas(selection, name, !paused)) return set_message(MEMPROF_WRONG_STATE, "the tag \"%s\" is %s", name, paused ? "not paused" : "paused already");
  if (other_allocator_serves()) {
    return set_message(MEMPROF_NOT_ACTIVE, "the tag \"%s\" has no memory of memprof's, which alone can be paused: this process has another allocator (--allocator native)", name);
  }
  if (!tag_known(name)) return set_message(MEMPROF_UNKNOWN_TAG, "no region was ever opened with the tag \"%s\"", name);
  return set_message(MEMPROF_WRONG_STATE, paused ? "the tag \"%s\" is not paused: it has no memory" : "the tag \"%s\" has no memory", name);
}

static int nothing_to_do(bool paused) {
  if (other_allocator_serves()) return set_message(MEMPROF_NOT_ACTIVE, "this process has another allocator (--allocator native), and only memprof's memory can be paused");
  return set_message(MEMPROF_WRONG_STATE, paused ? "nothing is paused" : "no tag has anything to pause");
}

// Locks all devices, and selects the arenas of the named tags (all if `count` is 0) that are paused, or
// that are not. An error if a name has none.
static int select_arenas(struct selection *selection, const char *const *names, size_t count, bool paused) {
  memset(selection, 0, sizeof *selection);
  for (int device = 0; device < MOST_DEVICES; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL) continue;
    lock_take(&gpu->lock);
    selection->gpus[selection->gpu_count++] = gpu;
    tag_drop_spares(gpu);
    for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
      if (arena->paused != paused || !wanted(arena->tag, names, count)) continue;
      if (paused && arena->grant_count > 0) continue;  // its source resumes it
      if (!add(selection, arena)) return set_message(MEMPROF_NO_HOST_MEMORY, "no host memory for the list of arenas");
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (!has_arenas(selection, names[i], paused)) return no_arenas(selection, names[i], paused);
  }
  if (selection->count == 0) return nothing_to_do(paused);
  qsort(selection->arenas, selection->count, sizeof *selection->arenas, by_address);
  return MEMPROF_OK;
}

static bool wait_for_device(const struct selection *selection) {
  for (int i = 0; i < selection->gpu_count; i++) {
    selection->gpus[i]->stats.syncs++;
    if (!driver_synchronize(selection->gpus[i]->vmm.device)) return false;
  }
  for (size_t i = 0; i < selection->count; i++) pending_poll(selection->arenas[i], true);
  return true;
}

// Drops the copies that this call has made; copies that an earlier resume has kept stay.
static void drop_fresh(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) {
    if (selection->arenas[i]->backup.fresh) backup_drop(selection->arenas[i]);
  }
}

static enum backup_result back_up_all(const struct selection *selection, bool unchanged) {
  enum backup_result result = BACKUP_OK;
  for (size_t i = 0; result == BACKUP_OK && i < selection->count; i++) {
    if (selection->arenas[i]->tag->backed_up) result = backup_take(selection->arenas[i], unchanged);
  }
  if (result != BACKUP_OK) drop_fresh(selection);
  return result;
}

static int no_host_memory(const struct selection *selection) {
  uint64_t bytes = 0, kept, used;
  const uint64_t limit = options_get()->backup_limit;
  for (size_t i = 0; i < selection->count; i++) {
    const struct arena *arena = selection->arenas[i];
    struct bfc_stats bfc;
    bfc_get_stats(arena->bfc, &bfc);
    if (arena->tag->backed_up && arena->backup.count == 0) bytes += bfc.bytes_in_use;
  }
  host_usage(&kept, &used);
  set_message(MEMPROF_NO_HOST_MEMORY, "no host memory for copies of %.2f GiB: %.2f GiB are pinned, %.2f GiB of them in use, and ", gib(bytes), gib(kept), gib(used));
  if (limit == 0) add_message("the system gives no more");
  if (limit != 0) add_message("the backup limit is %.2f GiB", gib(limit));
  return MEMPROF_NO_HOST_MEMORY;
}

static bool unmap_all(const struct selection *selection, size_t *arenas) {
  for (*arenas = 0; *arenas < selection->count; ++*arenas) {
    if (!vmm_detach(&selection->arenas[*arenas]->vmm)) return false;
  }
  return true;
}

// Notes the ranges that a resume has to map. Before anything is unmapped: this may fail for want of host
// memory, and a failure after the unmapping could not be undone.
static bool note_ranges(struct arena *arena) {
  struct byte_ranges ranges = {0};
  for (size_t i = 0; i < arena->vmm.count; i++) byte_ranges_append(&ranges, arena->vmm.mappings[i].addr, arena->vmm.mappings[i].bytes);
  arena->ranges = ranges.list;
  arena->range_count = ranges.count;
  return !ranges.short_of_memory;
}

static void forget_ranges(struct arena *arena) {
  free(arena->ranges);
  arena->ranges = NULL;
  arena->range_count = 0;
}

static void event(const struct arena *arena, enum memprof_kind kind, uint64_t started, uint64_t bytes, const char *problem) {
  char text[sizeof message + 128];
  snprintf(text, sizeof text, "tag=%s%s%s", arena->tag->label, problem == NULL ? "" : "\tfailed=", problem == NULL ? "" : problem);
  arena_event(arena, kind, clock_now() - started, bytes, arena->backup.bytes, spool_string(text));
}

static void write_failures(const struct selection *selection, enum memprof_kind kind, uint64_t started) {
  for (size_t i = 0; i < selection->count; i++) event(selection->arenas[i], kind, started, 0, message);
}

// Statistics count neither paused memory nor its blocks: a pause subtracts them, a resume adds them.

struct sums {
  int64_t blocks, requested, provided, torch_bytes;
};

static void add_block(void *self, const struct bfc_chunk_info *chunk) {
  struct sums *sums = self;
  if (chunk->free) return;
  sums->blocks++;
  sums->requested += (int64_t)chunk->requested;
  sums->provided += (int64_t)chunk->size;
  sums->torch_bytes += arena_torch_bytes(chunk->requested);
}

static void move(struct memprof_stat *stat, int64_t amount) {
  stat->current += amount;
  if (stat->current > stat->peak) stat->peak = stat->current;
}

// Adds (1) or subtracts (-1) all that the arena has.
static void count_arena(struct arena *arena, int64_t sign) {
  struct memprof_stats *stats = &arena->gpu->stats;
  struct sums sums = {0};
  bfc_walk(arena->bfc, &sums, add_block);
  const int64_t mapped = (int64_t)arena->vmm.mapped, handles = (int64_t)arena->vmm.count;
  move(&stats->allocation, sign * sums.blocks);
  move(&stats->active, sign * sums.blocks);
  move(&stats->requested_bytes, sign * sums.requested);
  move(&stats->allocated_bytes, sign * sums.provided);
  move(&stats->active_bytes, sign * sums.provided);
  move(&stats->torch_bytes, sign * sums.torch_bytes);
  move(&stats->torch_active, sign * sums.torch_bytes);
  move(&stats->reserved_bytes, sign * mapped);
  move(&stats->inactive_bytes, sign * (mapped - sums.provided));
  move(&stats->segment, sign * handles);
  if (sign > 0) stats->device_allocs += handles;
  if (sign < 0) stats->device_frees += handles;
  gpu_mapped(arena->gpu, sign * mapped);
}

static int check_pausable(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) {
    struct arena *arena = selection->arenas[i];
    if (arena->tag->backed_up && !arena_whole(arena)) {
      return set_message(MEMPROF_DEVICE_FAILED, "%.2f GiB of the tag \"%s\" are not mapped since a pause failed, and cannot be copied: nothing was paused",
                 gib(vmm_detached_bytes(&arena->vmm)), arena->tag->name);
    }
    if (arena->grant_count > 0) return set_message(MEMPROF_WRONG_STATE, "the tag \"%s\" has memory of an allocator that is not memprof's, which cannot be paused", arena->tag->name);
    if (arena->home != NULL && !arena->tag->backed_up) {
      return set_message(MEMPROF_NO_BACKUP, "the tag \"%s\" has memory of CUDA graphs, which would replay garbage: give it a backup", arena->tag->name);
    }
  }
  return MEMPROF_OK;
}

static void undo_notes(const struct selection *selection) {
  drop_fresh(selection);
  for (size_t i = 0; i < selection->count; i++) forget_ranges(selection->arenas[i]);
}

// The driver refused to unmap one arena: maps the first `arenas` arenas again.
static int undo_unmapping(const struct selection *selection, size_t arenas) {
  uint64_t lost = 0;
  for (size_t i = 0; i < arenas; i++) {
    struct vmm *vmm = &selection->arenas[i]->vmm;
    if (!vmm_attach(vmm)) lost += vmm_detached_bytes(vmm);
  }
  undo_notes(selection);
  if (lost == 0) return set_message(MEMPROF_DEVICE_FAILED, "the driver refused to unmap: nothing was paused");
  set_message(MEMPROF_DEVICE_FAILED, "the driver refused to unmap, and %.2f GiB that were unmapped could not be mapped again: blocks there cannot be used, and new ones get other memory", gib(lost));
  problem("pause: %s", message);
  return MEMPROF_DEVICE_FAILED;
}

static int pause_selected(const struct selection *selection, bool unchanged) {
  int result = check_pausable(selection);
  if (result != MEMPROF_OK) return result;
  if (!wait_for_device(selection)) return set_message(MEMPROF_DEVICE_FAILED, "the device could not be waited for: nothing was paused");
  switch (back_up_all(selection, unchanged)) {
    case BACKUP_NO_HOST_MEMORY: return no_host_memory(selection);
    case BACKUP_FAILED: return set_message(MEMPROF_DEVICE_FAILED, "the content could not be copied to the host: nothing was paused");
    case BACKUP_OK: break;
  }
  for (size_t i = 0; i < selection->count; i++) {
    if (note_ranges(selection->arenas[i])) continue;
    undo_notes(selection);
    return set_message(MEMPROF_NO_HOST_MEMORY, "no host memory for the list of what is mapped: nothing was paused");
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
  set_message(MEMPROF_OK, "the pause of \"%s\"%s released %.2f GiB, yet only %.2f GiB more are free: somebody still maps the rest, or took it at once",
      selection->arenas[0]->tag->name, selection->count > 1 ? " and others" : "", gib(released), gib(more));
  problem("%s", message);
}

static int pause_tags(const char *const *names, size_t count, int unchanged) {
  struct selection selection;
  const uint64_t started = clock_now();
  message[0] = '\0';
  int result = select_arenas(&selection, names, count, false);
  if (result == MEMPROF_OK && (result = pause_selected(&selection, unchanged != 0)) != MEMPROF_OK) write_failures(&selection, MEMPROF_PAUSE, started);
  const uint64_t free_before = result == MEMPROF_OK ? free_memory(&selection) : 0;
  uint64_t leaked = 0, total = 0;
  for (size_t i = 0; result == MEMPROF_OK && i < selection.count; i++) {
    struct arena *arena = selection.arenas[i];
    const uint64_t bytes = arena->vmm.mapped;
    count_arena(arena, -1);
    arena->paused = true;
    arena->backup.fresh = false;
    leaked += vmm_drop_detached(&arena->vmm);  // from here on the pause cannot be undone
    total += bytes;
    event(arena, MEMPROF_PAUSE, started, bytes, NULL);
  }
  if (result == MEMPROF_OK) check_freed(&selection, free_before, total);
  end_selection(&selection);
  if (leaked == 0) return result;
  problem("%llu bytes of paused memory could not be released and are lost to the device", (unsigned long long)leaked);
  return set_message(MEMPROF_LEAKED, "paused, but of %.2f GiB the driver did not take back %.2f GiB", gib(total), gib(leaked));
}

int memprof_pause(const char *const *names, size_t count, int unchanged) {
  if (!hook_on()) return set_message(MEMPROF_NOT_ACTIVE, "memprof's allocator does not serve this process: run it under `memprof record`");
  if (!captures_hold()) return set_message(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured");
  const int result = pause_tags(names, count, unchanged);
  captures_let();
  return result;
}

// Resume leaves out pages that hold no block: they are unmapped pages from then on, which the allocator
// maps when a request needs them.
struct search {
  struct byte_range within;  // searched for free pages
  struct byte_range found;   // bytes = 0: none yet
  uint64_t unit;          // bytes of a page
};

static void find_pages(void *self, uint64_t addr, uint64_t bytes) {
  struct search *search = self;
  const uint64_t end = search->within.addr + search->within.bytes, last = addr + bytes < end ? addr + bytes : end;
  const uint64_t first = addr > search->within.addr ? addr : search->within.addr;
  const uint64_t from = (first + search->unit - 1) & ~(search->unit - 1), to = last & ~(search->unit - 1);
  if (search->found.bytes == 0 && from < to) search->found = (struct byte_range){from, to - from};
}

static void count_one(void *self, uint64_t addr, uint64_t bytes) {
  (void)addr, (void)bytes;
  ++*(size_t *)self;
}

static void leave_out_free(struct arena *arena) {
  if (pool_pins(arena)) return;  // replayed graphs use free memory of the pool
  // Room for the ranges that are left: each free range divides one of them at most.
  struct byte_ranges left = {.room = arena->range_count};
  bfc_free_mapped(arena->bfc, &left.room, count_one);
  left.list = left.room == 0 ? NULL : malloc(left.room * sizeof *left.list);
  if (left.list == NULL) return;  // all is mapped then
  for (size_t i = 0; i < arena->range_count; i++) {
    struct search search = {.within = arena->ranges[i], .unit = arena->gpu->vmm.granularity};
    for (;;) {
      search.found.bytes = 0;
      bfc_free_mapped(arena->bfc, &search, find_pages);
      if (search.found.bytes == 0 || !bfc_unmap(arena->bfc, search.found.addr, search.found.bytes)) break;
      arena_event(arena, MEMPROF_UNMAP, search.found.addr, 0, search.found.bytes, 0);
      const uint64_t before = search.found.addr - search.within.addr;
      if (before > 0) byte_ranges_append(&left, search.within.addr, before);
      search.within.addr += before + search.found.bytes;
      search.within.bytes -= before + search.found.bytes;
    }
    if (search.within.bytes > 0) byte_ranges_append(&left, search.within.addr, search.within.bytes);
  }
  free(arena->ranges);
  arena->ranges = left.list;
  arena->range_count = left.count;
}

static bool map_arena(struct arena *arena) {
  arena_set_handle(arena, UINT64_MAX, 0);
  for (size_t i = 0; i < arena->range_count; i++) {
    if (!vmm_map(&arena->vmm, arena->ranges[i].addr, arena->ranges[i].bytes)) return false;
  }
  return true;
}

static void unmap_again(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) vmm_release(&selection->arenas[i]->vmm, 0, selection->arenas[i]->vmm.count);
}

static uint64_t paused_bytes(const struct arena *arena) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < arena->range_count; i++) bytes += arena->ranges[i].bytes;
  return bytes;
}

static uint64_t needed_on(const struct selection *selection, const struct gpu *gpu) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < selection->count; i++) {
    if (selection->arenas[i]->gpu == gpu) bytes += paused_bytes(selection->arenas[i]);
  }
  return bytes;
}

// Maps all selected arenas. Returns NULL, or the device that lacks memory; then nothing is mapped.
static struct gpu *map_all(const struct selection *selection) {
  struct gpu *lacking = NULL;
  for (int i = 0; lacking == NULL && i < selection->gpu_count; i++) {
    if (!gpu_allows(selection->gpus[i], needed_on(selection, selection->gpus[i]))) lacking = selection->gpus[i];
  }
  for (size_t i = 0; lacking == NULL && i < selection->count; i++) {
    if (!map_arena(selection->arenas[i])) lacking = selection->arenas[i]->gpu;
  }
  if (lacking != NULL) unmap_again(selection);
  return lacking;
}

// Releases free memory of other arenas of the device, as a request would. True: mapping may succeed now.
static bool make_way(const struct selection *selection, struct gpu *gpu) {
  const uint64_t needed = needed_on(selection, gpu);
  uint64_t free_bytes, total, lack = 0;
  if (driver_memory(gpu->vmm.device, &free_bytes, &total) && free_bytes < needed) lack = needed - free_bytes + gpu->vmm.granularity;
  const uint64_t above = gpu_allows(gpu, needed) ? 0 : gpu->mapped + needed - gpu->limit;
  bool retry = false;
  if (above > lack) lack = above;
  if (lack > 0) reclaim(gpu, NULL, needed, lack, "resume", &retry);
  return retry;
}

// Adds to the message who uses the memory of a device: others, and each resident tag.
static void add_users(const struct gpu *gpu, uint64_t used) {
  uint64_t tagged = 0;
  add_message("; others use %.2f GiB", gib(used > gpu->mapped ? used - gpu->mapped : 0));
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    uint64_t bytes = 0;
    const struct arena *same = gpu->arenas;
    while (same != arena && same->tag != arena->tag) same = same->next;
    if (arena->tag == NULL || same != arena) continue;  // each tag once
    for (; same != NULL; same = same->next) bytes += same->tag == arena->tag ? same->vmm.mapped : 0;
    if (bytes > 0) add_message(", the tag %s %.2f GiB", arena->tag->label, gib(bytes));
    tagged += bytes;
  }
  add_message(", requests of no tag %.2f GiB", gib(gpu->mapped > tagged ? gpu->mapped - tagged : 0));
}

static int missing_memory(const struct selection *selection, const struct gpu *gpu) {
  const uint64_t needed = needed_on(selection, gpu);
  uint64_t free_bytes, total;
  driver_memory(gpu->vmm.device, &free_bytes, &total);
  if (!gpu_allows(gpu, needed)) {
    set_message(MEMPROF_NO_MEMORY, "no memory to resume on GPU %d: %.2f GiB are needed, and of the limit of %.2f GiB that was set %.2f GiB are left", gpu->vmm.device,
        gib(needed), gib(gpu->limit), gib(gpu->limit > gpu->mapped ? gpu->limit - gpu->mapped : 0));
  } else if (free_bytes >= needed) {
    return set_message(MEMPROF_DEVICE_FAILED, "the driver refused to map %.2f GiB on GPU %d, which has %.2f GiB free: nothing was resumed", gib(needed),
               gpu->vmm.device, gib(free_bytes));
  } else {
    set_message(MEMPROF_NO_MEMORY, "no memory to resume on GPU %d: %.2f GiB are needed and %.2f GiB free", gpu->vmm.device, gib(needed), gib(free_bytes));
  }
  add_users(gpu, total - free_bytes);
  return MEMPROF_NO_MEMORY;
}

static int resume_selected(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) leave_out_free(selection->arenas[i]);
  struct gpu *lacking = map_all(selection);
  for (int tries = 0; lacking != NULL && tries < selection->gpu_count && make_way(selection, lacking); tries++) lacking = map_all(selection);
  if (lacking != NULL) return missing_memory(selection, lacking);
  for (size_t i = 0; i < selection->count; i++) {
    if (backup_restore(selection->arenas[i])) continue;
    unmap_again(selection);
    return set_message(MEMPROF_DEVICE_FAILED, "the content could not be copied back: nothing was resumed");
  }
  return MEMPROF_OK;
}

static int resume_tags(const char *const *names, size_t count, int keep) {
  struct selection selection;
  const uint64_t started = clock_now();
  message[0] = '\0';
  int result = select_arenas(&selection, names, count, true);
  if (result == MEMPROF_OK && (result = resume_selected(&selection)) != MEMPROF_OK) write_failures(&selection, MEMPROF_RESUME, started);
  for (size_t i = 0; result == MEMPROF_OK && i < selection.count; i++) {
    struct arena *arena = selection.arenas[i];
    event(arena, MEMPROF_RESUME, started, paused_bytes(arena), NULL);
    arena->paused = false;
    count_arena(arena, 1);
    if (keep == 0) backup_drop(arena);
    forget_ranges(arena);
  }
  for (int i = 0; result == MEMPROF_OK && i < selection.gpu_count; i++) tag_drop_spares(selection.gpus[i]);
  end_selection(&selection);
  return result;
}

int memprof_resume(const char *const *names, size_t count, int keep) {
  if (!hook_on()) return set_message(MEMPROF_NOT_ACTIVE, "memprof's allocator is not at work in this process");
  if (!captures_hold()) return set_message(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured");
  const int result = resume_tags(names, count, keep);
  captures_let();
  return result;
}
