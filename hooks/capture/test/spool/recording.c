// recording.c - the spool of a process: when there is one, what survives a kill and a full
// disk, and that a forked child keeps its hands off it.
#define _GNU_SOURCE
#include <time.h>

#include "base/options.h"
#include "gpu.h"
#include "memprof.h"
#include "random.h"
#include "spool/segment.h"
#include "trail.h"

int cudaMalloc(void **ptr, size_t bytes);

enum { LIVE = 64 };

// Random allocations and frees; each allocation that returned is written to `log`.
static void churn(uint64_t seed, long count, int log) {
  void *blocks[LIVE] = {0};
  for (long i = 0; i < count; i++) {
    void **block = &blocks[random_below(&seed, LIVE)];
    if (*block != NULL) {
      memprof_free(*block, 0, 0, NULL);
      *block = NULL;
      continue;
    }
    const uint64_t bytes = 1 + random_below(&seed, MiB);
    CHECK((*block = memprof_malloc(bytes, 0, NULL)) != NULL);
    const uint64_t line[2] = {(uintptr_t)*block, bytes};
    if (log >= 0) CHECK(write(log, line, sizeof line) == sizeof line);
  }
}

TEST(idle_leaves_no_trace) {
  char path[600];
  CHECK(memprof_active() == 1);
  memprof_phase_begin("setup");
  memprof_iteration("early");
  memprof_set_context("module");
  memprof_phase_end("setup");
  memprof_note_framework("nothing 1.0");
  struct memprof_stats stats;
  memprof_get_stats(0, &stats);
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  CHECK(!trail_find(getpid(), path, sizeof path));
}

TEST(process_page, "RANK", "3", "LOCAL_RANK", "1", "WORLD_SIZE", "many", "LOCAL_WORLD_SIZE", "2") {
  gpu_start();
  memprof_note_framework("torch 2.11.0");
  memprof_note_framework("jax 0.9");
  CHECK(memprof_malloc(1, 0, NULL) != NULL);
  const struct trail trail = trail_read(getpid(), 0);
  const struct memprof_process *process = &trail.process;
  CHECK(memcmp(process->magic, "MEMPROFP", 8) == 0);
  CHECK_EQUAL(process->version, MEMPROF_SPOOL_VERSION);
  CHECK_EQUAL(process->pid, getpid());
  CHECK_EQUAL(process->record_bytes, MEMPROF_RECORD_BYTES);
  CHECK_EQUAL(process->segment_records, MEMPROF_SEGMENT_RECORDS);
  CHECK(process->rank == 3 && process->local_rank == 1 && process->world_size == -1 && process->local_world_size == 2);
  CHECK_EQUAL(process->state, MEMPROF_RECORDING);
  CHECK(strcmp(process->frameworks, "torch 2.11.0; jax 0.9") == 0);
  CHECK(strcmp(process->command, "test process_page") == 0);
  struct stat directory;
  CHECK(stat(trail.directory, &directory) == 0 && (directory.st_mode & 0777) == 0700);
}

TEST(marks_and_contexts) {
  gpu_start();
  CHECK(memprof_malloc(1, 0, NULL) != NULL);
  char longest[5000], text[4097];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  memprof_phase_begin("forward");
  memprof_set_context("model.layer1.conv");
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_set_context(longest);
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_set_context(NULL);
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_phase_end("forward");
  memprof_iteration(NULL);
  memprof_iteration("second");
  const struct trail trail = trail_read(getpid(), 0);
  const struct memprof_record *event = trail_event(&trail, MEMPROF_ALLOC, 1);
  trail_text(&trail, event->context, (uint64_t)(event - trail.records), text);
  CHECK(strcmp(text, "model.layer1.conv") == 0);
  event = trail_event(&trail, MEMPROF_ALLOC, 2);
  trail_text(&trail, event->context, (uint64_t)(event - trail.records), text);
  CHECK(strlen(text) == 4096 && strncmp(text, longest, 4096) == 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, 3)->context, 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_PHASE_BEGIN, 0)->context, trail_event(&trail, MEMPROF_PHASE_END, 0)->context);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ITERATION, 0)->requested, 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ITERATION, 1)->requested, 1);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ITERATION, 0)->device, MEMPROF_NO_DEVICE);
}

// Nine segments; old ones are let go of.
TEST(many_segments) {
  gpu_start();
  churn(1, 9 * MEMPROF_SEGMENT_RECORDS - 100, -1);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK(trail.count > 8 * MEMPROF_SEGMENT_RECORDS);
  CHECK_EQUAL(trail.count, trail.process.claimed);
  trail_audit(&trail);
  FILE *maps = fopen("/proc/self/maps", "r");
  int mapped = 0;
  for (char line[1024]; fgets(line, sizeof line, maps) != NULL;) mapped += strstr(line, ".seg") != NULL;
  fclose(maps);
  CHECK(mapped <= 5);
}

TEST(full_disk, "MEMPROF_SPOOL_LIMIT", "8388608") {
  gpu_start();
  churn(2, 200000, -1);  // would be more than three segments, there is room for two
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_STOPPED);
  CHECK_EQUAL(trail.process.stop_errno, ENOSPC);
  CHECK_EQUAL(trail.process.stop_slot, 2 * MEMPROF_SEGMENT_RECORDS);
  CHECK_EQUAL(trail.count, trail.process.stop_slot);  // used to the last slot
  CHECK(trail.process.stop_reason[0] != '\0');
  trail_audit(&trail);
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);  // the job does not notice
}

TEST(disk_full_at_once, "MEMPROF_SPOOL_LIMIT", "1") {
  gpu_start();
  churn(3, 1000, -1);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_STOPPED);
  CHECK_EQUAL(trail.process.stop_slot, 0);
}

TEST(no_place_to_record, "MEMPROF_SPOOL", "/dev/null") {
  gpu_start();
  churn(4, 1000, -1);
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
}

TEST(child_is_off) {
  gpu_start();
  memprof_set_context("parent");
  void *block = memprof_malloc(MiB, 0, NULL);
  memset(block, 5, MiB);
  const uint64_t claimed = trail_read(getpid(), 0).process.claimed;
  const pid_t child = fork();
  if (child == 0) {
    size_t provided;
    void *other = NULL;
    struct memprof_stats stats;
    CHECK(memprof_active() == 0);
    CHECK(memprof_malloc(MiB, 0, NULL) == NULL);
    CHECK(memprof_owns(block, &provided) == 0);
    CHECK(memprof_empty_cache(0) == 0);
    CHECK(memprof_oom_message()[0] != '\0');
    memprof_free(block, 0, 0, NULL);
    memprof_record_stream(block, NULL);
    memprof_iteration("child"), memprof_phase_begin("child"), memprof_set_context("child");
    memprof_problem("child"), memprof_note_framework("child 1.0");
    memprof_get_stats(0, &stats);
    CHECK_EQUAL(stats.reserved_bytes.current, 0);
    cudaMalloc(&other, MiB);
    exit(0);  // with the destructor
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.claimed, claimed);
  CHECK_EQUAL(trail.process.state, MEMPROF_RECORDING);
  char path[600];
  CHECK(!trail_find(child, path, sizeof path));
  CHECK(trail_problems(&trail)[0] == '\0');
  CHECK_EQUAL(((char *)block)[MiB - 1], 5);
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
}

TEST(child_of_idle_process_records) {
  const pid_t child = fork();
  if (child == 0) {
    gpu_start();
    churn(5, 100, -1);
    exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  const struct trail trail = trail_read(child, 0);
  CHECK_EQUAL(trail.process.pid, child);
  CHECK_EQUAL(trail.process.state, MEMPROF_CLOSED);
  CHECK(trail_number(&trail, MEMPROF_ALLOC) > 0);
  gpu_start();
  churn(6, 100, -1);
  CHECK(trail_number(&(struct trail[]){trail_read(getpid(), 0)}[0], MEMPROF_ALLOC) > 0);
}

// Every allocation that had returned is committed, in order; at most one more is.
static void kill_at_random(uint64_t seed) {
  int log[2];
  CHECK(pipe(log) == 0);
  const pid_t child = fork();
  if (child == 0) {
    gpu_start();
    churn(seed, 100000000, log[1]);
    _exit(1);
  }
  close(log[1]);
  // The pipe is read while the child runs, or it would stop.
  uint64_t (*returned)[2] = NULL, read_ahead[2];
  size_t count = 0, until = 1 + random_below(&seed, 60000);
  while (read(log[0], read_ahead, sizeof read_ahead) == sizeof read_ahead) {
    if (count % 4096 == 0) CHECK((returned = realloc(returned, (count + 4096) * sizeof *returned)) != NULL);
    memcpy(returned[count++], read_ahead, sizeof read_ahead);
    if (count == until) kill(child, SIGKILL);
  }
  CHECK(waitpid(child, NULL, 0) == child && count >= until);
  const struct trail trail = trail_read(child, 1);
  trail_audit(&trail);
  uint64_t found = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    if (trail_kind(&trail.records[i]) != MEMPROF_ALLOC) continue;
    if (found < count) CHECK(trail.records[i].addr == returned[found][0] && trail.records[i].requested == returned[found][1]);
    found++;
  }
  CHECK(found == count || found == count + 1);
  close(log[0]);
  free(returned);
  free(trail.records);
}

TEST(killed) {
  const char *given = getenv("SEED");
  const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  fprintf(stderr, "SEED=%llu\n", (unsigned long long)seed);
  for (uint64_t round = 0; round < 5; round++) kill_at_random(seed + round);
}

TEST(options) {
  static const struct {
    const char *text, *wrong;
  } cases[] = {
      {"preset=classic,headroom=0,limit=1,handle=2097152,serve=1", NULL},
      {"", NULL},
      {"preset=compact,trim=iteration", NULL},
      {"trim=never", NULL},
      {"trim=idle:1000000000", NULL},
      {"preset=triple", "preset=triple"},
      {"preset", "preset"},
      {"preset=", "preset="},
      {"growth=pages", "growth=pages"},
      {"trim=idle", "trim=idle"},
      {"trim=idle:0", "trim=idle:0"},
      {"trim=always", "trim=always"},
      {"trim=iteration:1", "trim=iteration:1"},
      {"headroom=-5", "headroom=-5"},
      {"headroom=", "headroom="},
      {"limit=2GiB", "limit=2GiB"},
      {"limit=99999999999999999999", "limit=99999999999999999999"},
      {"handle=0", NULL},
      {"handle=-1", "handle=-1"},
      {"serve=2", "serve=2"},
      {"serve=", "serve="},
      {"colour=red,preset=compact", "colour=red"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct options options;
    char wrong[128] = "";
    CHECK_EQUAL(options_parse(cases[i].text, &options, wrong, sizeof wrong), cases[i].wrong == NULL);
    CHECK(strcmp(wrong, cases[i].wrong != NULL ? cases[i].wrong : "") == 0);
  }
  struct options options;
  char wrong[128];
  options_parse("colour=red,preset=compact,limit=7,headroom=x", &options, wrong, sizeof wrong);
  CHECK(options.policy.preset == BFC_COMPACT && options.policy.limit == 7);
  CHECK_EQUAL(options.policy.headroom, 2 * GiB);
  CHECK_EQUAL(options.policy.handle, 0);
}

TEST(wrong_option_is_reported, "MEMPROF_OPTIONS", "preset=triple") {
  gpu_start();
  CHECK(memprof_malloc(1, 0, NULL) != NULL);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK(strstr(trail_problems(&trail), "preset=triple") != NULL);
}

int main(int argc, char **argv) {
  _Static_assert(SEGMENT_BYTES == 4194304, "the limits above are in segments");
  return run_tests(argc, argv);
}
