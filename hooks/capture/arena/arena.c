// arena.c - see arena.h.
#include "arena/arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/graph_memory.h"
#include "arena/observe.h"
#include "arena/policy.h"
#include "arena/shortage.h"
#include "arena/streams.h"
#include "base/hook.h"
#include "base/options.h"
#include "base/problem.h"
#include "device/devices.h"
#include "device/overhead.h"
#include "spool/spool.h"

enum { MOST_RANGES = 8192 };

// The note of a chunk whose block is pending: it was freed, and another free of it is an error. Other
// notes are pointers to struct stream_uses, or 0.
#define FREED ((uint64_t)1)

static struct gpu *_Atomic gpus[MOST_DEVICES];
static _Atomic bool unusable[MOST_DEVICES];  // the driver was asked once, and the reason is in the problems file
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;    // held while `ranges` changes
static pthread_mutex_t arriving = PTHREAD_MUTEX_INITIALIZER;  // held while a device is made; taken before any device's lock
static _Atomic(uint32_t) arena_count;

// Addresses of arenas, so that a pointer finds its arena without a lock. An entry is reused when its
// arena has ended: no live block lies in an ended arena, and a thread that has a pointer into the next
// arena has seen the entry change.
struct range {
  _Atomic(uint64_t) from, to;  // to = 0: the place is empty
  struct arena *_Atomic arena;
};
static struct range ranges[MOST_RANGES];
static _Atomic(int) range_count;

uint32_t arena_next_id(void) { return atomic_fetch_add(&arena_count, 1); }

struct gpu *gpu_existing(int device) {
  if (!device_valid(device)) return NULL;
  return atomic_load_explicit(&gpus[device], memory_order_acquire);
}

// Sets *mapped to the bytes that the device's arenas have mapped, which overhead.c subtracts from the device's
// use, and *held to their lock, which the caller releases. False: another thread holds the lock.
static bool try_mapped(int device, struct lock **held, int64_t *mapped) {
  struct gpu *gpu = gpu_existing(device);
  *held = NULL;
  *mapped = 0;
  if (gpu == NULL) return true;
  if (!lock_try(&gpu->lock)) return false;
  *held = &gpu->lock;
  *mapped = (int64_t)gpu->mapped;
  return true;
}

static struct gpu *make_gpu(int device) {
  struct gpu *gpu = calloc(1, sizeof *gpu);
  if (gpu == NULL) return NULL;
  if (!vmm_device_init(&gpu->vmm, device)) {
    atomic_store(&unusable[device], true);
    free(gpu);
    return NULL;
  }
  overhead_leave_out(try_mapped);
  device_note_use(device);
  atomic_store_explicit(&gpus[device], gpu, memory_order_release);
  return gpu;
}

// At the first use of a device.
__attribute__((cold, noinline)) static struct gpu *gpu_arrives(int device) {
  if (!device_valid(device) || atomic_load(&unusable[device]) || driver_get() == NULL) return NULL;
  pthread_mutex_lock(&arriving);
  struct gpu *gpu = gpu_existing(device);
  if (gpu == NULL && !atomic_load(&unusable[device])) gpu = make_gpu(device);
  pthread_mutex_unlock(&arriving);
  return gpu;
}

struct gpu *gpu_get(int device) {
  struct gpu *gpu = gpu_existing(device);
  return gpu != NULL ? gpu : gpu_arrives(device);
}

void gpus_hold(void) { pthread_mutex_lock(&arriving); }
void gpus_let(void) { pthread_mutex_unlock(&arriving); }

static bool in_range(int at, uint64_t addr) {
  return addr < atomic_load_explicit(&ranges[at].to, memory_order_acquire) &&
         addr >= atomic_load_explicit(&ranges[at].from, memory_order_relaxed);
}

struct arena *arena_of(uint64_t addr) {
  static __thread int last;
  const int count = atomic_load_explicit(&range_count, memory_order_acquire);
  for (int i = -1; i < count; i++) {
    const int at = i < 0 ? last : i;
    if (!in_range(at, addr)) continue;
    last = at;
    return atomic_load_explicit(&ranges[at].arena, memory_order_relaxed);
  }
  return NULL;
}

bool arena_add_range(struct arena *arena, uint64_t addr, uint64_t bytes) {
  pthread_mutex_lock(&making);
  const int count = atomic_load(&range_count);
  int at = 0, before = 0;
  while (at < count && atomic_load(&ranges[at].to) != 0) at++;
  while (before < count && (atomic_load(&ranges[before].arena) != arena || atomic_load(&ranges[before].to) != addr)) before++;
  const bool ok = before < count || at < MOST_RANGES;
  if (before < count) {
    atomic_store_explicit(&ranges[before].to, addr + bytes, memory_order_release);
  } else if (ok) {
    atomic_store(&ranges[at].from, addr);
    atomic_store(&ranges[at].arena, arena);
    atomic_store_explicit(&ranges[at].to, addr + bytes, memory_order_release);
    if (at == count) atomic_store_explicit(&range_count, count + 1, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return ok;
}

static void remove_ranges(const struct arena *arena) {
  pthread_mutex_lock(&making);
  for (int i = 0; i < atomic_load(&range_count); i++) {
    if (atomic_load(&ranges[i].arena) == arena) atomic_store(&ranges[i].to, 0);
  }
  pthread_mutex_unlock(&making);
}

static bool reserved(void *owner, uint64_t addr, uint64_t bytes) { return arena_add_range(owner, addr, bytes); }

void arena_event(const struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t provided, uint32_t context) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = arena->gpu->vmm.device,
      .arena = arena->id,
      .stream = (int64_t)(intptr_t)arena->stream,
      .addr = addr,
      .requested = requested,
      .provided = provided,
      .context = context,
  });
}

// What the allocator asks its memory (struct bfc_memory). Each answer is an event.

void gpu_mapped(struct gpu *gpu, int64_t amount) { gpu->mapped += (uint64_t)amount; }

// Writes the event of a mapping that has been counted.
static void write_mapping(const struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t provided) {
  arena_event(arena, kind, addr, requested, provided, 0);
  observe_mapping(arena, addr, provided, kind == MEMPROF_MAP);
}

// The range of a graph memory that the arena grows out of, or NULL.
static const struct graph_range *range_of(const struct arena *arena) { return arena->home == NULL ? NULL : arena->home->range; }

void arena_mapping(struct arena *arena, enum memprof_kind kind, uint64_t addr, uint64_t requested, uint64_t bytes, int64_t handles) {
  const int64_t sign = kind == MEMPROF_MAP ? 1 : -1;
  gpu_mapped(arena->gpu, sign * (int64_t)bytes);
  counters_mapped(&arena->gpu->stats, sign * (int64_t)bytes, sign * handles);
  write_mapping(arena, kind, addr, requested, bytes);
}

static bool has_source(const struct arena *arena) { return source_of(arena) != NULL; }

static bool get_memory(struct arena *arena, uint64_t bytes, uint64_t *addr) {
  if (!arena_prepare(arena, bytes)) return false;
  return has_source(arena) ? source_grow(arena, bytes, addr) : vmm_grow(&arena->vmm, bytes, addr);
}

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  struct arena *arena = self;
  const uint64_t unit = arena->page;
  *granted = (bytes + unit - 1) & ~(unit - 1);
  streams_take(arena, *granted);
  const int64_t handles = arena->vmm.created;
  if (!get_memory(arena, *granted, addr)) {
    arena_event(arena, MEMPROF_GROW_FAILED, 0, bytes, 0, 0);
    return false;
  }
  streams_paid(arena, *granted);
  arena_mapping(arena, MEMPROF_MAP, *addr, bytes, *granted, has_source(arena) ? 1 : arena->vmm.created - handles);
  return true;
}

static bool map(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  streams_take(arena, bytes);
  const int64_t handles = arena->vmm.created;
  // Only the source can map its memory.
  if (has_source(arena) || !arena_prepare(arena, bytes) || !vmm_map(&arena->vmm, addr, bytes)) {
    arena_event(arena, MEMPROF_MAP_FAILED, addr, bytes, 0, 0);
    return false;
  }
  streams_paid(arena, bytes);
  arena_mapping(arena, MEMPROF_MAP, addr, bytes, bytes, arena->vmm.created - handles);
  return true;
}

static void unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  const size_t first = vmm_find(&arena->vmm, addr), last = vmm_find(&arena->vmm, addr + bytes);
  // What was lent for the request may still be used at its old addresses.
  if (arena->vmm.idle == NULL || !vmm_lend(&arena->vmm, first, last)) {
    if (arena->vmm.idle != NULL) policy_wait(arena);
    vmm_release(&arena->vmm, first, last);
  }
  arena->paid += bytes;
  arena_unmapped(arena, addr, bytes, (int64_t)(last - first));
}

void arena_unmapped(struct arena *arena, uint64_t addr, uint64_t bytes, int64_t handles) {
  arena_mapping(arena, MEMPROF_UNMAP, addr, 0, bytes, handles);
}

// What nobody has of the device, or of the limit of all arenas, if that is less: a growth beyond the request that
// exceeds the limit would be refused, and might take the request for one that nothing is left for.
static uint64_t device_free(void *self) {
  struct arena *arena = self;
  uint64_t free_bytes, total;
  driver_memory(arena->gpu->vmm.device, &free_bytes, &total);
  const uint64_t used = total - free_bytes, left = gpu_left(arena->gpu);
  if (left < free_bytes) free_bytes = left;
  arena_event(arena, MEMPROF_DEVICE_USED, 0, used + free_bytes, used, 0);
  return free_bytes;
}

static void describe(const struct arena *arena, const struct bfc_arena_policy *policy, bool coalesces) {
  const struct graph_range *range = range_of(arena);
  const uint64_t base = range == NULL ? arena->vmm.end : range->base;
  const uint64_t bytes = range == NULL ? arena->vmm.limit - arena->vmm.end : range->memory->reservation;
  char text[700], uuid[DRIVER_UUID_TEXT], fields[256];
  driver_uuid_write(arena->gpu->vmm.uuid, uuid);
  bfc_policy_fields(policy, fields, sizeof fields);
  snprintf(text, sizeof text, "%s fraction=0 gc=0 granularity=%llu coalesces=%d pages=2 takes=%d gives=%d pool=%llx.%llx tag=%s main=%d uuid=%s", fields,
           (unsigned long long)arena->page, coalesces, arena->takes, arena->gives,
           (unsigned long long)arena->pool[0], (unsigned long long)arena->pool[1], arena->tag == NULL ? "" : arena->tag->label, arena->main, uuid);
  const size_t length = strlen(text);
  if (range != NULL) snprintf(text + length, sizeof text - length, "\tgraph_memory=%u\tshape=%s\tsegments=%d", range->memory->number, range->name, range->segments);
  arena_event(arena, MEMPROF_ARENA, base, policy->options.limit, bytes, spool_string(text));
}

// A zeroed struct for a new arena: that of one that has ended, or new host memory; NULL: there is none.
static struct arena *take_place(struct gpu *gpu) {
  struct arena *arena = gpu->ended;
  if (arena == NULL) return calloc(1, sizeof *arena);
  gpu->ended = arena->next;
  return arena;
}

static void give_place(struct gpu *gpu, struct arena *arena) {
  if (gpu->last == arena) gpu->last = NULL;
  *arena = (struct arena){.gpu = gpu, .next = gpu->ended};
  gpu->ended = arena;
}

void arena_end(struct arena *arena) {
  struct gpu *gpu = arena->gpu;
  remove_ranges(arena);
  arena_event(arena, MEMPROF_POOL_RELEASE, 0, 0, 0, 0);
  if (!has_source(arena) && range_of(arena) == NULL) vmm_close(&arena->vmm);
  bfc_delete(arena->bfc);
  backup_drop(arena);
  free(arena->pending.entries);
  lent_drop(arena);
  give_place(gpu, arena);
}

static bool make_heap(struct arena *arena, const struct bfc_arena_policy *policy) {
  struct gpu *gpu = arena->gpu;
  struct bfc_memory memory = {
      .self = arena,
      .granularity = arena->page,
      .grow = grow,
      .map = map,
      .unmap = unmap,
      .device_free = device_free,
      .coalesces = !has_source(arena),
      .try_unmap = policy_try_unmap(policy),
  };
  if (range_of(arena) != NULL) graph_heap(&memory);
  arena->bfc = bfc_new(&policy->options, &memory);
  if (arena->bfc == NULL) return false;
  if (range_of(arena) != NULL) return true;
  if (has_source(arena)) return true;
  if (vmm_init(&arena->vmm, &gpu->vmm, policy->reservation, arena->page, policy->handle, arena, reserved)) {
    if (policy_lends(policy)) arena->vmm.idle = policy_wait_lent;
    return true;
  }
  bfc_delete(arena->bfc);
  return false;
}

static struct arena *make_arena(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag) {
  pool_sweep(gpu);
  const bool pooled = pool0 != 0 || pool1 != 0;
  // The first request in a pool that was never opened holds the pool.
  struct pool *home = pooled ? pool_get(gpu, pool0, pool1, 1) : NULL;
  struct arena *arena = pooled && home == NULL ? NULL : take_place(gpu);
  if (arena == NULL) return NULL;
  // Graph memory is never paused: all ranges map the same pages.
  if (home != NULL && home->range != NULL) tag = NULL;
  *arena = (struct arena){.gpu = gpu, .stream = stream, .pool = {pool0, pool1}, .home = home, .tag = tag};
  arena->main = stream == NULL && !pooled && tag == NULL;
  struct bfc_arena_policy policy;
  policy_of(arena, &policy);
  arena->page = policy.page;
  arena->handle = (policy.handle + policy.page - 1) & ~(policy.page - 1);
  arena->fine = policy.fine;
  if (!make_heap(arena, &policy)) {
    give_place(gpu, arena);
    return NULL;
  }
  arena->id = arena_next_id();
  arena->next = gpu->arenas;
  gpu->arenas = arena;
  streams_join(arena, &policy);
  describe(arena, &policy, !has_source(arena));
  shortage_join(arena);
  return arena;
}

bool arena_whole(struct arena *arena) { return arena->paused || arena->vmm.detached == 0 || vmm_attach(&arena->vmm); }

static bool serves(struct arena *arena, void *stream, uint64_t pool0, uint64_t pool1, const struct tag *tag) {
  return arena->stream == stream && arena->pool[0] == pool0 && arena->pool[1] == pool1 && !arena->paused &&
         (arena->tag == tag || range_of(arena) != NULL) && arena_whole(arena);
}

// Tries the last arena first: hundreds of graphs may have arenas before the one in the list that
// serves all other requests.
struct arena *arena_get(struct gpu *gpu, void *stream, uint64_t pool0, uint64_t pool1, struct tag *tag) {
  if (gpu->last != NULL && serves(gpu->last, stream, pool0, pool1, tag)) return gpu->last;
  for (struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (arena != gpu->last && serves(arena, stream, pool0, pool1, tag)) return gpu->last = arena;
  }
  return make_arena(gpu, stream, pool0, pool1, tag);
}

static void count_live(struct arena *arena, const struct bfc_block *block) { counters_live(&arena->gpu->stats, block->requested, block->size); }

bool arena_alloc(struct arena *arena, uint64_t size, uint32_t context, struct bfc_block *out) {
  if (arena->pending.count > 0) pending_poll(arena, false);
  arena->gpu->waited = arena->lending = false;
  arena->paid = arena->gpu->patient_until = 0;
  if (arena->stream_ended) streams_begin(arena);
  const bool served = bfc_alloc(arena->bfc, size, out);
  if (arena->vmm.loose_count > 0 && policy_wait(arena)) vmm_release_lent(&arena->vmm);
  if (!served) return false;
  count_live(arena, out);
  arena_event(arena, MEMPROF_ALLOC, out->addr, out->requested, out->size, context);
  return true;
}

bool arena_restore(struct arena *arena, uint64_t addr, uint64_t size, uint64_t requested) {
  struct bfc_block block;
  if (!arena_whole(arena) || !bfc_restore(arena->bfc, addr, size, requested, &block)) return false;
  count_live(arena, &block);
  arena_event(arena, MEMPROF_RESTORE, addr, requested, size, 0);
  return true;
}

// Whether statistics leave the arena out: memprof paused it, and not the source of its memory.
static bool left_out(const struct arena *arena) { return arena->paused && !has_source(arena); }

// The block is freed: its chunk can be reused at once, or when the block is no longer pending.
static void count_freed(struct arena *arena, const struct bfc_block *block, bool pending) {
  if (!left_out(arena)) {
    counters_freed(&arena->gpu->stats, block->requested, block->size);
    if (pending)
      counters_pend(&arena->gpu->stats, block->requested, block->size, 1);
    else
      counters_note_inactive(&arena->gpu->stats);
  }
  arena->gpu->frees++;
  arena_event(arena, MEMPROF_FREE, block->addr, block->requested, block->size, 0);
}

static void count_done(struct arena *arena, const struct bfc_block *block) {
  if (left_out(arena)) return;
  counters_pend(&arena->gpu->stats, block->requested, block->size, -1);
  counters_note_inactive(&arena->gpu->stats);
}

bool arena_live(const struct arena *arena, const struct bfc_block *block) {
  return bfc_note(arena->bfc, block->chunk) != FREED;
}

struct arena *arena_block(uint64_t addr, struct bfc_block *out) {
  struct arena *arena = arena_of(addr);
  if (arena == NULL) return NULL;
  const bool taken = gpu_take(arena->gpu);
  const bool found = bfc_containing(arena->bfc, addr, out) && arena_live(arena, out);
  gpu_give(arena->gpu, taken);
  return found ? arena : NULL;
}

bool arena_free(struct arena *arena, uint64_t addr) {
  struct bfc_block block;
  if (arena->noted == 0) {  // no chunk has a note: the usual case
    if (!bfc_free(arena->bfc, addr, &block)) return false;
    count_freed(arena, &block, false);
    return true;
  }
  if (!bfc_find(arena->bfc, addr, &block)) return false;
  const uint64_t note = bfc_note(arena->bfc, block.chunk);
  if (note == FREED) return false;
  if (note != 0 && left_out(arena)) return arena_free_now(arena, addr);  // the pause has waited for all streams
  count_freed(arena, &block, note != 0);
  if (note == 0) return bfc_free(arena->bfc, addr, &block);
  bfc_set_note(arena->bfc, block.chunk, FREED);
  struct stream_uses *uses = (struct stream_uses *)(uintptr_t)note;
  if (!pending_add(arena, addr, uses)) arena_free_done(arena, addr);
  return true;
}

bool arena_free_now(struct arena *arena, uint64_t addr) {
  struct bfc_block block;
  if (!bfc_find(arena->bfc, addr, &block)) return false;
  const uint64_t note = bfc_note(arena->bfc, block.chunk);
  if (note == 0) return arena_free(arena, addr);
  if (note == FREED) return false;
  count_freed(arena, &block, true);
  pending_forget_uses((struct stream_uses *)(uintptr_t)note);
  bfc_set_note(arena->bfc, block.chunk, FREED);
  arena_free_done(arena, addr);
  return true;
}

void arena_free_done(struct arena *arena, uint64_t addr) {
  struct bfc_block block;
  if (!bfc_free(arena->bfc, addr, &block)) return;
  arena->noted--;
  count_done(arena, &block);
  arena_event(arena, MEMPROF_FREE_DONE, addr, block.requested, block.size, 0);
  observe_reusable(arena, addr);
}

static void forget(void) {
  pthread_mutex_init(&making, NULL);
  pthread_mutex_init(&arriving, NULL);
}

HOOK_PART(.forget = forget);
