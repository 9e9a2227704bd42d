// captures.c - one thread captures graphs while others do whatever the hook may do meanwhile.
//
// In global mode a call that waits, allocates or frees ends a capture, whichever thread makes it. The
// simulated driver ends the capture then, as a card does. So here each capture has to end well, while
// other threads allocate, free, trim, empty the cache, release pools, load code and begin.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "gpu.h"
#include "quiet.h"
#include "random.h"

#define CARD "MEMPROF_SIM_MEMORY", "64g"

int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuModuleUnload(void *module);
int cuMemAllocAsync(uint64_t *addr, size_t bytes, void *stream);
int cuMemFreeAsync(uint64_t addr, void *stream);
int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream, void **, void **);

enum { CAPTURES = 400, FEW = 30, STREAMS = 3, LIVE = 12, GLOBAL = 0 };

static _Atomic bool over;
static void *streams[STREAMS];
static void *_Atomic mail;  // a block on its way to be freed by another thread

// Blocks that other streams use: their frees wait for events.
static void *allocate(void *argument) {
  uint64_t random = 1 + (uint64_t)(intptr_t)argument;
  void *blocks[LIVE] = {0};
  gpu_start();
  while (!atomic_load(&over)) {
    void **block = &blocks[random_below(&random, LIVE)];
    if (*block == NULL) {
      const uint64_t most = random_below(&random, 8) == 0 ? 16 * MiB : 256 * KiB;
      const uint64_t bytes = 1 + random_below(&random, most);
      CHECK((*block = memprof_malloc(bytes, 0, streams[random_below(&random, STREAMS)])) != NULL);
      memprof_record_stream(*block, streams[random_below(&random, STREAMS)]);
    } else {
      memprof_free(atomic_exchange(&mail, *block), 0, 0, NULL);
      *block = NULL;
    }
  }
  for (int i = 0; i < LIVE; i++) memprof_free(blocks[i], 0, 0, NULL);
  return NULL;
}

static void *take_back(void *nothing) {
  for (uint64_t pool = 1000; !atomic_load(&over); pool++) {
    void *block = memprof_malloc_in_pool(3 * MiB, 0, streams[0], 0, pool);
    CHECK(block != NULL);
    memprof_free(block, 0, 0, NULL);
    memprof_release_pool(0, 0, pool);
    memprof_empty_cache(0);
    memprof_iteration("step");
    memprof_largest_free(0);
    memprof_set_limit(0, 32 * GiB + pool);
    usleep(200);  // pools that are released during a capture stay mapped until it ends
  }
  return nothing;
}

static void *load_code(void *nothing) {
  gpu_start();
  while (!atomic_load(&over)) {
    void *module, *function;
    uint64_t pooled;
    CHECK(cuMemAllocAsync(&pooled, 8 * MiB, streams[1]) == 0 && cuMemFreeAsync(pooled, streams[1]) == 0);
    CHECK(cuModuleLoadData(&module, "simcuda:2097152") == 0);
    CHECK(cuModuleGetFunction(&function, module, "f") == 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, streams[1], NULL, NULL) == 0);
    CHECK(cuModuleUnload(module) == 0);
    usleep(100);
  }
  return nothing;
}

// A thread that has no context yet when it allocates.
static void *arrive(void *nothing) {
  void *block = memprof_malloc(1 * MiB, 0, NULL);
  CHECK(block != NULL);
  memprof_record_stream(block, streams[2]);
  memprof_free(block, 0, 0, NULL);
  return nothing;
}

static void *start_threads(void *nothing) {
  while (!atomic_load(&over)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, arrive, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  return nothing;
}

// Each capture allocates in its pool, as a framework does, and what it frees may be another stream's.
static void capture(void *stream, uint64_t pool) {
  void *graph = NULL;
  memprof_pool_begin(0, pool, 0);
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, GLOBAL), 0);
  for (int i = 0; i < 6; i++) {
    void *block = memprof_malloc_in_pool((uint64_t)(i + 1) * 700 * KiB, 0, stream, pool, 0);
    CHECK(block != NULL);
    memprof_record_stream(block, streams[i % STREAMS]);
    memprof_free(block, 0, 0, NULL);
    sched_yield();
  }
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  CHECK(graph != NULL);
  memprof_pool_end(0, pool, 0);
  int (*destroy)(void *);
  GPU_CALL(destroy, "cuGraphDestroy");
  CHECK_EQUAL(destroy(graph), 0);
  memprof_release_pool(0, pool, 0);
}

static void check_captures_end_well(void) {
  void *(*const work[])(void *) = {allocate, allocate, take_back, load_code, start_threads};
  enum { THREADS = sizeof work / sizeof *work };
  pthread_t threads[THREADS];
  gpu_start();
  for (int i = 0; i < STREAMS; i++) streams[i] = gpu_stream();
  void *stream = gpu_stream();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work[i], (void *)(intptr_t)i) == 0);
  const uint64_t captures = getenv("MEMPROF_TEST_ALL") != NULL ? CAPTURES : FEW;
  for (uint64_t i = 1; i <= captures; i++) {
    capture(stream, i);
    usleep((useconds_t)(i % 5) * 100);
  }
  atomic_store(&over, true);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  memprof_free(mail, 0, 0, NULL);
  memprof_empty_cache(0);
  CHECK_EQUAL(stats().allocation.current, 0);
  CHECK_EQUAL(stats().active_bytes.current, 0);
  CHECK_EQUAL(stats().ooms, 0);
  const struct trail trail = audited();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), stats().allocation.allocated);
}

TEST(captures_end_well, CARD, "MEMPROF_OPTIONS", "readings=1") { check_captures_end_well(); }
TEST(captures_end_well_compact, CARD, "MEMPROF_OPTIONS", "preset=compact,trim=iteration,readings=1") { check_captures_end_well(); }
TEST(captures_end_well_idle, CARD, "MEMPROF_OPTIONS", "trim=idle:1000000,readings=1") { check_captures_end_well(); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
