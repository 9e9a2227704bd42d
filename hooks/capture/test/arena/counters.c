// counters.c - the statistics, against sums that are made of each event by itself.
//
// A random job allocates, frees, uses blocks on a second stream, pauses and resumes a tag, has its free memory
// unmapped and resets the statistics. Every counter of memprof_get_stats, with its peak and its sums, must be
// what adding and subtracting at every event of the trail gives. So must be what totals events say.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>

#include "device/captures.h"
#include "gpu.h"
#include "memprof.h"
#include "trail.h"

enum { LIVE = 120, ROUNDS = 80, STEPS = 50, ARENAS = 16, TORCH_BLOCK = 512 };

enum counter { ALLOCATION, REQUESTED, ALLOCATED, ACTIVE, ACTIVE_BYTES, RESERVED, INACTIVE, TORCH, TORCH_ACTIVE, COUNTERS };

struct block {
  uint64_t addr, requested, provided;
  uint32_t arena;
  bool elsewhere, pending;
};

struct arena {
  int64_t mapped;
  bool paused;
};

static struct memprof_stat sums[COUNTERS];
static struct block blocks[4 * LIVE];
static size_t block_count;
static struct arena arenas[ARENAS];
static uint64_t seen;  // events of the trail that are in `sums`
static struct {
  uint64_t events, requests, requested, frees, freed, calls;
} plain;               // sums of the events in `sums`
static int checked;    // totals
static int shrunk;     // of them, blocks that lost their slack

static void count(enum counter counter, int64_t amount) {
  struct memprof_stat *sum = &sums[counter];
  sum->current += amount;
  if (amount < 0) sum->freed -= amount;
  if (amount > 0) sum->allocated += amount;
  if (sum->current > sum->peak) sum->peak = sum->current;
}

static int64_t torch_bytes(const struct block *block) { return (int64_t)((block->requested + TORCH_BLOCK - 1) / TORCH_BLOCK * TORCH_BLOCK); }

static void count_mapped(struct arena *arena, int64_t bytes) {
  arena->mapped += bytes;
  if (arena->paused) return;
  count(RESERVED, bytes);
  count(INACTIVE, bytes);
}

static void begin(const struct memprof_record *event) {
  CHECK(block_count < sizeof blocks / sizeof *blocks);
  struct block *block = &blocks[block_count++];
  *block = (struct block){event->addr, event->requested, event->provided, event->arena, false, false};
  count(ALLOCATION, 1), count(ACTIVE, 1);
  count(REQUESTED, (int64_t)block->requested);
  count(ALLOCATED, (int64_t)block->provided), count(ACTIVE_BYTES, (int64_t)block->provided), count(INACTIVE, -(int64_t)block->provided);
  count(TORCH, torch_bytes(block)), count(TORCH_ACTIVE, torch_bytes(block));
}

static struct block *find(uint64_t addr) {
  size_t i = 0;
  while (i < block_count && blocks[i].addr != addr) i++;
  CHECK(i < block_count);
  return &blocks[i];
}

static void reusable(struct block *block) {
  if (!arenas[block->arena].paused) {
    count(ACTIVE, -1);
    count(ACTIVE_BYTES, -(int64_t)block->provided), count(INACTIVE, (int64_t)block->provided);
    count(TORCH_ACTIVE, -torch_bytes(block));
  }
  *block = blocks[--block_count];
}

static void end(struct block *block) {
  if (!arenas[block->arena].paused) {
    count(ALLOCATION, -1);
    count(REQUESTED, -(int64_t)block->requested);
    count(ALLOCATED, -(int64_t)block->provided);
    count(TORCH, -torch_bytes(block));
  }
  if (block->elsewhere)
    block->pending = true;
  else
    reusable(block);
}

static void shrink(struct block *block, uint64_t provided) {
  const int64_t less = (int64_t)(block->provided - provided);
  count(ALLOCATED, -less), count(ACTIVE_BYTES, -less), count(INACTIVE, less);
  block->provided = provided;
  shrunk++;
}

// A pause and a resume change what is there, and no sum of what came or went.
static void move(enum counter counter, int64_t amount) {
  sums[counter].current += amount;
  if (sums[counter].current > sums[counter].peak) sums[counter].peak = sums[counter].current;
}

static void move_arena(uint32_t id, int64_t sign) {
  int64_t provided = 0;
  for (size_t i = 0; i < block_count; i++) {
    const struct block *block = &blocks[i];
    if (block->arena != id) continue;
    move(ACTIVE, sign), move(ACTIVE_BYTES, sign * (int64_t)block->provided), move(TORCH_ACTIVE, sign * torch_bytes(block));
    provided += (int64_t)block->provided;
    if (block->pending) continue;
    move(ALLOCATION, sign), move(REQUESTED, sign * (int64_t)block->requested);
    move(ALLOCATED, sign * (int64_t)block->provided), move(TORCH, sign * torch_bytes(block));
  }
  move(RESERVED, sign * arenas[id].mapped);
  move(INACTIVE, sign * (arenas[id].mapped - provided));
  arenas[id].paused = sign < 0;
}

static void add(const struct memprof_record *event) {
  const int kind = trail_kind(event);
  if (kind == MEMPROF_STRING || event->arena == MEMPROF_NO_ARENA) return;
  CHECK(event->arena < ARENAS);
  struct arena *arena = &arenas[event->arena];
  if (kind == MEMPROF_MAP) count_mapped(arena, (int64_t)event->provided);
  if (kind == MEMPROF_UNMAP) count_mapped(arena, -(int64_t)event->provided);
  if (kind == MEMPROF_ALLOC) begin(event);
  if (kind == MEMPROF_SHRINK) shrink(find(event->addr), event->provided);
  if (kind == MEMPROF_STREAM_USE) find(event->addr)->elsewhere = true;
  if (kind == MEMPROF_FREE) end(find(event->addr));
  if (kind == MEMPROF_FREE_DONE) reusable(find(event->addr));
  const bool failed = event->requested == 0;  // of a pause and a resume: bytes
  if (kind == MEMPROF_PAUSE && !failed) move_arena(event->arena, -1);
  if (kind == MEMPROF_RESUME && !failed) move_arena(event->arena, 1);
}

// Compares the totals event in a slot, and adds an event that is none.
static void add_plain(const struct trail *trail, uint64_t slot) {
  const struct memprof_record *event = &trail->records[slot];
  const int kind = trail_kind(event);
  if (kind == MEMPROF_ALLOC) plain.requests++, plain.requested += event->requested;
  if (kind == MEMPROF_FREE) plain.frees++, plain.freed += event->requested;
  if (trail_counts(trail, slot, "of=requests")) {
    CHECK_EQUAL(event->addr, plain.requests);
    CHECK_EQUAL(event->requested, plain.requested);
    checked++;
  } else if (trail_counts(trail, slot, "of=frees")) {
    CHECK_EQUAL(event->addr, plain.frees);
    CHECK_EQUAL(event->requested, plain.freed);
  } else if (trail_counts(trail, slot, "of=events")) {
    CHECK_EQUAL(event->addr, plain.events);
  } else if (trail_counts(trail, slot, "of=calls")) {
    CHECK(event->addr >= plain.calls && event->requested > 0);
    plain.calls = event->addr;
  }
  plain.events += kind != MEMPROF_STRING;
}

static void compare(const struct memprof_stat *got, enum counter counter) {
  CHECK_EQUAL(got->current, sums[counter].current);
  CHECK_EQUAL(got->peak, sums[counter].peak);
  CHECK_EQUAL(got->allocated, sums[counter].allocated);
  CHECK_EQUAL(got->freed, sums[counter].freed);
}

static void compare_all(void) {
  struct trail trail = trail_read(getpid(), 0);
  for (; seen < trail.count; seen++) {
    add(&trail.records[seen]);
    add_plain(&trail, seen);
  }
  free(trail.records);
  struct memprof_stats stats;
  memprof_get_stats(0, &stats);
  compare(&stats.allocation, ALLOCATION), compare(&stats.active, ACTIVE);
  compare(&stats.requested_bytes, REQUESTED);
  compare(&stats.allocated_bytes, ALLOCATED), compare(&stats.active_bytes, ACTIVE_BYTES);
  compare(&stats.reserved_bytes, RESERVED), compare(&stats.inactive_bytes, INACTIVE);
  compare(&stats.torch_bytes, TORCH), compare(&stats.torch_active, TORCH_ACTIVE);
}

static void reset(void) {
  if (rand() % 2 == 0) {
    memprof_reset_peak(0);
    for (int i = 0; i < COUNTERS; i++) sums[i].peak = sums[i].current;
  } else {
    memprof_reset_accumulated(0);
    for (int i = 0; i < COUNTERS; i++) sums[i].allocated = sums[i].freed = 0;
  }
}

static void *live[LIVE];

static void replace(int at, void *other) {
  const bool tagged = at % 3 == 0;
  if (live[at] != NULL) memprof_free(live[at], 0, 0, NULL);
  if (tagged) CHECK_EQUAL(memprof_region_begin("away", 0), 0);
  live[at] = rand() % 4 == 0 ? NULL : memprof_malloc((size_t)1 << rand() % 23 | (size_t)(rand() % 512), 0, at % 5 == 0 ? other : NULL);
  if (tagged) memprof_region_end();
  // While its tag is paused a block cannot be used; no new one is in a paused arena.
  if (live[at] != NULL && rand() % 6 == 0) memprof_record_stream(live[at], at % 5 == 0 ? NULL : other);
}

// A request that reclaims waits for the device, so no stream is held where one may be short of memory.
static void run(bool holds) {
  gpu_start();
  const char *tag = "away";
  void *other = gpu_stream();
  bool held = false, paused = false;
  srand(7);
  for (int round = 0; round < ROUNDS; round++) {
    for (int step = 0; step < STEPS; step++) replace(rand() % LIVE, other);
    compare_all();
    const int what = rand() % 6;
    if (held && (what == 0 || what == 3 || what == 5)) {  // the first two wait for the device
      gpu_let_go(other);
      held = false;
    }
    if (what == 0) memprof_empty_cache(0);
    if (what == 1 || what == 2) reset();
    if (what == 3 && !paused) {
      CHECK_EQUAL(memprof_pause(&tag, 1, 0), 0);
      paused = true;
    } else if (what == 3) {
      paused = memprof_resume(&tag, 1, 0) != 0;  // if the device has too little memory
    }
    if (what == 4 && holds && !held) {
      gpu_hold(other);
      held = true;
    }
    memprof_iteration(NULL);
    compare_all();
  }
  CHECK(checked > ROUNDS / 2);
}

TEST(every_event) {
  ONE_THREAD();
  run(true);
  CHECK_EQUAL(shrunk, 0);
}

TEST(every_event_of_a_device_that_is_short_of_memory, "MEMPROF_SIM_MEMORY", "64m") {
  ONE_THREAD();
  run(false);
  CHECK(shrunk > 0);
}

static const char *const away = "away";

static void *allocate_away(void) {
  CHECK_EQUAL(memprof_region_begin(away, 0), 0);
  void *block = memprof_malloc(5 * MiB, 0, NULL);
  memprof_region_end();
  CHECK(block != NULL);
  return block;
}

static void *pause_away(void *nothing) {
  CHECK_EQUAL(memprof_pause(&away, 1, 0), 0);
  return nothing;
}

// What another thread frees while a pause waits for the device is pending in the paused arena, and later still.
TEST(pending_in_a_pause) {
  gpu_start();
  void *slow = gpu_stream(), *other = gpu_stream(), *freed = allocate_away(), *kept = allocate_away(), *elsewhere = memprof_malloc(MiB, 0, slow);
  memprof_record_stream(freed, other);
  gpu_hold(slow);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, pause_away, NULL) == 0);
  gpu_await_waiter();
  gpu_hold(other);
  memprof_free(freed, 0, 0, NULL);
  gpu_let_go(slow);
  CHECK(pthread_join(thread, NULL) == 0);
  compare_all();
  CHECK_EQUAL(sums[ACTIVE].current, 1);  // elsewhere
  gpu_let_go(other);
  CHECK_EQUAL(memprof_resume(&away, 1, 0), 0);
  compare_all();
  void *more = allocate_away();  // with it the pending block ends
  compare_all();
  CHECK_EQUAL(sums[ACTIVE].current, 3);
  memprof_free(more, 0, 0, NULL), memprof_free(kept, 0, 0, NULL), memprof_free(elsewhere, 0, 0, slow);
  compare_all();
  CHECK_EQUAL(sums[ACTIVE].current, 0);
}

static void *begin_capture(void *nothing) {
  captures_begin();
  return nothing;
}

// A thread waits to begin a capture while another pauses: the pause ends what was freed during an earlier capture.
TEST(pause_beside_a_capture) {
  gpu_start();
  void *block = allocate_away(), *kept = allocate_away();
  memprof_record_stream(block, gpu_stream());
  captures_begin();
  memprof_free(block, 0, 0, NULL);  // its events have to wait
  captures_end();
  CHECK(captures_hold());
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, begin_capture, NULL) == 0);
  while (captures_count() == 0) usleep(100);
  CHECK_EQUAL(memprof_pause(&away, 1, 0), 0);
  compare_all();
  captures_let();
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(memprof_pause(&away, 1, 0), MEMPROF_IN_CAPTURE);
  captures_end();
  CHECK_EQUAL(memprof_resume(&away, 1, 0), 0);
  compare_all();
  struct memprof_stats stats;
  memprof_get_stats(0, &stats);
  CHECK_EQUAL(stats.active.current, 1);  // the other block has ended with the pause
  memprof_free(kept, 0, 0, NULL);
  compare_all();
  CHECK_EQUAL(sums[ACTIVE].current, 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
