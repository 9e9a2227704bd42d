// takes.c - growth pages: what another stream holds idle is taken before more is mapped, if its last use is over.
#define _GNU_SOURCE
#include <pthread.h>

#include "arena/registered.h"
#include "blocks.h"
#include "device/captures.h"
#include "positions.h"
#include "random.h"
#include "turns.h"

#define PAGES "preset=compact,headroom=0"

enum { POOL = 7, BLOCKS = 24, OPERATIONS = 200, POSITIONS = 10 };

static uint64_t events(enum memprof_kind kind) {
  const struct trail trail = trail_read(getpid(), 0);
  const uint64_t count = trail_number(&trail, kind);
  free(trail.records);
  return count;
}

// What the last take wanted.
static void check_take(uint64_t wanted) {
  const struct trail trail = trail_read(getpid(), 0);
  const struct memprof_record *last = trail_event(&trail, MEMPROF_TAKE, trail_number(&trail, MEMPROF_TAKE) - 1);
  CHECK(last != NULL);
  CHECK_EQUAL(last->requested, wanted);
  free(trail.records);
}

static void *take(uint64_t bytes, void *stream) {
  unsigned char *block = memprof_malloc(bytes, 0, stream);
  CHECK(block != NULL);
  gpu_write(block, 1, bytes);
  return block;
}

static void drop(void *block) { memprof_free(block, 0, 0, NULL); }

// The stream that left pages idle has nothing to do: another one takes them, and nothing waits.
TEST(over, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_FAIL", "cuCtxSynchronize:1+,cuStreamSynchronize:1+") {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct memprof_stats before, after;
  drop(take(16 * MiB, one));
  memprof_get_stats(0, &before);
  void *block = take(12 * MiB, two);
  memprof_get_stats(0, &after);
  CHECK_EQUAL(audited_bytes(), 16 * MiB);
  CHECK_EQUAL(GiB - gpu_free(), 16 * MiB);
  CHECK_EQUAL(after.syncs, before.syncs);
  check_take(12 * MiB);
  drop(block);
  drop(take(16 * MiB, one));  // 12 of them come back
  CHECK_EQUAL(audited_bytes(), 16 * MiB);
  check_take(12 * MiB);
}

// It is busy: more is mapped. When the work from before the first request is over, the next one takes what was idle then.
TEST(not_over, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  void *early = take(8 * MiB, one), *late = take(8 * MiB, one);
  gpu_hold(one);
  drop(early);
  take(8 * MiB, two);
  CHECK_EQUAL(audited_bytes(), 24 * MiB);
  check_take(8 * MiB);
  drop(late);  // behind the fence that the first request recorded
  gpu_let_go(one);
  gpu_hold(one);
  take(12 * MiB, two);
  check_take(12 * MiB);
  CHECK_EQUAL(audited_bytes(), 28 * MiB);  // 8 were taken, 4 mapped
  gpu_let_go(one);
  take(4 * MiB, two);
  check_take(4 * MiB);
  CHECK_EQUAL(audited_bytes(), 28 * MiB);
}

// At the end of an iteration a fence is recorded: what was freed before it is over without a request in between.
TEST(fence_of_an_iteration, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  void *block = take(8 * MiB, one);
  drop(take(4 * MiB, two));
  gpu_hold(one);
  drop(block);
  memprof_iteration("step");
  gpu_let_go(one);
  gpu_hold(one);
  take(8 * MiB, two);
  check_take(4 * MiB);
  CHECK_EQUAL(audited_bytes(), 12 * MiB);
  gpu_let_go(one);
}

// With other growths nothing is taken.
TEST(other_growths, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "preset=classic") {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  drop(take(16 * MiB, one));
  take(12 * MiB, two);
  CHECK(audited_bytes() >= 28 * MiB);
  CHECK_EQUAL(events(MEMPROF_TAKE), 0);
}

// Pools and tags take, and give nothing.
TEST(pools_and_tags, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *one = gpu_stream();
  drop(take(96 * MiB, one));
  memprof_pool_hold(0, POOL, 0);
  void *block = memprof_malloc_in_pool(32 * MiB, 0, NULL, POOL, 0);
  CHECK(block != NULL);
  CHECK_EQUAL(audited_bytes(), 96 * MiB);
  CHECK_EQUAL(GiB - gpu_free(), 96 * MiB);
  memprof_free(block, 0, 0, NULL);
  CHECK_EQUAL(memprof_region_begin("weights", 0), MEMPROF_OK);
  block = memprof_malloc(32 * MiB, 0, NULL);
  memprof_region_end();
  CHECK_EQUAL(audited_bytes(), 96 * MiB);
  memprof_free(block, 0, 0, NULL);
  take(64 * MiB, NULL);
  CHECK_EQUAL(audited_bytes(), 128 * MiB);  // 32 of the first stream, none of pool and tag
  check_take(32 * MiB);
}

TEST(registered, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  void *block = take(16 * MiB, one);
  CHECK(registered_add((struct registration_key){REGISTERED_NETWORK, 1, 1}, (uintptr_t)block, 8 * MiB, "test"));
  drop(block);
  take(12 * MiB, two);
  CHECK_EQUAL(audited_bytes(), 20 * MiB);  // 8 were taken
  memset(block, 2, 8 * MiB);
}

// No fence is recorded during a capture.
TEST(capture, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream(), *three = gpu_stream(), *graph;
  int (*begin)(void *, int), (*end)(void *, void **);
  GPU_CALL(begin, "cuStreamBeginCapture_v2");
  GPU_CALL(end, "cuStreamEndCapture");
  drop(take(16 * MiB, one));
  captures_begin();
  CHECK(begin(three, 0) == 0);
  take(12 * MiB, two);
  CHECK_EQUAL(audited_bytes(), 28 * MiB);
  check_take(12 * MiB);
  CHECK(end(three, &graph) == 0);
  captures_end();
  take(12 * MiB, two);
  CHECK_EQUAL(audited_bytes(), 28 * MiB);
}

// A stream that was destroyed: its work before that counts.
TEST(destroyed, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  int (*destroy)(void *);
  GPU_CALL(destroy, "cuStreamDestroy_v2");
  drop(take(16 * MiB, one));
  CHECK(destroy(one) == 0);
  take(12 * MiB, two);
  CHECK_EQUAL(audited_bytes(), 16 * MiB);
  check_take(12 * MiB);
}

// Random blocks of four streams, three of which are busy by turns. The driver may refuse one call.
TEST(scenario, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_FAIL", "none:1") {
  gpu_start();
  void *streams[] = {NULL, busy[0] = gpu_stream(), busy[1] = gpu_stream(), busy[2] = gpu_stream()};
  struct block blocks[BLOCKS] = {{0}};
  uint64_t state = 11;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, turn, NULL) == 0);
  for (int i = 0; i < OPERATIONS; i++) {
    struct block *block = &blocks[random_below(&state, BLOCKS)];
    void *stream = streams[random_below(&state, 4)];
    if (block->start != NULL)
      end(block);
    else
      begin(block, 1 + random_below(&state, 32 * MiB), stream);
    if (i % 50 == 49) {
      const uint64_t bytes = audited_bytes();
      if (!gpu_fails("cuMemUnmap") && !gpu_fails("cuMemRelease")) CHECK_EQUAL(GiB - gpu_free(), bytes);
      memprof_iteration("step");
    }
  }
  CHECK(events(MEMPROF_TAKE) > 0);
  ended = true;
  CHECK(pthread_join(thread, NULL) == 0);
  drop(take(20 * MiB, streams[1]));  // the failure is over
}

int main(int argc, char **argv) {
  static const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, NULL};
  static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuEventRecord", "cuEventCreate", "cuEventQuery", "cuCtxRecordEvent", "cuStreamIsCapturing"};
  int failed = run_tests(argc, argv);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], "", POSITIONS, true, environment);
  return failed;
}
