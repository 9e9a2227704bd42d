// trim.c - memory that goes back by itself, and growth that takes what is free elsewhere. The
// driver refuses each call in turn.
#define _GNU_SOURCE
#include "blocks.h"
#include "random.h"

enum { MOST = 24, POSITIONS = 40, ROUNDS = 14, IDLE_NS = 50000000 };

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);

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

static void test_options_in_the_arena(void) {
  gpu_start();
  CHECK(memprof_malloc(64 * KiB - 1, 0, NULL) != NULL);
  CHECK(memprof_malloc(64 * KiB, 0, NULL) != NULL);
  const struct trail trail = trail_read(getpid(), 0);
  char text[4097];
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), 2);
  const struct memprof_record *small = trail_event(&trail, MEMPROF_ARENA, 0), *large = trail_event(&trail, MEMPROF_ARENA, 1);
  trail_text(&trail, small->context, (uint64_t)(small - trail.records), text);
  CHECK(strstr(text, "growth=step:4194304 ") == text && strstr(text, " main=0 ") != NULL);
  const char *const fields[] = {" split=always", " trim=idle:5000000000", " placement=planned", " below=65536"};
  for (int i = 0; i < 4; i++) CHECK(strstr(text, fields[i]) != NULL);
  trail_text(&trail, large->context, (uint64_t)(large - trail.records), text);
  CHECK(strstr(text, " main=1 ") != NULL && strstr(text, "below") == NULL);
  for (int i = 0; i < 3; i++) CHECK(strstr(text, fields[i]) != NULL);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 0)->provided, 4 * MiB);
}

// Free chunks of 8 and 6 MiB are taken for 20 MiB that fit nowhere; a free chunk is mapped again when it is
// asked for, and takes the others for it in turn.
static void test_growth_takes_free_pages(void) {
  gpu_start();
  struct block blocks[6];
  const uint64_t sizes[] = {2, 8, 2, 6, 2, 2};
  for (int i = 0; i < 6; i++) begin(&blocks[i], sizes[i] * MiB, NULL);
  end(&blocks[1]), end(&blocks[3]);
  CHECK_EQUAL(reserved(), 22 * MiB);
  struct block large, again;
  begin(&large, 20 * MiB, NULL);
  CHECK_EQUAL(reserved(), 28 * MiB);  // 22 and 6 more: the other 14 were taken
  CHECK_EQUAL(8 * GiB - gpu_free(), 28 * MiB);
  struct trail trail = audited();
  CHECK_EQUAL(count_if(&trail, MEMPROF_UNMAP, true), 2);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_UNMAP, 0)->requested, 6 * MiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_UNMAP, 1)->provided, 8 * MiB);
  CHECK_EQUAL(stats().syncs, 1);  // once for both
  end(&large);
  begin(&again, 8 * MiB, NULL);
  CHECK_EQUAL(reserved(), 28 * MiB);
  audited();
  end(&again), end(&blocks[0]), end(&blocks[2]), end(&blocks[4]), end(&blocks[5]);
}

// Pages that only the first iteration used are unmapped after two others. Then nothing happens: no
// call of the driver, no event of memory, no waiting.
static void test_unused_pages_go_for_good(void) {
  gpu_start();
  ITERATE(NULL, 4 * MiB, 36 * MiB);
  rest();
  CHECK_EQUAL(reserved(), 40 * MiB);
  ITERATE(NULL, 4 * MiB, 2 * MiB);
  rest();
  CHECK_EQUAL(reserved(), 40 * MiB);
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

// What growth took in the first iteration a request of the second maps: the trimmer makes no peak.
// Pages unmapped below the peak are mapped before the next iteration requests them.
static void test_mapped_ahead_below_the_peak(void) {
  gpu_start();
  for (int i = 0; i < 4; i++) {
    struct block keep, first, wall, large;
    begin(&keep, 2 * MiB, NULL), begin(&first, 10 * MiB, NULL), begin(&wall, 2 * MiB, NULL);
    end(&first);
    begin(&large, 12 * MiB, NULL);
    CHECK_EQUAL(reserved(), i == 0 ? 16 * MiB : 26 * MiB);
    end(&keep), end(&wall), end(&large);
    if (i == 2) CHECK_EQUAL(memprof_empty_cache(0), 26 * MiB);
    memprof_iteration(NULL);
    rest();
    CHECK_EQUAL(reserved(), i == 0 ? 16 * MiB : 26 * MiB);
  }
  const struct trail trail = audited();
  CHECK_EQUAL(count_if(&trail, MEMPROF_UNMAP, true), 1);
  CHECK_EQUAL(count_if(&trail, MEMPROF_MAP, false), 2);  // slices of 16 and 10 MiB
  CHECK_EQUAL(stats().syncs, 2);                         // for what was taken, and what was emptied
}

// Best fit takes 14 MiB for this: c goes where a was, and d finds no room. From the third
// iteration on all are where a plan has them, and nothing is asked of the driver any more.
static void test_plan(void) {
  gpu_start();
  const unsigned char *base = NULL;
  struct memprof_stats before = {0};
  for (int i = 0; i < 8; i++) {
    struct block a, b, c, d;
    begin(&a, 6 * MiB, NULL), begin(&b, 1 * MiB, NULL);
    if (i == 0) base = a.start;
    end(&a);
    begin(&c, 2 * MiB, NULL), begin(&d, 6 * MiB, NULL);
    CHECK_EQUAL(b.start - base, i < 2 ? 6 * MiB : 8 * MiB);
    CHECK_EQUAL(c.start - base, i < 2 ? 0 : 6 * MiB);
    CHECK_EQUAL(d.start - base, i < 2 ? 7 * MiB : 0);
    end(&b), end(&c), end(&d);
    memprof_iteration(NULL);
    rest();
    CHECK_EQUAL(reserved(), 10 * MiB);
    if (i == 1) before = stats();
  }
  CHECK_EQUAL(stats().device_allocs, before.device_allocs);
  CHECK_EQUAL(stats().device_frees, before.device_frees);
  CHECK_EQUAL(stats().syncs, before.syncs);
  audited();
}

// What a plan has no use for stays until the work of the stream that used it is finished.
static void test_plan_waits_for_the_stream(void) {
  gpu_start();
  void *stream = gpu_stream();
  for (int i = 0; i < 5; i++) {
    struct block a, b, c, d;
    if (i == 1) gpu_hold(stream);
    begin(&a, 6 * MiB, stream), begin(&b, 1 * MiB, stream);
    end(&a);
    begin(&c, 2 * MiB, stream), begin(&d, 6 * MiB, stream);
    end(&b), end(&c), end(&d);
    memprof_iteration(NULL);
    rest_for_a_while();
    CHECK_EQUAL(reserved(), i == 0 ? 10 * MiB : 14 * MiB);
  }
  gpu_let_go(stream);
  rest();
  CHECK_EQUAL(reserved(), 10 * MiB);
  audited();
}

// Work of the stream that used the memory is not finished: it stays.
static void test_waits_for_the_stream(void) {
  gpu_start();
  void *stream = gpu_stream();
  ITERATE(stream, 4 * MiB, 36 * MiB);
  ITERATE(stream, 4 * MiB);
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

// While a stream is being captured nothing is recorded, queried, mapped ahead or unmapped; and
// what is asked of a pool is never trimmed.
static void test_captures_and_pools(void) {
  gpu_start();
  void *stream = gpu_stream(), *graph;
  memprof_pool_begin(0, 7, 7);
  void *pooled = memprof_malloc_in_pool(20 * MiB, 0, stream, 7, 7);
  memprof_free(pooled, 0, 0, NULL);
  ITERATE(NULL, 4 * MiB, 36 * MiB);
  ITERATE(NULL, 4 * MiB);
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

// An emptied cache unmaps nothing during a capture, and so keeps nothing from being mapped ahead behind it.
static void test_emptied_in_a_capture(void) {
  gpu_start();
  void *stream = gpu_stream(), *graph;
  ITERATE(NULL, 16 * MiB);
  ITERATE(NULL, 16 * MiB);
  CHECK_EQUAL(memprof_empty_cache(0), 16 * MiB);
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 2), 0);
  memprof_iteration(NULL);
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  rest();
  CHECK_EQUAL(reserved(), 16 * MiB);
  audited();
}

static void test_idle(void) {
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

// Somebody takes memory of the device below the headroom: as much as it lacks goes back.
static void test_pressure(void) {
  gpu_start();
  int (*take)(uint64_t *, size_t);
  GPU_CALL(take, "cuMemAlloc_v2");
  uint64_t other;
  struct block keep, block;
  begin(&keep, 4 * MiB, NULL), begin(&block, 400 * MiB, NULL);
  end(&block);
  usleep(300000);
  CHECK_EQUAL(reserved(), 404 * MiB);  // 620 MiB are free, and 512 the headroom
  CHECK_EQUAL(take(&other, 200 * MiB), 0);
  await_reserved(312 * MiB);
  CHECK_EQUAL(gpu_free(), 512 * MiB);
  check_pattern(&keep);
  audited();
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
static void check_only_the_pool_stays(const struct block *pooled, uint64_t others) {
  await_reserved(20 * MiB);
  CHECK_EQUAL(GiB - gpu_free(), 20 * MiB + others);
  check_pattern(pooled);
  audited();
}

static void test_empty_cache_leaves_pools(void) {
  gpu_start();
  const struct block pooled = free_in_a_pool();
  CHECK_EQUAL(memprof_empty_cache(0), 36 * MiB);
  check_only_the_pool_stays(&pooled, 0);
}

static void test_idle_leaves_pools(void) {
  gpu_start();
  const struct block pooled = free_in_a_pool();
  check_only_the_pool_stays(&pooled, 0);
}

// More lacks than all that is free.
static void test_pressure_leaves_pools(void) {
  gpu_start();
  int (*take)(uint64_t *, size_t);
  GPU_CALL(take, "cuMemAlloc_v2");
  uint64_t other;
  const struct block pooled = free_in_a_pool();
  CHECK_EQUAL(take(&other, 800 * MiB), 0);
  check_only_the_pool_stays(&pooled, 800 * MiB);
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

static bool each_position(const char *call, const char *options) {
  for (int n = 1; n <= POSITIONS; n += 1 + n / 3) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s:%d", call, n);
    const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", options, "MEMPROF_SIM_FAIL", rule, NULL};
    if (run_alone("scenario", environment) == 0) continue;
    printf("FAIL %s under %s\n", rule, options);
    return false;
  }
  printf("ok   %s refused under %s\n", call, options);
  return true;
}

int main(int argc, char **argv) {
#define COMPACT "growth=needed,split=always,trim=iteration"
  static const struct test tests[] = {
      {"scenario", scenario, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT ",small=65536", "MEMPROF_SIM_FAIL", "none:1"}},
      {"options in the arena", test_options_in_the_arena, {"MEMPROF_OPTIONS", "growth=step:4194304,split=always,small=65536,trim=idle:5000000000,placement=planned"}},
      {"growth takes free pages", test_growth_takes_free_pages, {"MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", COMPACT}},
      {"unused pages go for good", test_unused_pages_go_for_good, {"MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", COMPACT}},
      {"mapped ahead below the peak", test_mapped_ahead_below_the_peak, {"MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", COMPACT}},
      {"plan", test_plan, {"MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", COMPACT ",placement=planned"}},
      {"plan waits for the stream", test_plan_waits_for_the_stream, {"MEMPROF_OPTIONS", COMPACT ",placement=planned"}},
      {"waits for the stream", test_waits_for_the_stream, {"MEMPROF_OPTIONS", COMPACT}},
      {"captures and pools", test_captures_and_pools, {"MEMPROF_OPTIONS", COMPACT}},
      {"emptied in a capture", test_emptied_in_a_capture, {"MEMPROF_OPTIONS", COMPACT}},
      {"idle", test_idle, {"MEMPROF_OPTIONS", "growth=needed,split=always,trim=idle:50000000"}},
      {"pressure", test_pressure, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "growth=needed,trim=pressure,headroom=536870912"}},
      {"empty cache leaves pools", test_empty_cache_leaves_pools, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", COMPACT}},
      {"idle leaves pools", test_idle_leaves_pools, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "growth=needed,split=always,trim=idle:50000000"}},
      {"pressure leaves pools", test_pressure_leaves_pools, {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "growth=needed,trim=pressure,headroom=536870912"}},
  };
  static const char *const calls[] = {"cuMemCreate", "cuMemMap",      "cuMemSetAccess", "cuMemGetInfo",    "cuMemUnmap",        "cuMemRelease",
                                      "cuEventCreate", "cuEventRecord", "cuEventQuery",   "cuCtxSynchronize", "cuMemAddressReserve"};
  int failed = run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], COMPACT ",small=65536");
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], COMPACT ",placement=planned");
  failed |= !each_position("cuMemCreate", "growth=step:16777216,split=65536,trim=iteration");
  failed |= !each_position("cuMemMap", "growth=double,headroom=0,split=always,trim=idle:1000000");
  return failed;
}
