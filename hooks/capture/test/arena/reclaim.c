// reclaim.c - a request that would be refused: what nobody can read any more goes at once, then the work on the rest is waited for.
#define _GNU_SOURCE
#include <pthread.h>

#include "blocks.h"
#include "calls.h"
#include "device/captures.h"
#include "positions.h"
#include "random.h"
#include "turns.h"

#define CARD "MEMPROF_SIM_MEMORY", "64m", "MEMPROF_OPTIONS", "headroom=0"
#define COMPACT_CARD "MEMPROF_SIM_MEMORY", "64m", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0"

enum { POOL = 7, BLOCKS = 24, OPERATIONS = 100, POSITIONS = 8 };

// The card has 64 MiB.

// Freed without a look at what is in it: another may have it by now.
static void leave(void *stream, uint64_t bytes) {
  struct block block;
  CHECK(fill(&block, bytes, stream));
  end(&block);
}

// The reclaims so far: those that waited, or the others.
static uint64_t reclaims(bool waited) {
  const struct trail trail = audited();
  char text[4097];
  uint64_t number = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    if (trail_kind(&trail.records[i]) != MEMPROF_RECLAIM) continue;
    trail_text(&trail, trail.records[i].context, i, text);
    number += waited == (strcmp(text, "waited") == 0);
  }
  free(trail.records);
  return number;
}

// A request while a stream is held that is let go later. Whether it was served before.
static bool before_the_end(void *held, struct block *block, uint64_t bytes, void *stream) {
  pthread_t thread;
  was_let_go = false;
  CHECK(pthread_create(&thread, NULL, let_go_later, held) == 0);
  CHECK(fill(block, bytes, stream));
  const bool before = !was_let_go;
  CHECK(pthread_join(thread, NULL) == 0);
  return before;
}

// Streams without work: their memory goes.
TEST(over, CARD) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  leave(one, 40 * MiB);
  CHECK(fill(&block, 50 * MiB, two));
  CHECK_EQUAL(reserved(), 64 * MiB - gpu_free());
  CHECK_EQUAL(gpu_waits(), 0);
  CHECK_EQUAL(stats().ooms, 0);
  CHECK_EQUAL(reclaims(false), 1);
  end(&block);
  leave(NULL, 60 * MiB);
  CHECK_EQUAL(reclaims(false), 2);
}

// A kernel that was queued after the free, as NCCL's, which may wait for another process, is waited for only where a fence
// from before it does not suffice.
TEST(later_work_is_left, COMPACT_CARD) {
  gpu_start();
  void *never = gpu_stream(), *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  leave(one, 48 * MiB);
  memprof_iteration("step");  // records a fence
  gpu_hold(never);
  CHECK(fill(&block, 36 * MiB, two));
  CHECK_EQUAL(gpu_waits(), 0);
  CHECK_EQUAL(reclaims(true), 0);
  gpu_let_go(never);
}

// The request's own stream is waited for.
TEST(waits_for_its_own, CARD) {
  gpu_start();
  void *one = gpu_stream();
  struct block walls[2], free_one, block;
  CHECK(fill(&walls[0], 2 * MiB, one) && fill(&free_one, 32 * MiB, one) && fill(&walls[1], 2 * MiB, one));
  gpu_hold(one);
  end(&free_one);
  CHECK(!before_the_end(one, &block, 36 * MiB, one));
  CHECK_EQUAL(reclaims(true), 1);
  check_pattern(&walls[0]), check_pattern(&walls[1]);
}

// Blocks that other streams use are pending until these are waited for.
TEST(pending, CARD) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block pending, block;
  CHECK(fill(&pending, 40 * MiB, one));
  memprof_record_stream(pending.start, two);
  gpu_hold(two);
  end(&pending);
  CHECK(!before_the_end(two, &block, 50 * MiB, two));
  CHECK_EQUAL(stats().syncs, 1);
  CHECK_EQUAL(reclaims(true), 1);
}

// A graph may use free memory of its pool at any time: it stays. That of a tag goes.
TEST(pools_and_tags, CARD) {
  gpu_start();
  void *two = gpu_stream();
  struct block block;
  memprof_pool_hold(0, POOL, 0);
  void *pooled = memprof_malloc_in_pool(16 * MiB, 0, NULL, POOL, 0);
  CHECK(pooled != NULL);
  memprof_free(pooled, 0, 0, NULL);
  CHECK_EQUAL(memprof_region_begin("weights", 0), MEMPROF_OK);
  leave(NULL, 16 * MiB);
  memprof_region_end();
  CHECK_EQUAL(reserved(), 32 * MiB);
  CHECK(fill(&block, 40 * MiB, two));
  CHECK_EQUAL(reserved(), 56 * MiB);
}

// During a capture nothing is asked, waited for or unmapped.
TEST(capture, CARD) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream(), *three = gpu_stream(), *graph;
  int (*begin_capture)(void *, int), (*end_capture)(void *, void **);
  struct block block;
  GPU_CALL(begin_capture, "cuStreamBeginCapture_v2");
  GPU_CALL(end_capture, "cuStreamEndCapture");
  leave(one, 40 * MiB);
  captures_begin();
  CHECK(begin_capture(three, 0) == 0);
  CHECK(!fill(&block, 50 * MiB, two));
  CHECK_EQUAL(reclaims(true), 0);
  CHECK(end_capture(three, &graph) == 0);
  captures_end();
  CHECK(fill(&block, 50 * MiB, two));
}

static void destroy(void *stream) {
  int (*call)(void *);
  GPU_CALL(call, "cuStreamDestroy_v2");
  CHECK(call(stream) == 0);
}

// A stream that was destroyed with work: that is waited for.
TEST(destroyed, CARD) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  gpu_hold(one);
  leave(one, 40 * MiB);
  destroy(one);
  CHECK(!before_the_end(one, &block, 50 * MiB, two));
}

// The thread that waits for the device has another context of it, as PyCUDA makes, or a green one: it waits for the primary context, and for its own.
TEST(another_context, CARD) {
  gpu_start();
  void *streams[2] = {gpu_stream(), NULL}, *context;
  int (*create)(void **, unsigned, int);
  GPU_CALL(create, "cuCtxCreate_v2");
  CHECK(create(&context, 0, 0) == 0);
  streams[1] = gpu_stream();
  for (int own = 0; own < 2; own++) {
    pthread_t thread;
    leave(streams[0], 40 * MiB);
    gpu_hold(streams[own]);
    was_let_go = false;
    CHECK(pthread_create(&thread, NULL, let_go_later, streams[own]) == 0);
    CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);
    CHECK(was_let_go);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

static void *without_context(void *nothing) {
  CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);
  return nothing;
}

// The job has no primary context, but one of its own: none is made before a thread without a context needs one.
TEST(no_primary_context, COMPACT_CARD) {
  int (*init)(unsigned), (*create)(void **, unsigned, int);
  void *context;
  pthread_t thread;
  log_calls();
  GPU_CALL(init, "cuInit");
  GPU_CALL(create, "cuCtxCreate_v2");
  CHECK(init(0) == 0 && create(&context, 0, 0) == 0);
  leave(NULL, 40 * MiB);
  CHECK_EQUAL(calls_of("cuDevicePrimaryCtxRetain"), 0);
  CHECK(pthread_create(&thread, NULL, without_context, NULL) == 0 && pthread_join(thread, NULL) == 0);
  const uint64_t before = calls_of("cuDevicePrimaryCtxRetain");
  CHECK(before > 0);
  leave(NULL, 40 * MiB);
  CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);
  CHECK_EQUAL(calls_of("cuDevicePrimaryCtxRetain"), before);
}

// Random blocks of four streams, three of which are busy by turns, on a card that they fill. The driver may refuse one call.
TEST(scenario, "MEMPROF_SIM_MEMORY", "256m", "MEMPROF_OPTIONS", "headroom=0", "MEMPROF_SIM_FAIL", "none:1") {
  gpu_start();
  void *streams[] = {NULL, busy[0] = gpu_stream(), busy[1] = gpu_stream(), busy[2] = gpu_stream()};
  struct block blocks[BLOCKS] = {{0}};
  uint64_t state = 5;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, turn, NULL) == 0);
  // Until a request has waited, too: on a busy machine the streams may be idle whenever one asks.
  for (int i = 0; i < OPERATIONS || (i < 20 * OPERATIONS && reclaims(true) == 0); i++) {
    struct block *block = &blocks[random_below(&state, BLOCKS)];
    void *stream = streams[random_below(&state, 4)];
    if (block->start != NULL)
      end(block);
    else
      begin(block, 1 + random_below(&state, 32 * MiB), stream);
    if (i % 50 == 49) {
      const struct trail trail = audited();
      free(trail.records);
      if (!gpu_fails("cuMemUnmap") && !gpu_fails("cuMemRelease")) CHECK_EQUAL(256 * MiB - gpu_free(), reserved());
    }
  }
  CHECK(reclaims(true) > 0);
  ended = true;
  CHECK(pthread_join(thread, NULL) == 0);
  for (int i = 0; i < BLOCKS; i++) end(&blocks[i]);
  leave(streams[1], 200 * MiB);  // the failure is over
}

int main(int argc, char **argv) {
  static const char *const environment[] = {"MEMPROF_SIM_MEMORY", "256m", "MEMPROF_OPTIONS", "headroom=0", NULL};
  static const char *const calls[] = {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
                                      "cuCtxSynchronize", "cuCtxRecordEvent", "cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess"};
  int failed = run_tests(argc, argv);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], "", POSITIONS, true, environment);
  return failed;
}
