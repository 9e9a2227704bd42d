// reclaim.c - see reclaim.h.
#include "arena/reclaim.h"

#include <stdlib.h>

#include "arena/shortage.h"
#include "arena/streams.h"
#include "base/array.h"
#include "base/options.h"
#include "device/captures.h"
#include "spool/spool.h"

// Free mapped ranges of an arena, collected before anything is changed.
struct ranges {
  struct {
    uint64_t addr, bytes;
  } *list;
  size_t count, room;
};

static void collect(void *self, uint64_t addr, uint64_t bytes) {
  struct ranges *ranges = self;
  if (!array_reserve(&ranges->list, &ranges->room, ranges->count + 1, sizeof *ranges->list)) return;  // less is unmapped
  ranges->list[ranges->count].addr = addr;
  ranges->list[ranges->count++].bytes = bytes;
}

static bool registered(const struct vmm *vmm, size_t at) { return vmm_is_registered(vmm, vmm->mappings[at].addr, vmm->mappings[at].bytes); }

// The mappings [*first, *last) that lie wholly in a range, and the bytes of those that can be unmapped.
static uint64_t whole_handles(const struct vmm *vmm, uint64_t addr, uint64_t bytes, size_t *first, size_t *last) {
  uint64_t sum = 0;
  *first = vmm_find(vmm, addr);
  if (*first < vmm->count && vmm->mappings[*first].addr < addr) ++*first;
  for (*last = *first; *last < vmm->count; ++*last) {
    const struct vmm_mapping *mapping = &vmm->mappings[*last];
    if (mapping->addr + mapping->bytes > addr + bytes) break;
    if (!registered(vmm, *last)) sum += mapping->bytes;
  }
  return sum;
}

static void measure(void *self, uint64_t addr, uint64_t bytes) {
  const struct arena *arena = ((void **)self)[0];
  uint64_t *sum = ((void **)self)[1];
  size_t first, last;
  *sum += whole_handles(&arena->vmm, addr, bytes, &first, &last);
}

uint64_t reclaimable_of(const struct arena *arena) {
  uint64_t sum = 0;
  if (pool_pins(arena)) return 0;
  const void *self[] = {arena, &sum};
  bfc_free_mapped(arena->bfc, self, measure);
  return sum + arena->vmm.loose_bytes;
}

static uint64_t reclaimable(const struct gpu *gpu) {
  uint64_t sum = 0;
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) sum += reclaimable_of(arena);
  return sum;
}

static bool anything_pending(const struct gpu *gpu) {
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (arena->pending.count > 0) return true;
  }
  return false;
}

// Releases the mappings [from, last), which are adjacent and make `sum` bytes of a free range.
static bool release_run(struct arena *arena, size_t from, size_t last, uint64_t sum) {
  const uint64_t start = arena->vmm.mappings[from].addr;
  const int64_t handles = (int64_t)(last - from);
  if (!bfc_unmap(arena->bfc, start, sum)) return false;
  vmm_release(&arena->vmm, from, last);
  arena_unmapped(arena, start, sum, handles);
  return true;
}

// Releases handles that lie completely in one free range, from its end on, and adds their bytes to *given. All of the
// range is mapped, so that mappings between two registered ones are adjacent.
static void release_in(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted, uint64_t *given) {
  size_t first, last;
  whole_handles(&arena->vmm, addr, bytes, &first, &last);
  for (size_t from; last > first && *given < wanted; last = from) {
    uint64_t sum = 0;
    for (from = last; from > first && *given + sum < wanted && !registered(&arena->vmm, from - 1); from--) sum += arena->vmm.mappings[from - 1].bytes;
    if (from == last)
      from--;  // it is registered
    else if (!release_run(arena, from, last, sum))
      return;
    else
      *given += sum;
  }
}

static void release_from(struct arena *arena, uint64_t wanted, uint64_t *given) {
  struct ranges ranges = {0};
  bfc_free_mapped(arena->bfc, &ranges, collect);
  for (size_t i = ranges.count; i > 0 && *given < wanted; i--) {
    release_in(arena, ranges.list[i - 1].addr, ranges.list[i - 1].bytes, wanted, given);
  }
  free(ranges.list);
}

uint64_t reclaimable_within(const struct arena *arena, uint64_t addr, uint64_t bytes) {
  size_t first, last;
  return whole_handles(&arena->vmm, addr, bytes, &first, &last);
}

uint64_t reclaim_range(struct arena *arena, uint64_t addr, uint64_t bytes, uint64_t wanted) {
  uint64_t given = 0;
  release_in(arena, addr, bytes, wanted, &given);
  return given;
}

void reclaim_all(struct arena *arena) {
  uint64_t given = 0;
  release_from(arena, UINT64_MAX, &given);
}

// Waits for the device, since kernels may still use what was freed in stream order, and holds captures back.
// False: it cannot be waited for, so that nothing can be unmapped; then captures are not held.
static bool wait_for(struct gpu *gpu) {
  if (!captures_hold()) return false;
  gpu->stats.syncs++;
  if (driver_synchronize(gpu->vmm.device)) {
    fence_waited(gpu);
    return true;
  }
  captures_let();
  return false;
}

// What was waited for.
enum waited { NOTHING, STREAMS, DEVICE };

// Waits for as little as a request needs for a second attempt: for streams whose arenas hold what it lacks beyond what can be
// mapped as it is, or else for the device. Then captures are held back.
static enum waited wait_enough(struct gpu *gpu, struct arena *arena, uint64_t wanted) {
  if (arena != NULL && wanted != UINT64_MAX && captures_hold()) {
    const uint64_t room = arena_room(arena);
    if (streams_wait(gpu, wanted > room ? wanted - room : 0)) return STREAMS;
    captures_let();
  }
  return wait_for(gpu) ? DEVICE : NOTHING;
}

// Releases what a request lent during a capture, when nothing could be waited for, and did not map.
static void release_lent(struct arena *arena, uint64_t *given) {
  *given += arena->vmm.loose_bytes;
  vmm_release_lent(&arena->vmm);
}

static uint64_t release_free(struct gpu *gpu, uint64_t wanted, enum waited waited) {
  uint64_t given = 0;
  for (struct arena *each = gpu->arenas; each != NULL && given < wanted; each = each->next) {
    if (pool_pins(each) || (waited != DEVICE && !fence_covers(each))) continue;
    release_lent(each, &given);
    release_from(each, wanted, &given);
  }
  return given;
}

// The device was waited for: frees pending blocks and ends pools.
static void finish_pending(struct gpu *gpu) {
  for (struct arena *each = gpu->arenas; each != NULL; each = each->next) pending_poll(each, true);
  pool_sweep(gpu);
}

// Whether no amount of free memory can serve a request: it exceeds the device, its arena's limit, or what live
// blocks leave of the limit that the program has set. It begins no shortage, since programs make such requests to
// find out how much they can get.
static bool hopeless(const struct gpu *gpu, const struct arena *arena, uint64_t requested) {
  const bool limited = arena != NULL && arena->stream == NULL && arena->home == NULL && arena->tag == NULL;
  const uint64_t limit = options_get()->policy.limit, live = (uint64_t)gpu->stats.requested.current;
  return requested > gpu->vmm.total || (limited && limit != 0 && requested > limit) || (gpu->limit != 0 && live + requested > gpu->limit);
}

uint64_t reclaim(struct gpu *gpu, struct arena *arena, uint64_t requested, uint64_t wanted, const char *why, bool *retry) {
  const bool shortage = requested > 0 && !hopeless(gpu, arena, requested) && shortage_due(gpu);
  *retry = shortage || anything_pending(gpu) || reclaimable(gpu) > 0 || pool_waits(gpu);
  if (!*retry) return 0;
  // This comes before the event, which announces a second attempt: without the wait there may be none.
  const enum waited waited = wait_enough(gpu, arena, wanted);
  *retry = waited != NOTHING || shortage;
  if (!*retry) return 0;
  spool_write(&(struct spool_event){
      .kind = MEMPROF_RECLAIM,
      .device = gpu->vmm.device,
      .arena = arena == NULL ? MEMPROF_NO_ARENA : arena->id,
      .stream = arena == NULL ? 0 : (int64_t)(intptr_t)arena->stream,
      .requested = requested,
      .context = spool_string(waited == STREAMS ? "streams" : why),
  });
  if (waited == DEVICE) finish_pending(gpu);
  if (shortage) shortage_begin(gpu);
  if (waited == NOTHING) return 0;
  captures_let();  // what was free when the device or the streams had finished may be unmapped during a capture
  return release_free(gpu, wanted, waited);
}

uint64_t reclaim_lack(const struct gpu *gpu, uint64_t bytes) {
  const uint64_t above = gpu->limit != 0 && gpu->mapped > gpu->limit ? gpu->mapped - gpu->limit : 0;
  return above + bytes + gpu->vmm.granularity;
}

bool reclaim_for_other_library(int device, uint64_t bytes) {
  struct gpu *gpu = gpu_existing(device);
  if (gpu == NULL) return false;
  uint64_t free_bytes, total;
  driver_memory(device, &free_bytes, &total);
  bool retry;
  lock_take(&gpu->lock);
  // A page more than the device lacks, since the driver rounds the other library's request up.
  const uint64_t lack = (bytes > free_bytes ? bytes - free_bytes : 0) + gpu->vmm.granularity;
  const uint64_t given = reclaim(gpu, NULL, bytes, lack, "foreign", &retry);
  lock_give(&gpu->lock);
  return given > 0;
}
