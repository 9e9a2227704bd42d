// trim.c - memory that is unmapped without a request. The driver refuses each call in turn.
#define _GNU_SOURCE
#include "blocks.h"
#include "positions.h"
#include "random.h"

#define COMPACT "preset=compact,handle=2097152"

enum { MOST = 24, POSITIONS = 40, ROUNDS = 14, IDLE_NS = 50000000 };

// An iteration takes blocks of these sizes, and frees them.
static void iterate(const uint64_t *sizes, int count, void *stream) {
  struct block blocks[MOST];
  for (int i = 0; i < count; i++) begin(&blocks[i], sizes[i], stream);
  for (int i = 0; i < count; i++) end(&blocks[i]);
  memprof_iteration(NULL);
}
#define ITERATE(stream, ...) \
  iterate((const uint64_t[]){__VA_ARGS__}, (int)(sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), stream)

static uint64_t count_if(const struct trail *trail, enum memprof_kind kind, bool asked) {
  uint64_t number = 0;
  for (uint64_t i = 0; i < trail->count; i++)
    number += trail_kind(&trail->records[i]) == (int)kind && (trail->records[i].requested > 0) == asked;
  return number;
}

static void check_arena(const struct trail *trail, uint64_t index, const char *policy, const char *main) {
  char text[4097];
  const struct memprof_record *record = trail_event(trail, MEMPROF_ARENA, index);
  trail_text(trail, record->context, (uint64_t)(record - trail->records), text);
  CHECK(strstr(text, policy) == text && strstr(text, main) != NULL);
}

TEST(options_in_the_arena, "MEMPROF_OPTIONS", "preset=compact,trim=idle:5000000000,headroom=4096") {
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  CHECK(memprof_malloc_in_pool(MiB, 0, NULL, 7, 7) != NULL);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), 2);
  check_arena(&trail, 0, "growth=pages split=always trim=idle:5000000000 headroom=4096 fraction=0 ", " main=1 ");
  check_arena(&trail, 1, "growth=needed split=always trim=never headroom=0 fraction=0 ", " main=0 ");
}

// Pages that the second iteration does not use are unmapped behind it. Then nothing happens: no
// call of the driver, no event of memory, no waiting.
static void check_unused_pages_go_for_good(void) {
  gpu_start();
  ITERATE(NULL, 4 * MiB, 36 * MiB);
  rest();
  ITERATE(NULL, 4 * MiB, 2 * MiB);
  rest();
  CHECK_EQUAL(reserved(), 6 * MiB);
  CHECK_EQUAL(8 * GiB - gpu_free(), 6 * MiB);
  const struct memprof_stats before = stats();
  for (int i = 0; i < 10; i++) ITERATE(NULL, 4 * MiB, 2 * MiB);
  rest();
  const struct memprof_stats now = stats();
  CHECK_EQUAL(now.device_allocs, before.device_allocs);
  CHECK_EQUAL(now.device_frees, before.device_frees);
  CHECK_EQUAL(now.syncs, 0);
  const struct trail trail = audited();
  CHECK_EQUAL(count_if(&trail, MEMPROF_UNMAP, false), trail_number(&trail, MEMPROF_UNMAP));
}

// A page that a block of the iteration left counts as used, whenever the block was requested; and one that a live block
// touches is not free.
static void check_blocks_of_earlier_iterations(void) {
  gpu_start();
  struct block first, second;
  begin(&first, 8 * MiB, NULL), begin(&second, 8 * MiB, NULL);
  memprof_iteration(NULL);
  rest();
  CHECK_EQUAL(reserved(), 16 * MiB);  // what doubling has mapped beyond was never used
  memprof_iteration(NULL);
  end(&first);
  memprof_iteration(NULL);
  rest();
  CHECK_EQUAL(reserved(), 16 * MiB);
  memprof_iteration(NULL);
  rest();
  CHECK_EQUAL(reserved(), 8 * MiB);
  end(&second);
  audited();
}

// Work of the stream that used the memory is not finished: it stays.
TEST(waits_for_the_stream, "MEMPROF_OPTIONS", COMPACT ",trim=iteration") {
  gpu_start();
  void *stream = gpu_stream();
  ITERATE(stream, 4 * MiB, 36 * MiB);
  gpu_hold(stream);
  ITERATE(stream, 4 * MiB);
  ITERATE(stream, 4 * MiB);
  rest_for_a_while();
  CHECK_EQUAL(reserved(), 40 * MiB);
  gpu_let_go(stream);
  rest();
  CHECK_EQUAL(reserved(), 4 * MiB);
  audited();
}

// While a stream is being captured nothing is recorded, queried or unmapped; and
// what is asked of a pool is never trimmed.
TEST(captures_and_pools, "MEMPROF_OPTIONS", COMPACT ",trim=iteration") {
  gpu_start();
  void *stream = gpu_stream(), *graph;
  memprof_pool_begin(0, 7, 7);
  void *pooled = memprof_malloc_in_pool(20 * MiB, 0, stream, 7, 7);
  memprof_free(pooled, 0, 0, NULL);
  ITERATE(NULL, 4 * MiB, 36 * MiB);
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 2), 0);
  ITERATE(NULL, 4 * MiB);
  ITERATE(NULL, 4 * MiB);
  rest_for_a_while();
  CHECK_EQUAL(reserved(), 60 * MiB);
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  ITERATE(NULL, 4 * MiB);
  rest();
  CHECK_EQUAL(reserved(), 24 * MiB);
  audited();
}

TEST(idle, "MEMPROF_OPTIONS", COMPACT ",trim=idle:50000000") {
  gpu_start();
  struct block keep, block;
  begin(&keep, 4 * MiB, NULL), begin(&block, 60 * MiB, NULL);
  end(&block);
  await_reserved(4 * MiB);
  begin(&block, 60 * MiB, NULL);
  end(&block), end(&keep);
  await_reserved(0);
  const struct trail trail = audited();
  char text[4097];
  const struct memprof_record *freed = trail_event(&trail, MEMPROF_FREE, 0), *why = trail_event(&trail, MEMPROF_RECLAIM, 0);
  trail_text(&trail, why->context, (uint64_t)(why - trail.records), text);
  CHECK(strcmp(text, "idle") == 0);
  CHECK(why->time_ns >= freed->time_ns + IDLE_NS);
}

// 20 MiB that are free in a pool which is held, and 36 in no pool, which were asked for before.
static struct block free_in_a_pool(void) {
  struct block block, pooled = {.bytes = 20 * MiB, .pattern = 7};
  begin(&block, 36 * MiB, NULL);
  memprof_pool_hold(0, 7, 7);
  pooled.start = memprof_malloc_in_pool(pooled.bytes, 0, NULL, 7, 7);
  memset(pooled.start, pooled.pattern, pooled.bytes);
  memprof_free(pooled.start, 0, 0, NULL);
  CHECK_EQUAL(reserved(), 56 * MiB);
  end(&block);
  return pooled;
}

// What graphs replay on stays mapped where all else goes.
static void check_only_the_pool_stays(const struct block *pooled) {
  await_reserved(20 * MiB);
  CHECK_EQUAL(GiB - gpu_free(), 20 * MiB);
  check_pattern(pooled);
  audited();
}

TEST(empty_cache_leaves_pools, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT) {
  gpu_start();
  const struct block pooled = free_in_a_pool();
  CHECK_EQUAL(memprof_empty_cache(0), 36 * MiB);
  check_only_the_pool_stays(&pooled);
}

TEST(idle_leaves_pools, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT ",trim=idle:50000000") {
  gpu_start();
  const struct block pooled = free_in_a_pool();
  check_only_the_pool_stays(&pooled);
}

// A job that nearly repeats itself, with blocks that outlive their iteration, one call of the
// driver refused. A request may fail for it; nothing else may be wrong.
static void scenario(void) {
  gpu_start();
  // Where unmapping fails, the memory stays with us: the device has less than it should.
  const bool exact = !gpu_fails("cuMemUnmap") && !gpu_fails("cuMemRelease") && !gpu_fails("cuMemGetInfo");
  void *stream = gpu_stream();
  struct block blocks[MOST] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t random = 1 + (uint64_t)(round == 4 || round == 9);  // two iterations are like no other
    for (int i = 0; i < 60; i++) {
      struct block *block = &blocks[random_below(&random, MOST)];
      const bool large = random_below(&random, 4) == 0;
      if (block->start == NULL)
        begin(block, 1 + random_below(&random, large ? 24 * MiB : 300 * KiB), random_below(&random, 4) == 0 ? stream : NULL);
      else
        end(block);
    }
    for (int i = 0; i < MOST; i++) check_pattern(&blocks[i]);
    memprof_iteration(NULL);
    if (round % 3 == 0) rest();
  }
  rest();
  audited();
  for (int i = 0; i < MOST; i++) end(&blocks[i]);
  // Under trim=idle memory may be unmapped between the two readings.
  for (int i = 0; exact && (int64_t)(GiB - gpu_free()) != reserved() && i < 60000; i++) usleep(1000);
  if (exact) CHECK_EQUAL(GiB - gpu_free(), reserved());
  begin(&blocks[0], 20 * MiB, NULL);
  CHECK(blocks[0].start != NULL);  // the failure is over
  end(&blocks[0]);
}

TEST(scenario, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT ",trim=iteration", "MEMPROF_SIM_FAIL", "none:1") { scenario(); }
TEST(unused_pages_go_for_good, "MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", "trim=iteration") { check_unused_pages_go_for_good(); }
TEST(unused_pages_go_for_good_compact, "MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", COMPACT ",trim=iteration") { check_unused_pages_go_for_good(); }
TEST(blocks_of_earlier_iterations, "MEMPROF_OPTIONS", "trim=iteration") { check_blocks_of_earlier_iterations(); }
TEST(blocks_of_earlier_iterations_compact, "MEMPROF_OPTIONS", COMPACT ",trim=iteration") { check_blocks_of_earlier_iterations(); }

int main(int argc, char **argv) {
  static const char *const calls[] = {"cuMemCreate", "cuMemMap",      "cuMemSetAccess", "cuMemGetInfo",    "cuMemUnmap",        "cuMemRelease",
                                      "cuEventCreate", "cuEventRecord", "cuEventQuery",   "cuCtxSynchronize", "cuMemAddressReserve"};
  static const char *const policies[] = {COMPACT ",trim=iteration", "headroom=0,trim=iteration", "headroom=0,trim=idle:1000000"};
  int failed = run_tests(argc, argv);
  // Policies differ in when they call, not in what they do about a refusal: one has most positions.
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
    const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", policies[p], NULL};
    const int most = p == 0 || getenv("MEMPROF_TEST_ALL") != NULL ? POSITIONS : 4;
    for (size_t i = 0; i < (p < 2 ? sizeof calls / sizeof *calls : 2); i++) failed |= !each_position(calls[i], "", most, false, environment);
  }
  return failed;
}
