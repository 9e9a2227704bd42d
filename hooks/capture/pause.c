// pause.c - see pause.h.
#include "pause.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "clock.h"
#include "hook.h"
#include "host.h"
#include "interpose.h"
#include "memprof.h"
#include "pool.h"
#include "problem.h"
#include "spool.h"

enum { MOST_GPUS = 64, DEEPEST = 64, NON_BLOCKING = 1 };

static __thread char said[512];

const char *memprof_pause_message(void) { return said; }

// What one call is about: the arenas of its tags, by address, with their devices locked.
struct selection {
  struct arena **arenas;
  size_t count, room;
  struct gpu *gpus[MOST_GPUS];
  int gpu_count;
};

static int say(int result, const char *format, const char *text, uint64_t a, uint64_t b) {
  snprintf(said, sizeof said, format, text, (double)a / (double)((uint64_t)1 << 30), (double)b / (double)((uint64_t)1 << 30));
  return result;
}

static bool wanted(const struct tag *tag, const char *const *names, size_t count) {
  if (tag == NULL) return false;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(names[i], tag->name) == 0) return true;
  }
  return count == 0;
}

static bool add(struct selection *selection, struct arena *arena) {
  if (selection->count == selection->room) {
    const size_t larger = selection->room == 0 ? 16 : 2 * selection->room;
    struct arena **moved = realloc(selection->arenas, larger * sizeof *moved);
    if (moved == NULL) return false;
    selection->arenas = moved;
    selection->room = larger;
  }
  selection->arenas[selection->count++] = arena;
  return true;
}

static int by_address(const void *left, const void *right) {
  const uint64_t a = (*(struct arena *const *)left)->vmm.reservations[0].addr, b = (*(struct arena *const *)right)->vmm.reservations[0].addr;
  return (a > b) - (a < b);
}

static void give_up(struct selection *selection) {
  for (int i = selection->gpu_count; i-- > 0;) lock_give(&selection->gpus[i]->lock);
  free(selection->arenas);
}

// The arenas of the tags that are paused, or that are not; every name must have one.
static int select_arenas(struct selection *selection, const char *const *names, size_t count, bool paused) {
  memset(selection, 0, sizeof *selection);
  for (int device = 0; device < MOST_GPUS; device++) {
    struct gpu *gpu = gpu_existing(device);
    if (gpu == NULL) continue;
    lock_take(&gpu->lock);
    selection->gpus[selection->gpu_count++] = gpu;
    for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
      if (arena->paused != paused || !wanted(arena->tag, names, count)) continue;
      if (!add(selection, arena)) return say(MEMPROF_NO_HOST_MEMORY, "no host memory for the list of arenas%s", "", 0, 0);
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (!tag_known(names[i])) return say(MEMPROF_UNKNOWN_TAG, "no region was ever opened with the tag \"%s\"", names[i], 0, 0);
    bool found = false;
    for (size_t k = 0; k < selection->count && !found; k++) found = strcmp(selection->arenas[k]->tag->name, names[i]) == 0;
    if (found) continue;
    return say(MEMPROF_WRONG_STATE, paused ? "the tag \"%s\" is not paused" : "the tag \"%s\" has nothing that is not paused", names[i], 0, 0);
  }
  if (selection->count == 0) return say(MEMPROF_WRONG_STATE, paused ? "nothing is paused%s" : "no tag has anything to pause%s", "", 0, 0);
  qsort(selection->arenas, selection->count, sizeof *selection->arenas, by_address);
  return MEMPROF_OK;
}

// What a step does to one arena; false stops, and the call is undone.
typedef bool step(struct arena *arena);

static bool on_all(const struct selection *selection, step *step) {
  for (size_t i = 0; i < selection->count; i++) {
    if (!step(selection->arenas[i])) return false;
  }
  return true;
}

static bool wait_for_device(const struct selection *selection) {
  for (int i = 0; i < selection->gpu_count; i++) {
    selection->gpus[i]->stats.syncs++;
    if (!driver_synchronize(selection->gpus[i]->vmm.device)) return false;
  }
  for (size_t i = 0; i < selection->count; i++) pending_poll(selection->arenas[i], true);
  return true;
}

static void drop_copies(struct arena *arena) {
  for (size_t i = 0; i < arena->copy_count; i++) host_give(&arena->copies[i]);
  free(arena->copies);
  arena->copies = NULL;
  arena->copy_count = 0;
}

// Stretches of live blocks, neighbours joined.
struct stretches {
  struct paused_range *list;
  size_t count, room;
  bool short_of_memory;
};

static void append(struct stretches *to, uint64_t addr, uint64_t bytes) {
  if (to->count > 0 && to->list[to->count - 1].addr + to->list[to->count - 1].bytes == addr) {
    to->list[to->count - 1].bytes += bytes;
    return;
  }
  if (to->count == to->room) {
    const size_t larger = to->room == 0 ? 64 : 2 * to->room;
    struct paused_range *moved = realloc(to->list, larger * sizeof *moved);
    to->short_of_memory |= moved == NULL;
    if (moved == NULL) return;
    to->list = moved;
    to->room = larger;
  }
  to->list[to->count++] = (struct paused_range){addr, bytes};
}

static void append_live(void *self, const struct bfc_chunk_info *chunk) {
  if (!chunk->free) append(self, chunk->addr, chunk->size);
}

static bool same_stretches(const struct arena *arena, const struct stretches *live) {
  if (arena->copy_count != live->count) return false;
  for (size_t i = 0; i < live->count; i++) {
    if (arena->copies[i].addr != live->list[i].addr || arena->copies[i].bytes != live->list[i].bytes) return false;
  }
  return true;
}

static bool take_copies(struct arena *arena, const struct stretches *live) {
  arena->copies = calloc(live->count == 0 ? 1 : live->count, sizeof *arena->copies);
  if (arena->copies == NULL) return false;
  while (arena->copy_count < live->count) {
    const struct paused_range *stretch = &live->list[arena->copy_count];
    if (!host_take(&arena->copies[arena->copy_count], stretch->addr, stretch->bytes)) return false;
    arena->copy_count++;
  }
  return true;
}

// A stream of our own in the device's context, so that copies do not queue behind the job's.
static bool with_stream(struct arena *arena, const struct stretches *live, bool (*copy)(const struct arena *, const struct stretches *, void *)) {
  const struct driver *driver = driver_get();
  struct driver_scope scope;
  void *stream = NULL;
  if (!driver_enter(arena->gpu->vmm.device, &scope)) return false;
  bool ok = driver->stream_create != NULL && driver->stream_create(&stream, NON_BLOCKING) == DRIVER_OK;
  ok = ok && copy(arena, live, stream);
  // Also after a failure: what was queued still writes.
  if (stream != NULL) {
    ok = driver->stream_synchronize(stream) == DRIVER_OK && ok;
    driver->stream_destroy(stream);
  }
  driver_leave(&scope);
  return ok;
}

static bool copy_out(const struct arena *arena, const struct stretches *live, void *stream) {
  (void)live;
  for (size_t i = 0; i < arena->copy_count; i++) {
    if (!host_copy_out(&arena->copies[i], stream)) return false;
  }
  return true;
}

// Only to blocks that are still there. Both lists are in the order of addresses.
static bool copy_in(const struct arena *arena, const struct stretches *live, void *stream) {
  size_t at = 0;
  for (size_t i = 0; i < arena->copy_count; i++) {
    const struct host_copy *copy = &arena->copies[i];
    while (at < live->count && live->list[at].addr + live->list[at].bytes <= copy->addr) at++;
    for (size_t k = at; k < live->count && live->list[k].addr < copy->addr + copy->bytes; k++) {
      if (!host_copy_in(copy, live->list[k].addr, live->list[k].addr + live->list[k].bytes, stream)) return false;
    }
  }
  return true;
}

// Copies that were kept are good if the caller says that nothing has changed, and the blocks
// are the same.
static bool back_up(struct arena *arena, bool unchanged) {
  struct stretches live = {0};
  bfc_walk(arena->bfc, &live, append_live);
  bool ok = !live.short_of_memory;
  if (ok && !(unchanged && arena->copies != NULL && same_stretches(arena, &live))) {
    drop_copies(arena);
    ok = take_copies(arena, &live) && with_stream(arena, &live, copy_out);
    if (!ok) drop_copies(arena);
  }
  free(live.list);
  return ok;
}

static bool back_up_all(const struct selection *selection, bool unchanged) {
  for (size_t i = 0; i < selection->count; i++) {
    struct arena *arena = selection->arenas[i];
    if (arena->tag->backed_up && !back_up(arena, unchanged)) {
      for (size_t k = 0; k < i; k++) drop_copies(selection->arenas[k]);
      return false;
    }
  }
  return true;
}

static bool unmap_all(const struct selection *selection, size_t *arenas) {
  for (*arenas = 0; *arenas < selection->count; ++*arenas) {
    if (!vmm_detach(&selection->arenas[*arenas]->vmm)) return false;
  }
  return true;
}

// What is not reported as a leak here cannot be undone by anybody.
static uint64_t release_all(struct arena *arena) {
  struct stretches ranges = {0};
  for (size_t i = 0; i < arena->vmm.count; i++) append(&ranges, arena->vmm.mappings[i].addr, arena->vmm.mappings[i].bytes);
  arena->ranges = ranges.list;
  arena->range_count = ranges.count;
  return vmm_drop_detached(&arena->vmm);
}

static void event(const struct arena *arena, enum memprof_kind kind, uint64_t started, uint64_t bytes, const char *problem) {
  char text[sizeof said + 128];
  uint64_t copied = 0;
  for (size_t i = 0; i < arena->copy_count; i++) copied += arena->copies[i].bytes;
  snprintf(text, sizeof text, "tag=%s%s%s", arena->tag->label, problem == NULL ? "" : "\tfailed=", problem == NULL ? "" : problem);
  arena_event(arena, kind, clock_now() - started, bytes, copied, spool_string(text));
}

static void tell_failure(const struct selection *selection, enum memprof_kind kind, uint64_t started) {
  for (size_t i = 0; i < selection->count; i++) event(selection->arenas[i], kind, started, 0, said);
}

// Paused memory and its blocks leave the accounts: the device has it back.

struct sums {
  int64_t blocks, requested, provided;
};

static void add_block(void *self, const struct bfc_chunk_info *chunk) {
  struct sums *sums = self;
  if (chunk->free) return;
  sums->blocks++;
  sums->requested += (int64_t)chunk->requested;
  sums->provided += (int64_t)chunk->size;
}

static void move(struct memprof_stat *stat, int64_t amount) {
  stat->current += amount;
  if (stat->current > stat->peak) stat->peak = stat->current;
}

static void account(struct arena *arena, int64_t sign) {
  struct memprof_stats *stats = &arena->gpu->stats;
  struct sums sums = {0};
  bfc_walk(arena->bfc, &sums, add_block);
  const int64_t mapped = (int64_t)arena->vmm.mapped, handles = (int64_t)arena->vmm.count;
  move(&stats->allocation, sign * sums.blocks);
  move(&stats->active, sign * sums.blocks);
  move(&stats->requested_bytes, sign * sums.requested);
  move(&stats->allocated_bytes, sign * sums.provided);
  move(&stats->active_bytes, sign * sums.provided);
  move(&stats->reserved_bytes, sign * mapped);
  move(&stats->inactive_bytes, sign * (mapped - sums.provided));
  move(&stats->segment, sign * handles);
  if (sign > 0) stats->device_allocs += handles;
  if (sign < 0) stats->device_frees += handles;
  arena->gpu->mapped += (uint64_t)(sign * mapped);
}

static uint64_t mapped_bytes(const struct selection *selection) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < selection->count; i++) bytes += selection->arenas[i]->vmm.mapped;
  return bytes;
}

static int check_pausable(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) {
    const struct arena *arena = selection->arenas[i];
    if (arena->grant_count > 0) return say(MEMPROF_WRONG_STATE, "the tag \"%s\" has memory of an allocator that is not memprof's", arena->tag->name, 0, 0);
    if (arena->home != NULL && !arena->tag->backed_up) {
      return say(MEMPROF_NO_BACKUP, "the tag \"%s\" has memory of CUDA graphs, which would replay garbage: give it a backup", arena->tag->name, 0, 0);
    }
  }
  return MEMPROF_OK;
}

static int pause_selected(const struct selection *selection, bool unchanged) {
  int result = check_pausable(selection);
  if (result != MEMPROF_OK) return result;
  if (!wait_for_device(selection)) return say(MEMPROF_DEVICE_FAILED, "the device could not be waited for%s", "", 0, 0);
  if (!back_up_all(selection, unchanged)) {
    uint64_t kept, used;
    host_usage(&kept, &used);
    return say(MEMPROF_NO_HOST_MEMORY, "no pinned host memory for the copies%s: %.2f GiB are mapped, %.2f GiB of host memory are pinned already", "",
               mapped_bytes(selection), kept);
  }
  size_t arenas;
  if (!unmap_all(selection, &arenas)) {
    bool restored = true;
    for (size_t i = 0; i <= arenas; i++) restored = vmm_attach(&selection->arenas[i]->vmm) && restored;
    if (!restored) problem("memory that could not be unmapped as a whole could not be mapped back either");
    for (size_t i = 0; i < selection->count; i++) drop_copies(selection->arenas[i]);
    return say(MEMPROF_DEVICE_FAILED, "the driver refused to unmap%s: nothing was paused", "", 0, 0);
  }
  return MEMPROF_OK;
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

// Released memory stays with the device's users as long as anybody else maps it: a process that
// was given a block, say.
static void compare(const struct selection *selection, uint64_t free_before, uint64_t released) {
  const uint64_t now = free_memory(selection), more = now > free_before ? now - free_before : 0;
  if (more >= released) return;
  problem("the pause of \"%s\"%s released %.2f GiB, yet only %.2f GiB more are free: somebody still maps the rest, or took it at once",
          selection->arenas[0]->tag->name, selection->count > 1 ? " and others" : "", (double)released / (1 << 30), (double)more / (1 << 30));
}

int memprof_pause(const char *const *names, size_t count, int unchanged) {
  if (!hook_on()) return say(MEMPROF_NOT_ACTIVE, "memprof's allocator is not at work in this process%s", "", 0, 0);
  if (interpose_capturing()) return say(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured%s", "", 0, 0);
  struct selection selection;
  const uint64_t started = clock_now();
  int result = select_arenas(&selection, names, count, false);
  if (result == MEMPROF_OK && (result = pause_selected(&selection, unchanged != 0)) != MEMPROF_OK) tell_failure(&selection, MEMPROF_PAUSE, started);
  const uint64_t free_before = result == MEMPROF_OK ? free_memory(&selection) : 0;
  uint64_t leaked = 0, total = 0;
  for (size_t i = 0; result == MEMPROF_OK && i < selection.count; i++) {
    struct arena *arena = selection.arenas[i];
    const uint64_t bytes = arena->vmm.mapped;
    account(arena, -1);
    arena->paused = true;
    leaked += release_all(arena);
    total += bytes;
    event(arena, MEMPROF_PAUSE, started, bytes, NULL);
  }
  if (result == MEMPROF_OK) compare(&selection, free_before, total);
  give_up(&selection);
  if (leaked == 0) return result;
  problem("%llu bytes of paused memory could not be released and are lost to the device", (unsigned long long)leaked);
  return say(MEMPROF_LEAKED, "paused%s, but of %.2f GiB the driver did not take back %.2f GiB", "", total, leaked);
}

// Granules that are free in the heap are not taken again. Their addresses come back with the
// next request that needs them.
struct search {
  struct paused_range within, found;  // found.bytes = 0: nothing yet
  uint64_t unit;
};

static void find_granules(void *self, uint64_t addr, uint64_t bytes) {
  struct search *search = self;
  const uint64_t end = search->within.addr + search->within.bytes, last = addr + bytes < end ? addr + bytes : end;
  const uint64_t first = addr > search->within.addr ? addr : search->within.addr;
  const uint64_t from = (first + search->unit - 1) & ~(search->unit - 1), to = last & ~(search->unit - 1);
  if (search->found.bytes == 0 && from < to) search->found = (struct paused_range){from, to - from};
}

static void leave_out_free(struct arena *arena) {
  if (pool_pins(arena)) return;  // graphs write there when they are replayed
  struct stretches left = {0};
  for (size_t i = 0; i < arena->range_count; i++) {
    struct search search = {.within = arena->ranges[i], .unit = arena->gpu->vmm.granularity};
    for (;;) {
      search.found.bytes = 0;
      bfc_free_mapped(arena->bfc, &search, find_granules);
      if (search.found.bytes == 0 || !bfc_unmap(arena->bfc, search.found.addr, search.found.bytes)) break;
      arena_event(arena, MEMPROF_UNMAP, search.found.addr, 0, search.found.bytes, 0);
      const uint64_t before = search.found.addr - search.within.addr;
      if (before > 0) append(&left, search.within.addr, before);
      search.within.addr += before + search.found.bytes;
      search.within.bytes -= before + search.found.bytes;
    }
    if (search.within.bytes > 0) append(&left, search.within.addr, search.within.bytes);
  }
  if (left.short_of_memory) {
    problem("no host memory to resume without what is free: the tag \"%s\" takes it as well", arena->tag->name);
    free(left.list);
    return;
  }
  free(arena->ranges);
  arena->ranges = left.list;
  arena->range_count = left.count;
}

static bool map_arena(struct arena *arena) {
  for (size_t i = 0; i < arena->range_count; i++) {
    if (!vmm_map(&arena->vmm, arena->ranges[i].addr, arena->ranges[i].bytes)) return false;
  }
  return true;
}

static uint64_t paused_bytes(const struct arena *arena) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < arena->range_count; i++) bytes += arena->ranges[i].bytes;
  return bytes;
}

static bool copy_back(struct arena *arena) {
  if (arena->copy_count == 0) return true;
  struct stretches live = {0};
  bfc_walk(arena->bfc, &live, append_live);
  const bool ok = !live.short_of_memory && with_stream(arena, &live, copy_in);
  free(live.list);
  return ok;
}

static int missing_memory(const struct selection *selection) {
  uint64_t needed = 0, free_bytes = 0, total = 0;
  const struct gpu *gpu = selection->arenas[0]->gpu;
  for (size_t i = 0; i < selection->count; i++) needed += paused_bytes(selection->arenas[i]);
  driver_memory(gpu->vmm.device, &free_bytes, &total);
  char text[256];
  snprintf(text, sizeof text, "on GPU %d: %.2f GiB are needed and %.2f GiB free; %.2f GiB are mapped by memprof, %.2f GiB used by others", gpu->vmm.device,
           (double)needed / (1 << 30), (double)free_bytes / (1 << 30), (double)gpu->mapped / (1 << 30),
           (double)(total - free_bytes > gpu->mapped ? total - free_bytes - gpu->mapped : 0) / (1 << 30));
  return say(MEMPROF_NO_MEMORY, "no memory to resume %s", text, 0, 0);
}

static int resume_selected(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) leave_out_free(selection->arenas[i]);
  int result = MEMPROF_OK;
  if (!on_all(selection, map_arena)) result = missing_memory(selection);
  if (result == MEMPROF_OK && !on_all(selection, copy_back)) result = say(MEMPROF_DEVICE_FAILED, "the content could not be copied back%s", "", 0, 0);
  if (result == MEMPROF_OK) return result;
  for (size_t i = 0; i < selection->count; i++) vmm_release(&selection->arenas[i]->vmm, 0, selection->arenas[i]->vmm.count);
  return result;
}

int memprof_resume(const char *const *names, size_t count, int keep) {
  if (!hook_on()) return say(MEMPROF_NOT_ACTIVE, "memprof's allocator is not at work in this process%s", "", 0, 0);
  if (interpose_capturing()) return say(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured%s", "", 0, 0);
  struct selection selection;
  const uint64_t started = clock_now();
  int result = select_arenas(&selection, names, count, true);
  if (result == MEMPROF_OK && (result = resume_selected(&selection)) != MEMPROF_OK) tell_failure(&selection, MEMPROF_RESUME, started);
  for (size_t i = 0; result == MEMPROF_OK && i < selection.count; i++) {
    struct arena *arena = selection.arenas[i];
    event(arena, MEMPROF_RESUME, started, paused_bytes(arena), NULL);
    arena->paused = false;
    account(arena, 1);
    if (keep == 0) drop_copies(arena);
    free(arena->ranges);
    arena->ranges = NULL;
    arena->range_count = 0;
  }
  give_up(&selection);
  return result;
}
