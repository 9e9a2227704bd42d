// failure_pairs.c - the driver refuses each call of a job in turn, and then two calls: whatever it
// refuses, each block that the hook has handed out can be read and written, and holds what was
// written there. Requests may fail for it, and pauses and resumes say that they have.
//
// Of pairs there are too many, so they are made up from a seed: the clock's, or MEMPROF_TEST_SEED.
// MEMPROF_TEST_PAIRS says how many; with it every single call is refused, too, and without it one of
// twelve, which the seed chooses. What fails says its rule and options, by which it is repeated.
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "blocks.h"

enum { MOST = 40, MOST_CALLS = 4096, PAIRS = 12, POLICIES = 3 };

static const char *const weights[] = {"weights"}, *const cache[] = {"cache"};

// Blocks of a tag are out of reach while it is paused, and for good where a pause says so.
struct group {
  const char *tag;
  int backed_up;
  void *stream;
  struct block blocks[MOST];
  bool paused;
  int lost;  // blocks before this one
  int count;
};

static void check_group(const struct group *group) {
  for (int i = group->lost; !group->paused && i < group->count; i++) check_pattern(&group->blocks[i]);
}

static void add(struct group *group, uint64_t bytes) {
  CHECK(group->count < MOST);
  if (group->tag != NULL) CHECK_EQUAL(memprof_region_begin(group->tag, group->backed_up), MEMPROF_OK);
  begin(&group->blocks[group->count++], bytes, group->stream);
  if (group->tag != NULL) memprof_region_end();
  // Every page can be used, those between the ones that have the pattern too.
  const struct block *block = &group->blocks[group->count - 1];
  for (uint64_t i = 0; block->start != NULL && i < block->bytes; i += 64 * KiB) ((volatile unsigned char *)block->start)[i] = block->pattern;
}

// Every n-th block, from the last, ends.
static void thin(struct group *group, int n) {
  for (int i = group->count - 1; i >= group->lost; i -= n) {
    if (group->paused)
      memprof_free(group->blocks[i].start, 0, 0, NULL);
    else
      end(&group->blocks[i]);
    group->blocks[i].start = NULL;
  }
}

static void try_pause(struct group *group, const char *const *names) {
  const int result = memprof_pause(names, 1, 0);
  if (result == MEMPROF_OK || result == MEMPROF_LEAKED) group->paused = true;
  if (strstr(memprof_pause_message(), "cannot be used") != NULL) group->lost = group->count;
}

static void try_resume(struct group *group, const char *const *names) {
  if (!group->paused || memprof_resume(names, 1, 0) != MEMPROF_OK) return;
  group->paused = false;
  for (int i = 0; i < group->count; i++) {
    struct block *block = &group->blocks[i];
    if (i < group->lost || group->backed_up) continue;
    if (block->start != NULL) gpu_write(block->start, block->pattern, block->bytes);
  }
}

TEST(job) {
  gpu_start();
  void *stream = gpu_stream();
  struct group plain = {0}, side = {.stream = stream}, copied = {.tag = "weights", .backed_up = 1}, dropped = {.tag = "cache"};
  struct group *const groups[] = {&plain, &side, &copied, &dropped};
#define CHECK_ALL() \
  for (int g = 0; g < 4; g++) check_group(groups[g])
  for (int round = 0; round < 4; round++) {
    add(&plain, 3 * MiB), add(&plain, 9 * MiB), add(&side, 5 * MiB), add(&side, 300 * KiB);
    if (round < 3) add(&copied, 7 * MiB), add(&copied, MiB), add(&dropped, 6 * MiB), add(&dropped, 11 * MiB);
    CHECK_ALL();
    if (round == 1) memprof_record_stream(plain.blocks[0].start, stream);
    thin(&plain, 2), thin(&side, 2);
    if (!copied.paused) thin(&copied, 3);
    if (!dropped.paused) thin(&dropped, 3);
    CHECK_ALL();
    if (round % 2 == 0) memprof_empty_cache(0);
    try_pause(&copied, weights), try_pause(&dropped, cache);
    CHECK_ALL();
    add(&plain, 14 * MiB);
    if (copied.paused) thin(&copied, 4);
    add(&dropped, 2 * MiB);
    check_pattern(&dropped.blocks[dropped.count - 1]);  // paused or not
    try_resume(&copied, weights), try_resume(&dropped, cache);
    CHECK_ALL();
    memprof_iteration(NULL);
    if (strstr(getenv("MEMPROF_OPTIONS"), "trim=iteration") != NULL) rest();
    CHECK_ALL();
  }
  try_resume(&copied, weights), try_resume(&dropped, cache);
  CHECK_ALL();
}

// The calls that the job makes, in order.
static char calls[MOST_CALLS][40];
static int call_count;

static bool of_the_hook(const char *name) {
  static const char *const names[] = {
      "cuMemAddressReserve", "cuMemAddressFree",  "cuMemCreate",       "cuMemMap",       "cuMemSetAccess",      "cuMemUnmap",
      "cuMemRelease",        "cuMemGetInfo",      "cuEventCreate",     "cuEventRecord",  "cuEventQuery",        "cuEventDestroy",
      "cuCtxSynchronize",    "cuMemHostRegister", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuStreamDestroy",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

static bool list_calls(const char *options) {
  char log[] = "/tmp/memprof-test-log-XXXXXX", line[512], name[40];
  const int made = mkstemp(log);
  if (made < 0) return false;
  close(made);
  const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", options, "MEMPROF_SIM_FAIL", "none:1", "MEMPROF_SIM_LOG", log, NULL};
  const int status = run_alone("job", environment);
  FILE *file = fopen(log, "r");
  call_count = 0;
  while (file != NULL && call_count < MOST_CALLS && fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "%*d %39[A-Za-z0-9]", name) == 1 && of_the_hook(name)) strcpy(calls[call_count++], name);
  if (file != NULL) fclose(file);
  unlink(log);
  if (status != 0 || call_count == 0) printf("FAIL the job itself, under %s\n", options);
  return status == 0 && call_count > 0;
}

static int passed, failed;

static void refuse(const char *rule, const char *options) {
  const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", options, "MEMPROF_SIM_FAIL", rule, NULL};
  const int status = run_alone("job", environment);
  passed += status == 0;
  failed += status != 0;
  if (status != 0) printf("FAIL MEMPROF_SIM_FAIL=%s MEMPROF_OPTIONS=%s: status %d\n", rule, options, status);
}

static uint64_t next_random(uint64_t *state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

// How many calls of a name there are before the i-th call.
static int calls_before(const char *name, int i) {
  int number = 0;
  for (int k = 0; k < i; k++) number += strcmp(calls[k], name) == 0;
  return number;
}

// Which call of its name the i-th is, from 1.
static int position(int i) { return calls_before(calls[i], i) + 1; }

// Each unmapping is refused, and the mapping that undoes those before it.
static void refuse_undoing(const char *options) {
  for (int i = 0; i < call_count; i++) {
    char rule[128];
    if (strcmp(calls[i], "cuMemUnmap") != 0) continue;
    snprintf(rule, sizeof rule, "cuMemUnmap:%d,cuMemMap:%d", position(i), calls_before("cuMemMap", i) + 1);
    refuse(rule, options);
  }
}

// The second call is of any name, and comes soon after the first: what undoes something is only
// called behind a refusal, so it is in no list.
static void refuse_pair(uint64_t *random, const char *options) {
  char rule[128];
  const int first = (int)(next_random(random) % (uint64_t)call_count);
  const char *second = calls[next_random(random) % (uint64_t)call_count];
  const int after = calls_before(second, first) + 1 + (int)(next_random(random) % 4) + (strcmp(second, calls[first]) == 0);
  snprintf(rule, sizeof rule, "%s:%d,%s:%d", calls[first], position(first), second, after);
  refuse(rule, options);
}

int main(int argc, char **argv) {
  static const char *const options[POLICIES] = {
      "handle=4194304,headroom=0",
      "trim=iteration",
      "preset=compact,trim=iteration",
  };
  if (argc > 1) return run_tests(argc, argv);
  const char *given = getenv("MEMPROF_TEST_SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL), random = seed;
  const char *more = getenv("MEMPROF_TEST_PAIRS");
  const int pairs = more != NULL ? atoi(more) : PAIRS, step = more != NULL ? 1 : 24;
  for (int o = 0; o < POLICIES; o++) {
    if (!list_calls(options[o])) return 1;
    // Policies differ in when they call, not in what they do about a refusal: one has most calls refused.
    for (int i = (int)(seed % (uint64_t)step); i < call_count; i += o == 0 ? step : 5 * step) {
      char rule[64];
      snprintf(rule, sizeof rule, "%s:%d", calls[i], position(i));
      refuse(rule, options[o]);
    }
    if (o == 0 || more != NULL) refuse_undoing(options[o]);
    for (int i = 0; i < pairs / POLICIES; i++) refuse_pair(&random, options[o]);
    printf("%s %d jobs so far, %d calls under %s\n", failed == 0 ? "ok  " : "FAIL", passed + failed, call_count, options[o]);
  }
  printf("%s %d of %d jobs, MEMPROF_TEST_SEED=%llu MEMPROF_TEST_PAIRS=%d\n", failed == 0 ? "ok  " : "FAIL", passed, passed + failed, (unsigned long long)seed, pairs);
  return failed != 0;
}
