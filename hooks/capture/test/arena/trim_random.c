// trim_random.c - jobs that nearly repeat themselves, made up from a seed: what they ask for, the
// policy they run under, and which call the driver refuses them.
//
// The first seed is the clock's unless MEMPROF_TEST_SEED has it; each job takes the next. MEMPROF_TEST_JOBS says how many. What
// fails says its own, which is repeated by setting it, but for what the trimmer's thread does when.
#define _GNU_SOURCE
#include <time.h>

#include "blocks.h"

enum { JOBS = 12, ROUNDS = 14, OPERATIONS = 60, MOST = 24 };

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);

struct job {
  void *streams[2];              // the default one is none of them
  struct block blocks[MOST];
  int refused;                   // requests
  uint64_t other, other_bytes;   // memory of the device that is not ours
};

// Splitmix64: seeds that follow each other have nothing in common.
static uint64_t next_random(uint64_t *state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

static bool one_in(uint64_t *random, uint64_t number) { return next_random(random) % number == 0; }

#define PICK(random, list) ((list)[next_random(random) % (sizeof(list) / sizeof *(list))])

// A request of the place's, or a free of it. As much is drawn for either.
static void toggle(struct job *job, uint64_t at, uint64_t *random) {
  struct block *block = &job->blocks[at];
  const uint64_t bytes = 1 + next_random(random) % (one_in(random, 4) ? 24 * MiB : 300 * KiB);
  void *const streams[] = {NULL, NULL, NULL, job->streams[0], job->streams[1]};
  void *stream = PICK(random, streams), *user = one_in(random, 8) ? PICK(random, streams) : stream;
  if (block->start != NULL) {
    end(block);
    return;
  }
  begin(block, bytes, stream);
  job->refused += block->start == NULL;
  if (block->start != NULL) memprof_record_stream(block->start, user);
}

// An iteration: the same for the same random numbers and blocks. One that leaves what is live
// as it was can be followed by another like it.
static void iterate(struct job *job, uint64_t random, bool leaves) {
  bool odd[MOST] = {false};
  for (int i = 0; i < OPERATIONS; i++) {
    const uint64_t at = next_random(&random) % MOST;
    odd[at] = !odd[at];
    toggle(job, at, &random);
  }
  for (uint64_t at = 0; leaves && at < MOST; at++)
    if (odd[at]) toggle(job, at, &random);
  for (int i = 0; i < MOST; i++) check_pattern(&job->blocks[i]);
  memprof_iteration(NULL);
}

// Some of the job's iterations are captured, which nothing may spoil.
static void capture(struct job *job, uint64_t random) {
  void *graph = NULL;
  CHECK_EQUAL(cuStreamBeginCapture_v2(job->streams[1], 0), 0);
  iterate(job, random, true);
  CHECK_EQUAL(cuStreamEndCapture(job->streams[1], &graph), 0);
  CHECK(graph != NULL);
}

// Another user takes half of the device, as far as it is free, or returns it.
static void disturb(struct job *job) {
  int (*take)(uint64_t *, size_t), (*give)(uint64_t);
  GPU_CALL(take, "cuMemAlloc_v2");
  GPU_CALL(give, "cuMemFree_v2");
  if (job->other_bytes > 0) CHECK_EQUAL(give(job->other), 0);
  job->other_bytes = job->other_bytes == 0 && take(&job->other, 480 * MiB) == 0 ? 480 * MiB : 0;
}

// Bytes of the device that nobody knows of, while the trimmer does nothing.
static uint64_t lost(const struct job *job) {
  int (*info)(size_t *, size_t *);
  struct memprof_stats before, now = stats();
  size_t bytes = 0, total = 0;
  GPU_CALL(info, "cuMemGetInfo_v2");
  do {
    before = now;
    CHECK(info(&bytes, &total) == 0 || info(&bytes, &total) == 0);  // one may be refused
    now = stats();
  } while (now.device_allocs != before.device_allocs || now.device_frees != before.device_frees);
  return total - bytes - job->other_bytes - (uint64_t)now.reserved_bytes.current;
}

// What the driver does not take back stays with us: that is one handle at most.
static void check_lost(const struct job *job) {
  const char *failing = getenv("MEMPROF_SIM_FAIL");
  const bool kept = strncmp(failing, "cuMemUnmap:", 11) == 0 || strncmp(failing, "cuMemRelease:", 13) == 0;
  const uint64_t bytes = lost(job);
  if (!kept || bytes > 6 * MiB) CHECK_EQUAL(bytes, 0);
}

static void run(struct job *job, uint64_t seed) {
  uint64_t random = seed;
  for (int round = 0; round < ROUNDS; round++) {
    if (one_in(&random, 7)) disturb(job);
    if (one_in(&random, 7)) memprof_empty_cache(0);
    if (one_in(&random, 7))
      iterate(job, next_random(&random), one_in(&random, 2));
    else if (job->other_bytes == 0 && one_in(&random, 7))
      capture(job, seed);
    else
      iterate(job, seed, true);
    if (one_in(&random, 3)) rest();
    for (int i = 0; i < MOST; i++) check_pattern(&job->blocks[i]);
  }
}

// A request may fail where a call is refused; nothing else may be wrong.
TEST(job) {
  gpu_start();
  struct job job = {.streams = {gpu_stream(), gpu_stream()}};
  run(&job, strtoull(getenv("MEMPROF_TEST_SEED"), NULL, 10));
  rest();
  audited();
  for (int i = 0; i < MOST; i++) end(&job.blocks[i]);
  check_lost(&job);
  begin(&job.blocks[0], 20 * MiB, NULL);
  job.refused += job.blocks[0].start == NULL;
  CHECK(job.refused <= 1);
  end(&job.blocks[0]);
  audited();
}

static void choose_policy(uint64_t *random, char *text, size_t size) {
  static const char *const presets[] = {"classic", "compact", "compact"}, *const trims[] = {"never", "iteration", "iteration", "idle:1000000"};
  static const char *const rooms[] = {"0", "536870912"}, *const handles[] = {"", ",handle=2097152", ",handle=6291456"};
  const char *preset = PICK(random, presets), *trim = PICK(random, trims), *room = PICK(random, rooms);
  snprintf(text, size, "preset=%s,trim=%s,headroom=%s%s", preset, trim, room, PICK(random, handles));
}

static bool succeeds(uint64_t seed) {
  static const char *const calls[] = {"none",         "cuMemCreate",   "cuMemMap",      "cuMemSetAccess", "cuMemGetInfo",     "cuMemUnmap",
                                      "cuMemRelease", "cuEventCreate", "cuEventRecord", "cuEventQuery",   "cuCtxSynchronize", "cuMemAddressReserve"};
  uint64_t random = ~seed;
  char own[32], rule[64], policy[160];
  const char *call = PICK(&random, calls);
  const uint64_t most = (uint64_t)1 << next_random(&random) % 9;  // early ones rather than late ones
  snprintf(own, sizeof own, "%llu", (unsigned long long)seed);
  snprintf(rule, sizeof rule, "%s:%llu", call, (unsigned long long)(1 + next_random(&random) % most));
  choose_policy(&random, policy, sizeof policy);
  const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_TEST_SEED", own, "MEMPROF_SIM_FAIL", rule, "MEMPROF_OPTIONS", policy, NULL};
  if (run_alone("job", environment) == 0) return true;
  printf("FAIL MEMPROF_TEST_SEED=%s: %s refused under %s\n", own, rule, policy);
  return false;
}

int main(int argc, char **argv) {
  if (argc > 1) return run_tests(argc, argv);
  const char *given = getenv("MEMPROF_TEST_SEED");
  const uint64_t first = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  const char *more = getenv("MEMPROF_TEST_JOBS");
  const int jobs = more != NULL ? atoi(more) : JOBS;
  int failed = 0;
  for (int i = 0; i < jobs; i++) failed += !succeeds(first + (uint64_t)i);
  printf("%s %d of %d jobs from MEMPROF_TEST_SEED=%llu on\n", failed == 0 ? "ok  " : "FAIL", jobs - failed, jobs, (unsigned long long)first);
  return failed != 0;
}
