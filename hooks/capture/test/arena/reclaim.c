// reclaim.c - a request that would be refused: what other streams hold free goes first, and the device is not waited for where streams suffice.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "arena/exchange.h"
#include "blocks.h"
#include "device/captures.h"
#include "positions.h"
#include "random.h"
#include "turns.h"

enum { POOL = 7, BLOCKS = 24, OPERATIONS = 100, POSITIONS = 8 };

// The card has 64 MiB; with the second, the device cannot be waited for.
#define CARD "MEMPROF_SIM_MEMORY", "64m", "MEMPROF_OPTIONS", "headroom=0"
#define COMPACT_CARD "MEMPROF_SIM_MEMORY", "64m", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0"
#define NO_WAIT "MEMPROF_SIM_FAIL", "cuCtxSynchronize:1+=900"

static bool fill(struct block *block, uint64_t bytes, void *stream) {
  begin(block, bytes, stream);
  return block->start != NULL;
}

// Freed without a look at what is in it: another may have it by now.
static void leave(void *stream, uint64_t bytes) {
  struct block block;
  CHECK(fill(&block, bytes, stream));
  end(&block);
}

// The reclaims so far that waited for streams, and all.
static uint64_t reclaims(bool for_streams) {
  const struct trail trail = audited();
  char text[4097];
  uint64_t number = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    if (trail_kind(&trail.records[i]) != MEMPROF_RECLAIM) continue;
    trail_text(&trail, trail.records[i].context, i, text);
    number += !for_streams || strcmp(text, "streams") == 0;
  }
  free(trail.records);
  return number;
}

// Streams without work: their memory goes, and nothing is waited for.
static void test_over(void) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  leave(one, 40 * MiB);
  CHECK(fill(&block, 50 * MiB, two));
  CHECK_EQUAL(reserved(), 64 * MiB - gpu_free());
  CHECK_EQUAL(stats().syncs, 0);
  CHECK_EQUAL(stats().ooms, 0);
  CHECK_EQUAL(reclaims(true), 1);
  CHECK_EQUAL(reclaims(false), 1);
  end(&block);
  leave(NULL, 60 * MiB);
  CHECK_EQUAL(reclaims(true), 2);
}

// A stream without an arena, as NCCL's, is not waited for: its kernel may wait for another process.
static void test_others_are_left(void) {
  gpu_start();
  void *never = gpu_stream(), *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  leave(one, 48 * MiB);
  gpu_hold(never);
  CHECK(fill(&block, 36 * MiB, two));
  CHECK_EQUAL(stats().syncs, 0);
  CHECK_EQUAL(reclaims(true), 1);
  gpu_let_go(never);
}

static atomic_bool let_go;

static void *let_go_later(void *stream) {
  usleep(20000);
  let_go = true;
  gpu_let_go(stream);
  return NULL;
}

// The request's own stream is waited for.
static void test_waits_for_its_own(void) {
  gpu_start();
  void *one = gpu_stream();
  struct block walls[2], free_one, block;
  pthread_t thread;
  CHECK(fill(&walls[0], 2 * MiB, one) && fill(&free_one, 32 * MiB, one) && fill(&walls[1], 2 * MiB, one));
  end(&free_one);
  gpu_hold(one);
  CHECK(pthread_create(&thread, NULL, let_go_later, one) == 0);
  CHECK(fill(&block, 36 * MiB, one));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(stats().syncs, 0);
  CHECK_EQUAL(reclaims(true), 1);
  check_pattern(&walls[0]), check_pattern(&walls[1]);
}

// Another stream is waited for where its memory is needed, until what was queued is done.
static void test_waits_for_another(void) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  pthread_t thread;
  leave(one, 40 * MiB);
  gpu_hold(one);
  CHECK(pthread_create(&thread, NULL, let_go_later, one) == 0);
  CHECK(fill(&block, 50 * MiB, two));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(stats().syncs, 0);
  CHECK_EQUAL(reclaims(true), 1);
  end(&block);
}

// Another stream may still read what a program freed in an idle one without record_stream.
static void test_freed_early(void) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block early, block;
  pthread_t thread;
  CHECK(fill(&early, 40 * MiB, NULL));
  leave(one, 2 * MiB);
  gpu_hold(one);
  end(&early);
  CHECK(pthread_create(&thread, NULL, let_go_later, one) == 0);
  CHECK(fill(&block, 50 * MiB, two));
  CHECK(let_go);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(reclaims(true), 1);
}

// Streams have too little: the device is waited for, as blocks that other streams use are pending until then.
static void test_device(void) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block pending, block;
  pthread_t thread;
  CHECK(fill(&pending, 40 * MiB, one));
  memprof_record_stream(pending.start, two);
  gpu_hold(two);
  end(&pending);
  CHECK(pthread_create(&thread, NULL, let_go_later, two) == 0);
  CHECK(fill(&block, 50 * MiB, two));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(stats().syncs, 1);
  CHECK_EQUAL(reclaims(true), 0);
  CHECK_EQUAL(reclaims(false), 1);
}

// A graph may use free memory of its pool on any stream; that of a tag is not of one stream's order either.
static void test_pools_and_tags(void) {
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
  CHECK(!fill(&block, 40 * MiB, two));
  CHECK_EQUAL(reserved(), 32 * MiB);
}

// A thread's default stream has the same handle in each thread.
static void test_default_streams_of_threads(void) {
  gpu_start();
  struct block block;
  leave((void *)2, 40 * MiB);
  CHECK(!fill(&block, 50 * MiB, gpu_stream()));
}

// During a capture nothing is asked, waited for or unmapped.
static void test_capture(void) {
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
  CHECK_EQUAL(reclaims(true), 1);
}

static void destroy(void *stream) {
  int (*call)(void *);
  GPU_CALL(call, "cuStreamDestroy_v2");
  CHECK(call(stream) == 0);
}

// A stream that was destroyed must not be asked: the event recorded before is.
static void test_destroyed(void) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  leave(one, 40 * MiB);
  exchange_stream_ends(one);
  destroy(one);
  CHECK(fill(&block, 50 * MiB, two));
  CHECK_EQUAL(reclaims(true), 1);
  CHECK_EQUAL(stats().syncs, 0);
}

// A stream was destroyed during a capture, when no event can be recorded: nobody can say when its work is over.
static void test_destroyed_in_a_capture(void) {
  gpu_start();
  void *one = gpu_stream(), *two = gpu_stream();
  struct block block;
  leave(one, 40 * MiB);
  captures_begin();
  exchange_stream_ends(one);
  captures_end();
  destroy(one);
  CHECK(!fill(&block, 50 * MiB, two));
}

// The thread that waits for the device has another context of it, as PyCUDA makes, or a green one: it waits for the primary context, and for its own.
static void test_another_context(void) {
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
    let_go = false;
    CHECK(pthread_create(&thread, NULL, let_go_later, streams[own]) == 0);
    CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);
    CHECK(let_go);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

static char calls_log[64];  // of the simulated driver

static int pushes(void) {
  char line[512];
  int count = 0;
  FILE *log = fopen(calls_log, "r");
  CHECK(log != NULL);
  while (fgets(line, sizeof line, log) != NULL) count += strstr(line, "cuCtxPushCurrent") != NULL;
  fclose(log);
  return count;
}

static void *without_context(void *nothing) {
  CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);
  return nothing;
}

// The job has no primary context, but one of its own: its default stream is asked there, also after a thread without a context needed one.
static void test_no_primary_context(void) {
  int (*init)(unsigned), (*create)(void **, unsigned, int);
  void *context;
  pthread_t thread;
  snprintf(calls_log, sizeof calls_log, "/tmp/memprof-calls-%d", (int)getpid());
  CHECK(setenv("MEMPROF_SIM_LOG", calls_log, 1) == 0);
  GPU_CALL(init, "cuInit");
  GPU_CALL(create, "cuCtxCreate_v2");
  CHECK(init(0) == 0 && create(&context, 0, 0) == 0);
  leave(NULL, 40 * MiB);
  CHECK_EQUAL(pushes(), 0);
  CHECK(pthread_create(&thread, NULL, without_context, NULL) == 0 && pthread_join(thread, NULL) == 0);
  const int before = pushes();
  CHECK(before > 0);
  leave(NULL, 40 * MiB);
  CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);
  CHECK_EQUAL(pushes(), before);
  unlink(calls_log);
}

// Random blocks of four streams, three of which are busy by turns, on a card that they fill. The driver may refuse one call.
static void scenario(void) {
  gpu_start();
  const char *failing = getenv("MEMPROF_SIM_FAIL");
  void *streams[] = {NULL, busy[0] = gpu_stream(), busy[1] = gpu_stream(), busy[2] = gpu_stream()};
  struct block blocks[BLOCKS] = {{0}};
  uint64_t state = 5;
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
      const struct trail trail = audited();
      free(trail.records);
      if (strncmp(failing, "cuMemUnmap", 10) != 0 && strncmp(failing, "cuMemRelease", 12) != 0) CHECK_EQUAL(256 * MiB - gpu_free(), reserved());
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
  static const struct test tests[] = {
      {"over", test_over, {CARD, NO_WAIT}},
      {"others are left", test_others_are_left, {CARD, NO_WAIT}},
      {"waits for its own", test_waits_for_its_own, {"MEMPROF_SIM_MEMORY", "64m", "MEMPROF_OPTIONS", "headroom=0", NO_WAIT}},
      {"waits for another", test_waits_for_another, {CARD, NO_WAIT}},
      {"freed early", test_freed_early, {COMPACT_CARD, NO_WAIT}},
      {"device", test_device, {CARD}},
      {"pools and tags", test_pools_and_tags, {CARD, NO_WAIT}},
      {"default streams of threads", test_default_streams_of_threads, {CARD, NO_WAIT}},
      {"capture", test_capture, {CARD, NO_WAIT}},
      {"destroyed", test_destroyed, {CARD, NO_WAIT}},
      {"destroyed in a capture", test_destroyed_in_a_capture, {CARD, NO_WAIT}},
      {"another context", test_another_context, {CARD}},
      {"no primary context", test_no_primary_context, {COMPACT_CARD}},
      {"scenario", scenario, {"MEMPROF_SIM_MEMORY", "256m", "MEMPROF_OPTIONS", "headroom=0", "MEMPROF_SIM_FAIL", "none:1"}},
  };
  static const char *const calls[] = {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamQuery", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
                                      "cuCtxSynchronize", "cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess"};
  int failed = run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], "", POSITIONS, true, environment);
  return failed;
}
