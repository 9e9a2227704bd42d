// resume.c - maps the memory of paused tags again, at the same addresses, with their content. See pause.h.
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/pool.h"
#include "arena/reclaim.h"
#include "arena/selection.h"
#include "base/clock.h"
#include "base/hook.h"
#include "device/captures.h"
#include "memprof.h"

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
  if (arena_pinned(arena)) return;  // replayed graphs use free memory of the pool
  // Room for the ranges that are left: each free range divides one of them at most.
  struct byte_ranges left = {.room = arena->pause->range_count};
  bfc_free_mapped(arena->bfc, &left.room, count_one);
  left.list = left.room == 0 ? NULL : malloc(left.room * sizeof *left.list);
  if (left.list == NULL) return;  // all is mapped then
  for (size_t i = 0; i < arena->pause->range_count; i++) {
    struct search search = {.within = arena->pause->ranges[i], .unit = arena->gpu->vmm.granularity};
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
  free(arena->pause->ranges);
  arena->pause->ranges = left.list;
  arena->pause->range_count = left.count;
}

// The whole pages of the live blocks that are larger than a handle, in the order of addresses.
struct large {
  struct byte_ranges blocks;
  uint64_t unit, handle;  // bytes of a page and of a handle
};

static void append_large(void *self, const struct bfc_chunk_info *chunk) {
  struct large *large = self;
  const uint64_t from = (chunk->addr + large->unit - 1) & ~(large->unit - 1), to = (chunk->addr + chunk->size) & ~(large->unit - 1);
  if (!chunk->free && to > from + large->handle) byte_ranges_append(&large->blocks, from, to - from);
}

#define LARGEST_HANDLE ((uint64_t)8 << 30)

// Maps a range: its large blocks in a handle each, or several of LARGEST_HANDLE, the rest in handles of the arena's
// size. *at is the first block that may lie in the range.
static bool map_range(struct arena *arena, const struct byte_range *range, const struct large *large, size_t *at) {
  const uint64_t end = range->addr + range->bytes;
  for (uint64_t from = range->addr, to; from < end; from = to) {
    while (*at < large->blocks.count && large->blocks.list[*at].addr < from) ++*at;
    const struct byte_range *next = *at < large->blocks.count ? &large->blocks.list[*at] : NULL;
    const bool whole = next != NULL && next->addr == from && next->bytes <= end - from;
    to = whole ? from + next->bytes : next != NULL && next->addr > from && next->addr < end ? next->addr : end;
    arena->memory.vmm.handle_bytes = !whole ? large->handle : next->bytes < LARGEST_HANDLE ? next->bytes : LARGEST_HANDLE;
    if (vmm_map(&arena->memory.vmm, from, to - from)) continue;
    arena->memory.vmm.handle_bytes = large->handle;  // a driver may refuse one that large
    if (!whole || !vmm_map(&arena->memory.vmm, from, to - from)) return false;
  }
  return true;
}

// Three driver calls a handle are most of the time that a resume without copies takes, so a large block gets one
// handle: it is unmapped as a whole anyway.
static bool map_arena(struct arena *arena) {
  arena_set_handle(arena, UINT64_MAX, 0);
  struct large large = {.blocks = {.apart = true}, .unit = arena->gpu->vmm.granularity, .handle = arena->memory.vmm.handle_bytes};
  if (!arena->gpu->shortage) bfc_walk(arena->bfc, &large, append_large);
  size_t at = 0;
  bool ok = true;
  for (size_t i = 0; ok && i < arena->pause->range_count; i++) ok = map_range(arena, &arena->pause->ranges[i], &large, &at);
  arena->memory.vmm.handle_bytes = large.handle;
  free(large.blocks.list);
  return ok;
}

static void unmap_again(const struct selection *selection) {
  for (size_t i = 0; i < selection->count; i++) vmm_release(&selection->arenas[i]->memory.vmm, 0, selection->arenas[i]->memory.vmm.count);
}

static uint64_t paused_bytes(const struct arena *arena) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < arena->pause->range_count; i++) bytes += arena->pause->ranges[i].bytes;
  return bytes;
}

static uint64_t needed_on(const struct selection *selection, const struct gpu *gpu) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < selection->count; i++) {
    if (selection->arenas[i]->gpu == gpu) bytes += paused_bytes(selection->arenas[i]);
  }
  return bytes;
}

// Whether the device cannot map so much: beyond its limit, or clearly beyond its free memory. On an H200 a resume that
// found out by mapping took 9 s to be refused. What lacks little is tried: the driver counts some memory late.
static bool lacks(const struct gpu *gpu, uint64_t needed) {
  enum { LITTLE = 64 << 20 };
  uint64_t free_bytes, total;
  if (!gpu_allows(gpu, needed)) return true;
  return driver_memory(gpu->vmm.device, &free_bytes, &total) && free_bytes + LITTLE < needed;
}

// Maps all selected arenas. Returns NULL, or the device that lacks memory; then nothing is mapped.
static struct gpu *map_all(const struct selection *selection) {
  for (int i = 0; i < selection->gpu_count; i++) {
    if (lacks(selection->gpus[i], needed_on(selection, selection->gpus[i]))) return selection->gpus[i];
  }
  struct gpu *lacking = NULL;
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
  if (above > lack) lack = above;
  return lack > 0 && reclaim_can(gpu) && reclaim_clear(gpu, lack, "resume") > 0;
}

// Two tags may have one name, with different restore modes.
static bool same_name(const struct tag *a, const struct tag *b) { return a != NULL && b != NULL && strcmp(a->name, b->name) == 0; }

// Adds to the message who uses the memory of a device: others, and each resident tag.
static void add_users(const struct gpu *gpu, uint64_t used) {
  uint64_t tagged = 0;
  pause_add_message("; others use %.2f GiB", pause_gib(used > gpu->mapped ? used - gpu->mapped : 0));
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    uint64_t bytes = 0;
    const struct arena *same = gpu->arenas;
    while (same != arena && !same_name(same->tag, arena->tag)) same = same->next;
    if (arena->tag == NULL || same != arena) continue;  // each tag once
    for (; same != NULL; same = same->next) bytes += same_name(same->tag, arena->tag) ? same->memory.vmm.mapped : 0;
    if (bytes > 0) pause_add_message(", the tag %s %.2f GiB", arena->tag->label, pause_gib(bytes));
    tagged += bytes;
  }
  pause_add_message(", requests of no tag %.2f GiB", pause_gib(gpu->mapped > tagged ? gpu->mapped - tagged : 0));
}

static int missing_memory(const struct selection *selection, const struct gpu *gpu) {
  const uint64_t needed = needed_on(selection, gpu);
  uint64_t free_bytes, total;
  driver_memory(gpu->vmm.device, &free_bytes, &total);
  if (!gpu_allows(gpu, needed)) {
    pause_fail(MEMPROF_NO_MEMORY, "no memory to resume on GPU %d: %.2f GiB are needed, and of the limit of %.2f GiB that was set %.2f GiB are left", gpu->vmm.device,
        pause_gib(needed), pause_gib(gpu->limit), pause_gib(gpu->limit > gpu->mapped ? gpu->limit - gpu->mapped : 0));
  } else if (free_bytes >= needed) {
    return pause_fail(MEMPROF_DEVICE_FAILED, "the driver refused to map %.2f GiB on GPU %d, which has %.2f GiB free: nothing was resumed", pause_gib(needed),
               gpu->vmm.device, pause_gib(free_bytes));
  } else {
    pause_fail(MEMPROF_NO_MEMORY, "no memory to resume on GPU %d: %.2f GiB are needed and %.2f GiB free", gpu->vmm.device, pause_gib(needed), pause_gib(free_bytes));
  }
  add_users(gpu, total - free_bytes);
  return MEMPROF_NO_MEMORY;
}

// Maps all selected arenas, after others have made way if they must. Returns NULL, or the device that lacks memory.
static struct gpu *map_making_way(const struct selection *selection) {
  struct gpu *lacking = map_all(selection);
  for (int tries = 0; lacking != NULL && tries < selection->gpu_count && make_way(selection, lacking); tries++) lacking = map_all(selection);
  return lacking;
}

// The same; pages without a block are mapped, too, if `free_too` and the device has the memory.
static struct gpu *map_selected(const struct selection *selection, bool free_too) {
  for (size_t i = 0; i < selection->count; i++) {
    if (!free_too || bfc_in_use(selection->arenas[i]->bfc) == 0) leave_out_free(selection->arenas[i]);
  }
  struct gpu *lacking = free_too ? map_all(selection) : NULL;
  if (free_too && lacking == NULL) return NULL;
  for (size_t i = 0; free_too && i < selection->count; i++) leave_out_free(selection->arenas[i]);
  return map_making_way(selection);
}

static int resume_selected(const struct selection *selection, int flags) {
  const struct gpu *lacking = map_selected(selection, (flags & MEMPROF_MAP_FREE) != 0);
  if (lacking != NULL) return missing_memory(selection, lacking);
  enum backup_result result = BACKUP_OK;
  for (size_t i = 0; result == BACKUP_OK && i < selection->count; i++) result = backup_restore(selection->arenas[i]);
  if (result == BACKUP_OK) return MEMPROF_OK;
  unmap_again(selection);
  if (result == BACKUP_NO_HOST_MEMORY) return pause_fail(MEMPROF_NO_HOST_MEMORY, "no host memory to copy the content back: nothing was resumed");
  return pause_fail(MEMPROF_DEVICE_FAILED, "the content could not be copied back: nothing was resumed");
}

// `last`: a failure for want of memory is reported, as no other attempt follows.
static int resume_tags(const char *const *names, size_t count, int flags, bool last) {
  struct selection selection;
  const uint64_t started = clock_now();
  pause_clear_message();
  int result = selection_begin(&selection, names, count, true);
  if (result == MEMPROF_OK) {
    result = resume_selected(&selection, flags);
    if (result != MEMPROF_OK && (last || result != MEMPROF_NO_MEMORY)) pause_write_failures(&selection, MEMPROF_RESUME, started);
  }
  for (size_t i = 0; result == MEMPROF_OK && i < selection.count; i++) {
    struct arena *arena = selection.arenas[i];
    pause_event(arena, MEMPROF_RESUME, started, paused_bytes(arena), (flags & MEMPROF_MAP_FREE) != 0 ? "free" : NULL, "1");
    arena->paused = false;
    pause_count(arena, 1);
    if ((flags & MEMPROF_KEEP_COPIES) == 0) backup_end(arena);
    pause_forget_ranges(arena);
  }
  for (int i = 0; result == MEMPROF_OK && i < selection.gpu_count; i++) tag_drop_spares(selection.gpus[i]);
  selection_end(&selection);
  return result;
}

int memprof_resume(const char *const *names, size_t count, int flags) {
  if (!hook_on()) return pause_fail(MEMPROF_NOT_ACTIVE, "memprof's allocator is not at work in this process");
  if (!captures_hold()) return pause_fail(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured");
  int result = resume_tags(names, count, flags, false);
  captures_let();
  if (result != MEMPROF_NO_MEMORY) return result;
  // What others have freed may make way once nobody can read it any more: the device is waited for, without a lock.
  fence_wait_for_all();
  if (!captures_hold()) return pause_fail(MEMPROF_IN_CAPTURE, "a CUDA graph is being captured");
  result = resume_tags(names, count, flags, true);
  captures_let();
  return result;
}
