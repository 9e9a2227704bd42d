// watch.c - the decisions of another allocator as events of the trace.
//
// torch's trace tracker reports requests (not the chunks that serve them), both halves of a free, and
// segments. They become events in the order that trace/event.go prescribes:
//
//   reported                              written
//   segment_alloc, segment_map            map, statistics
//   segment_free, segment_unmap           unmap, statistics
//   alloc                                 alloc, provided = requested: the chunk's size is not reported
//   free_requested, free_completed        free
//   free_requested, ..., free_completed   stream_use, free, ..., free_done
//
// Whether other streams use a freed block shows only in the next event. So a free is held until then.
// If a mark comes first, it has to decide: see mark_device.
//
// The allocator reports the events of a device under a lock of its own, so one thread at a time uses the
// device's `struct memprof_watch`. An alloc and a free write two records and take no lock of the hook.
//
// Statistics are the allocator's own sums. Reading them is slow, so they are read where they say most: at
// each segment, at each mark, and when requested bytes fall for the first time after a new maximum of
// the iteration. So C is known at the peaks.
#include "watch/watch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/pause.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/hook.h"
#include "base/lock.h"
#include "base/problem.h"
#include "device/devices.h"
#include "device/driver.h"
#include "memprof.h"
#include "spool/context.h"
#include "spool/internal.h"
#include "spool/spool.h"
#include "watch/callers.h"

enum { UNKNOWN_STREAM = -1 };

// How the segments of an arena lie. SEPARATE: no block spans two segments. JOINED: blocks may span adjacent
// ones, which the allocator maps page by page into one reservation. A stream and pool with segments of
// both kinds has two arenas.
enum { SEPARATE, JOINED, MANNERS };

struct extent {
  uint64_t from, to;
};

// The arenas of one stream and pool.
struct place {
  int64_t stream;
  uint64_t pool[2];
  uint32_t arena[MANNERS];  // MEMPROF_NO_ARENA until there is a segment
  struct extent *separate;  // the SEPARATE segments, in no order
  size_t separate_count, separate_room;
};

// A device of a native allocator. Only the thread that holds the allocator's lock of the device uses it, but for the atomic
// members, and for `free` under `lock`.
struct memprof_watch {
  int device;
  uint32_t name;           // string id of `allocator`
  const char *allocator;
  memprof_watch_read *read;
  bool broken;             // there was no host memory: nothing more is written about the device
  _Atomic bool used;       // it has, or had, a segment

  struct place *places;
  size_t place_count, place_room;
  struct place *last;      // the place of the last event; NULL before the first

  // The free that is held until the next event. `held` is its number, 0: none. A mark sets `examined` to the
  // number of the free that it looks at; from then on both sides take that free under `lock` only.
  _Atomic(uint64_t) held, examined;
  struct lock lock;
  uint64_t frees;          // so far: the number of the last free
  struct {
    uint64_t addr, size, time_ns;
    const struct place *place;
  } free;
  _Atomic(int64_t) pending;  // frees written whose blocks other streams may still use

  uint64_t requested, reserved;  // bytes: T and R
  uint64_t marks;                // `marks` of the process when iteration_top was last reset
  uint64_t iteration_top;        // the greatest T since the last mark
  uint64_t top_reserved, top;    // the greatest R, and the greatest T at that R
  bool climbing;                 // the last event raised T to a new maximum
  bool adopts;                   // the next alloc is of a block that existed before: nobody knows who requested it
};

static struct memprof_watch *_Atomic watches[MOST_DEVICES];
static _Atomic bool watching;  // a native allocator reports a device
static struct lock making;
static _Atomic(uint64_t) marks;  // so far

// Ends the watch for want of host memory.
static void give_up(struct memprof_watch *watch) {
  watch->broken = true;
  problem("GPU %d is not recorded any more: no host memory for the list of its segments", watch->device);
}

struct memprof_watch *memprof_watch_device(int device, const char *allocator, memprof_watch_read *read) {
  if (!hook_on() || !device_valid(device)) return NULL;
  hook_start();
  lock_take(&making);
  struct memprof_watch *watch = atomic_load(&watches[device]);
  if (watch == NULL && (watch = calloc(1, sizeof *watch)) != NULL) {
    watch->device = device;
    watch->allocator = allocator;
    watch->name = spool_string(allocator);
    watch->read = read;
    atomic_store(&watches[device], watch);
    atomic_store(&watching, true);
    pause_set_other_allocator(watch_reports);
  }
  lock_give(&making);
  callers_prepare();
  return watch;
}

static struct spool_event event_of(const struct memprof_watch *watch, const struct place *place, enum memprof_kind kind, uint32_t arena) {
  return (struct spool_event){.kind = kind, .device = watch->device, .arena = arena, .stream = place->stream};
}

// The settings that torch reads, under the older of two names where both are set; "" where there are none, or text that a context cannot have.
static const char *settings(void) {
  const char *text = getenv("PYTORCH_CUDA_ALLOC_CONF");
  if (text == NULL) text = getenv("PYTORCH_ALLOC_CONF");
  return text == NULL || strpbrk(text, "\t\n") != NULL || strlen(text) > 512 ? "" : text;
}

static void describe(const struct memprof_watch *watch, const struct place *place, int manner, uint64_t tick) {
  char text[1024], uuid[DRIVER_UUID_TEXT];
  driver_uuid_text(watch->device, uuid);
  snprintf(text, sizeof text, "allocator=%s\tprovided=unknown\tcoalesces=%d\tpool=%llx.%llx\tmain=%d\tuuid=%s", watch->allocator, manner == JOINED,
           (unsigned long long)place->pool[0], (unsigned long long)place->pool[1], place->stream == 0 && place->pool[0] == 0 && place->pool[1] == 0, uuid);
  const size_t length = strlen(text);
  if (settings()[0] != '\0') snprintf(text + length, sizeof text - length, "\tconf=%s", settings());
  struct spool_event event = event_of(watch, place, MEMPROF_ARENA, place->arena[manner]);
  event.context = spool_string(text);
  spool_write_at(&event, clock_at(tick));
}

static inline bool is_place(const struct place *place, void *stream, uint64_t pool0, uint64_t pool1) {
  return place->stream == (int64_t)(intptr_t)stream && place->pool[0] == pool0 && place->pool[1] == pool1;
}

__attribute__((noinline)) static struct place *search_place(struct memprof_watch *watch, void *stream, uint64_t pool0, uint64_t pool1) {
  for (struct place *place = watch->places; place < watch->places + watch->place_count; place++) {
    if (is_place(place, stream, pool0, pool1)) return watch->last = place;
  }
  return NULL;
}

// The place, or NULL.
static inline struct place *find_place(struct memprof_watch *watch, void *stream, uint64_t pool0, uint64_t pool1) {
  if (watch->last != NULL && is_place(watch->last, stream, pool0, pool1)) return watch->last;
  return search_place(watch, stream, pool0, pool1);
}

static struct place *make_place(struct memprof_watch *watch, void *stream, uint64_t pool0, uint64_t pool1) {
  if (!array_reserve(&watch->places, &watch->place_room, watch->place_count + 1, sizeof *watch->places)) return NULL;
  struct place *place = watch->last = &watch->places[watch->place_count++];
  *place = (struct place){
      .stream = (int64_t)(intptr_t)stream, .pool = {pool0, pool1}, .arena = {MEMPROF_NO_ARENA, MEMPROF_NO_ARENA}};
  return place;
}

__attribute__((noinline)) static bool is_separate(const struct place *place, uint64_t addr) {
  for (size_t i = 0; i < place->separate_count; i++) {
    if (addr >= place->separate[i].from && addr < place->separate[i].to) return true;
  }
  return false;
}

// The arena of a block. A place has both arenas only if the job has switched the allocator between the two
// kinds of segments.
static inline uint32_t arena_at(const struct place *place, uint64_t addr) {
  if (place->arena[JOINED] == MEMPROF_NO_ARENA) return place->arena[SEPARATE];
  if (place->arena[SEPARATE] == MEMPROF_NO_ARENA) return place->arena[JOINED];
  return place->arena[is_separate(place, addr) ? SEPARATE : JOINED];
}

static void write_sums(const struct memprof_watch *watch, const struct memprof_watch_sums *sums, uint64_t provided) {
  if (sums->reserved == MEMPROF_SUMS_UNKNOWN) return;
  spool_write(&(struct spool_event){
      .kind = MEMPROF_STATISTICS,
      .device = watch->device,
      .arena = MEMPROF_NO_ARENA,
      .addr = sums->provided_peak,
      .requested = sums->reserved,
      .provided = provided,
      .context = watch->name,
  });
}

// Reads and writes the sums.
static void sample(struct memprof_watch *watch) {
  struct memprof_watch_sums sums;
  watch->read(watch->device, &sums);
  watch->climbing = false;
  write_sums(watch, &sums, sums.provided);
}

// T falls for the first time after a new maximum, by a free that the allocator has only begun: its block is
// no longer in the sum `provided`, but still in `active`. So `active` is C before the free, unless
// other blocks are pending.
static void sample_top(struct memprof_watch *watch) {
  struct memprof_watch_sums sums;
  watch->climbing = false;
  if (atomic_load_explicit(&watch->pending, memory_order_relaxed) != 0) return;
  watch->read(watch->device, &sums);
  write_sums(watch, &sums, sums.active);
}

// T has grown: notes whether it is a new maximum of the iteration, or at the greatest R.
static void climb(struct memprof_watch *watch) {
  const uint64_t now = atomic_load_explicit(&marks, memory_order_relaxed);
  if (watch->marks != now) {
    watch->marks = now;
    watch->iteration_top = 0;
  }
  if (watch->requested > watch->iteration_top) {
    watch->iteration_top = watch->requested;
    watch->climbing = true;
  }
  if (watch->reserved == watch->top_reserved && watch->requested > watch->top) {
    watch->top = watch->requested;
    watch->climbing = true;
  }
}

// Takes the held free while a mark may take it, too. False: the mark has taken it.
__attribute__((cold)) static bool take_examined(struct memprof_watch *watch, uint64_t number) {
  lock_take(&watch->lock);
  const bool there = atomic_load_explicit(&watch->held, memory_order_relaxed) == number;
  atomic_store_explicit(&watch->held, 0, memory_order_relaxed);
  lock_give(&watch->lock);
  return there;
}

// Takes the held free. False: there is none, or a mark has taken it.
static inline bool take_free(struct memprof_watch *watch) {
  const uint64_t number = atomic_load_explicit(&watch->held, memory_order_acquire);
  if (number == 0) return false;
  if (atomic_load_explicit(&watch->examined, memory_order_relaxed) == number) return take_examined(watch, number);
  atomic_store_explicit(&watch->held, 0, memory_order_relaxed);
  return true;
}

// Writes the free that was taken.
static inline void write_free(const struct memprof_watch *watch) {
  spool_put(
      &(struct spool_event){
          .kind = MEMPROF_FREE,
          .device = watch->device,
          .arena = arena_at(watch->free.place, watch->free.addr),
          .stream = watch->free.place->stream,
          .addr = watch->free.addr,
          .requested = watch->free.size,
          .provided = watch->free.size,
      },
      watch->free.time_ns);
}

// Writes the free as one whose block other streams may still use.
static void write_pending(struct memprof_watch *watch) {
  struct spool_event use = event_of(watch, watch->free.place, MEMPROF_STREAM_USE, arena_at(watch->free.place, watch->free.addr));
  use.stream = UNKNOWN_STREAM;
  use.addr = watch->free.addr;
  spool_write_at(&use, watch->free.time_ns);
  write_free(watch);
  atomic_fetch_add_explicit(&watch->pending, 1, memory_order_relaxed);
}

// Another event follows the held free, so the free waits for other streams: writes it.
static inline void flush_free(struct memprof_watch *watch) {
  if (take_free(watch)) write_pending(watch);
}

// Writes the free that is held, for the next event of a place. NULL: the place is not known, or nothing is recorded any more.
static inline struct place *next_in(struct memprof_watch *watch, void *stream, uint64_t pool0, uint64_t pool1) {
  if (watch->broken) return NULL;
  flush_free(watch);
  return find_place(watch, stream, pool0, pool1);
}

void memprof_watch_alloc(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1) {
  struct place *place = next_in(watch, stream, pool0, pool1);
  if (place == NULL) return;  // its segment was not reported either
  watch->requested += size;
  climb(watch);
  struct spool_event event = event_of(watch, place, MEMPROF_ALLOC, arena_at(place, addr));
  event.addr = addr;
  event.requested = event.provided = size;
  if (!watch->adopts) {
    callers_note_locked();
    event.context = context_get();
  }
  watch->adopts = false;
  spool_put(&event, clock_at(tick));
}

void memprof_watch_free(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1) {
  struct place *place = next_in(watch, stream, pool0, pool1);
  if (place == NULL) return;
  if (watch->climbing) sample_top(watch);
  watch->requested -= size;
  watch->free.addr = addr;
  watch->free.size = size;
  watch->free.time_ns = clock_at(tick);
  watch->free.place = place;
  atomic_store_explicit(&watch->held, ++watch->frees, memory_order_relaxed);
}

void memprof_watch_free_done(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1) {
  if (watch->broken) return;
  if (watch->free.addr == addr && take_free(watch)) {
    write_free(watch);
    return;
  }
  struct place *place = next_in(watch, stream, pool0, pool1);
  if (place == NULL) return;
  atomic_fetch_sub_explicit(&watch->pending, 1, memory_order_relaxed);
  struct spool_event event = event_of(watch, place, MEMPROF_FREE_DONE, arena_at(place, addr));
  event.addr = addr;
  event.requested = event.provided = size;
  spool_write_at(&event, clock_at(tick));
}

static bool add_separate(struct place *place, uint64_t addr, uint64_t size) {
  if (!array_reserve(&place->separate, &place->separate_room, place->separate_count + 1, sizeof *place->separate)) return false;
  place->separate[place->separate_count++] = (struct extent){addr, addr + size};
  return true;
}

static void remove_separate(struct place *place, uint64_t addr) {
  for (size_t i = 0; i < place->separate_count; i++) {
    if (place->separate[i].from == addr) place->separate[i] = place->separate[--place->separate_count];
  }
}

static void adopt(const struct memprof_watch *watch, uint64_t addr, uint64_t requested, uint64_t provided) {
  if (watch->broken) return;
  spool_write(&(struct spool_event){
      .kind = MEMPROF_EXTERNAL_FREE,
      .device = watch->device,
      .arena = MEMPROF_NO_ARENA,
      .addr = addr,
      .requested = requested,
      .provided = provided,
      .context = watch->name,
  });
}

void memprof_watch_adopt(struct memprof_watch *watch, uint64_t addr, int small) { adopt(watch, addr, small != 0, 0); }

void memprof_watch_adopt_block(struct memprof_watch *watch, uint64_t addr, uint64_t size) {
  adopt(watch, addr, 0, size);
  watch->adopts = true;
}

void memprof_watch_map(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1, int joins) {
  if (watch->broken) return;
  flush_free(watch);
  struct place *place = find_place(watch, stream, pool0, pool1);
  if (place == NULL) place = make_place(watch, stream, pool0, pool1);
  if (place == NULL || (!joins && !add_separate(place, addr, size))) {
    give_up(watch);
    return;
  }
  const int manner = joins ? JOINED : SEPARATE;
  if (place->arena[manner] == MEMPROF_NO_ARENA) {
    place->arena[manner] = arena_next_id();
    describe(watch, place, manner, tick);
  }
  atomic_store_explicit(&watch->used, true, memory_order_relaxed);
  device_note_use(watch->device);
  watch->reserved += size;
  if (watch->reserved > watch->top_reserved) {
    watch->top_reserved = watch->reserved;
    watch->top = watch->requested;
  }
  struct spool_event event = event_of(watch, place, MEMPROF_MAP, place->arena[manner]);
  event.addr = addr;
  event.requested = event.provided = size;
  spool_write_at(&event, clock_at(tick));
  sample(watch);
}

void memprof_watch_unmap(struct memprof_watch *watch, uint64_t tick, uint64_t addr, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1, int joins) {
  struct place *place = next_in(watch, stream, pool0, pool1);
  if (place == NULL) return;
  if (!joins) sample(watch);
  watch->reserved -= size;
  struct spool_event event = event_of(watch, place, MEMPROF_UNMAP, arena_at(place, addr));
  event.addr = addr;
  event.provided = size;
  spool_write_at(&event, clock_at(tick));
  if (joins) sample(watch);
  if (!joins) remove_separate(place, addr);
}

void memprof_watch_oom(struct memprof_watch *watch, uint64_t tick, uint64_t size, void *stream, uint64_t pool0, uint64_t pool1) {
  if (watch->broken) return;
  flush_free(watch);
  sample(watch);
  callers_note_locked();
  const struct place *place = find_place(watch, stream, pool0, pool1);
  spool_write_at(
      &(struct spool_event){
          .kind = MEMPROF_OOM,
          .device = watch->device,
          .arena = place == NULL ? MEMPROF_NO_ARENA : arena_at(place, 0),
          .stream = (int64_t)(intptr_t)stream,
          .requested = size,
          .context = context_get(),
      },
      clock_at(tick));
}

// A mark comes while a free may be held. Its second half may be about to come on another thread, or the
// free waits for other streams. Reading the sums takes the allocator's lock: afterwards the thread that
// held the lock before is done, so a free that is still held waits for other streams, and is written
// here. A thread that gets the allocator's lock later sees `examined` and takes the free under `lock`.
static void mark_device(struct memprof_watch *watch) {
  struct memprof_watch_sums sums;
  if (!atomic_load_explicit(&watch->used, memory_order_relaxed)) return;
  const uint64_t number = atomic_load_explicit(&watch->held, memory_order_acquire);
  atomic_store(&watch->examined, number);
  watch->read(watch->device, &sums);
  lock_take(&watch->lock);
  if (number != 0 && atomic_load_explicit(&watch->held, memory_order_relaxed) == number) {
    write_pending(watch);
    atomic_store_explicit(&watch->held, 0, memory_order_release);  // only now: another thread that needs the free waits for the lock
  }
  write_sums(watch, &sums, sums.provided);
  lock_give(&watch->lock);
}

void memprof_watch_sample(void) {
  static struct lock marking;  // one mark at a time: a device has one `examined`
  if (!hook_on() || !atomic_load_explicit(&watching, memory_order_relaxed)) return;
  lock_take(&marking);
  for (int i = 0; i < MOST_DEVICES; i++) {
    struct memprof_watch *watch = atomic_load_explicit(&watches[i], memory_order_acquire);
    if (watch != NULL) mark_device(watch);
  }
  lock_give(&marking);
}

void watch_mark(void) {
  memprof_watch_sample();
  atomic_fetch_add_explicit(&marks, 1, memory_order_relaxed);
}

bool watch_is_of(const char *library) { return strncmp(library, "libc10_cuda.", 12) == 0; }

// PYTORCH_NO_CUDA_MEMORY_CACHING makes each tensor a cudaMalloc, which torch's tracker does not report.
bool watch_reports(void) { return atomic_load_explicit(&watching, memory_order_relaxed) && getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == NULL; }

void watch_label(uint64_t addr, uint32_t context) {
  if (!atomic_load_explicit(&watching, memory_order_relaxed)) return;
  spool_write(&(struct spool_event){.kind = MEMPROF_LABEL, .device = -1, .arena = MEMPROF_NO_ARENA, .addr = addr, .context = context});
}

static void forget(void) {
  making = (struct lock){0};
  for (int i = 0; i < MOST_DEVICES; i++) {
    struct memprof_watch *watch = atomic_load(&watches[i]);
    if (watch == NULL) continue;
    atomic_store(&watch->examined, 0);
    watch->lock = (struct lock){0};
  }
}

// A device's watch stays, since the allocator's tracker keeps it.
static void stop(void) {
  for (int i = 0; i < MOST_DEVICES; i++) {
    struct memprof_watch *watch = atomic_load(&watches[i]);
    if (watch == NULL) continue;
    for (size_t k = 0; k < watch->place_count; k++) free(watch->places[k].separate);
    free(watch->places);
    *watch = (struct memprof_watch){.device = watch->device, .name = watch->name, .allocator = watch->allocator, .read = watch->read};
  }
}

HOOK_PART(.forget = forget, .stop = stop);
