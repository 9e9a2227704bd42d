// process.c - recordings that code of the process begins and ends itself.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>

#include "gpu.h"
#include "memprof.h"
#include "trail.h"

static const uint64_t BASE = (uint64_t)0x7f00 << 32;
static struct memprof_watch_sums sums;

static void read_sums(int device, struct memprof_watch_sums *out) {
  CHECK_EQUAL(device, 0);
  *out = sums;
}

static char spools[2][32] = {"/tmp/memprof-test-XXXXXX", "/tmp/memprof-test-XXXXXX"};

// The events of this process in a spool: its only ones.
static struct trail read_spool(const char *spool) {
  setenv("MEMPROF_SPOOL", spool, 1);
  const struct trail trail = trail_read(getpid(), 0);
  unsetenv("MEMPROF_SPOOL");
  trail_audit(&trail);
  return trail;
}

static void remove_spool(const char *spool) { nftw(spool, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

static uint64_t count(const struct trail *trail, enum memprof_kind kind) {
  uint64_t found = 0;
  for (uint64_t i = 0; i < trail->count; i++) found += trail_kind(&trail->records[i]) == (int)kind;
  return found;
}

// Whether another process can lock the process file: then readers take this one for ended.
static bool unlocked(const struct trail *trail) {
  char path[600];
  snprintf(path, sizeof path, "%s/process", trail->directory);
  const int file = open(path, O_RDWR);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  CHECK(file >= 0);
  const bool free = fcntl(file, F_OFD_SETLK, &whole) == 0;
  close(file);
  return free;
}

// A recording of one segment with a block, which existed before, and an iteration.
static void record(const char *spool) {
  CHECK(memprof_begin(spool, "readings=1") == 1 && memprof_active() == 1);
  CHECK(memprof_begin(spool, "") == 0);  // it goes on already
  struct memprof_watch *watch = memprof_watch_device(0, "native", read_sums);
  CHECK(watch != NULL);
  sums.reserved = 2 * MiB;
  memprof_watch_adopt(watch, BASE, 1);
  memprof_watch_map(watch, 0, BASE, 2 * MiB, NULL, 0, 0, 0);
  memprof_watch_adopt_block(watch, BASE, 1024);
  memprof_watch_alloc(watch, 0, BASE, 1000, NULL, 0, 0);
  memprof_phase_begin("forward");
  memprof_watch_alloc(watch, 0, BASE + 1024, 600, NULL, 0, 0);
  memprof_watch_free(watch, 0, BASE + 1024, 600, NULL, 0, 0);  // held, and written at the end
  memprof_iteration("first");
  memprof_end();
  CHECK(memprof_active() == 0);
  memprof_iteration("of nobody");
  memprof_phase_end("forward");
}

static void check_recording(const char *spool) {
  const struct trail trail = read_spool(spool);
  char text[4097];
  CHECK_EQUAL(trail.process.state, MEMPROF_CLOSED);
  CHECK(unlocked(&trail));
  CHECK_EQUAL(count(&trail, MEMPROF_ALLOC), 2);
  CHECK_EQUAL(count(&trail, MEMPROF_FREE), 1);
  CHECK_EQUAL(count(&trail, MEMPROF_ITERATION), 1);
  CHECK_EQUAL(count(&trail, MEMPROF_PHASE_BEGIN), 1);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ITERATION, 0)->requested, 0);
  trail_text(&trail, trail_event(&trail, MEMPROF_ITERATION, 0)->context, trail.count, text);
  CHECK(strcmp(text, "first") == 0);
  const struct memprof_record *segment = trail_event(&trail, MEMPROF_EXTERNAL_FREE, 0), *block = trail_event(&trail, MEMPROF_EXTERNAL_FREE, 1);
  CHECK(segment->addr == BASE && segment->requested == 1 && segment->provided == 0);
  CHECK(block->addr == BASE && block->requested == 0 && block->provided == 1024);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_TOTALS, count(&trail, MEMPROF_TOTALS) - 1)->requested, 1);  // the last event: it is complete
}

TEST(twice, "MEMPROF_SPOOL", "") {
  gpu_start();
  for (int i = 0; i < 2; i++) {
    CHECK(mkdtemp(spools[i]) != NULL);
    record(spools[i]);
  }
  for (int i = 0; i < 2; i++) {
    check_recording(spools[i]);
    remove_spool(spools[i]);
  }
}

// As many as a notebook begins; each lock, mapping and thread ends.
TEST(often, "MEMPROF_SPOOL", "") {
  gpu_start();
  for (int i = 0; i < 50; i++) {
    char spool[] = "/tmp/memprof-test-XXXXXX";
    CHECK(mkdtemp(spool) != NULL);
    record(spool);
    check_recording(spool);
    remove_spool(spool);
  }
}

// A thread whose allocator is at work, under its lock, and tells what happens while it is observed.
static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;
static struct memprof_watch *observed;  // under `allocator`; NULL: it tells nothing
static bool over;                       // the same

static void *work(void *nothing) {
  for (bool ended = false; !ended;) {
    pthread_mutex_lock(&allocator);
    ended = over;
    if (observed != NULL) memprof_watch_alloc(observed, 0, BASE + 2048, 600, NULL, 0, 0);
    if (observed != NULL) memprof_watch_free(observed, 0, BASE + 2048, 600, NULL, 0, 0);
    if (observed != NULL) memprof_watch_free_done(observed, 0, BASE + 2048, 600, NULL, 0, 0);
    pthread_mutex_unlock(&allocator);
  }
  return nothing;
}

static void observe(struct memprof_watch *watch) {
  pthread_mutex_lock(&allocator);
  observed = watch;
  pthread_mutex_unlock(&allocator);
}

TEST(while_others_allocate, "MEMPROF_SPOOL", "") {
  pthread_t thread;
  gpu_start();
  CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
  for (int i = 0; i < 20; i++) {
    char spool[] = "/tmp/memprof-test-XXXXXX";
    CHECK(mkdtemp(spool) != NULL && memprof_begin(spool, "readings=1") == 1);
    struct memprof_watch *watch = memprof_watch_device(0, "native", read_sums);
    memprof_watch_map(watch, 0, BASE, 2 * MiB, NULL, 0, 0, 0);
    observe(watch);
    usleep(i * 100);
    observe(NULL);
    memprof_end();
    const struct trail trail = read_spool(spool);
    CHECK_EQUAL(count(&trail, MEMPROF_ALLOC), count(&trail, MEMPROF_FREE));
    CHECK_EQUAL(trail.process.state, MEMPROF_CLOSED);
    remove_spool(spool);
  }
  pthread_mutex_lock(&allocator);
  over = true;
  pthread_mutex_unlock(&allocator);
  pthread_join(thread, NULL);
}

// The stacks of the first recording are in the second, under their numbers, since threads keep them.
TEST(stacks_of_both, "MEMPROF_SPOOL", "") {
  gpu_start();
  CHECK(mkdtemp(spools[0]) != NULL && mkdtemp(spools[1]) != NULL);
  CHECK(memprof_begin(spools[0], "") == 1);
  const uint32_t outer = memprof_stack_node(0, "outer (a.py:1)"), inner = memprof_stack_node(outer, "inner (a.py:2)");
  memprof_end();
  CHECK(memprof_stack_node(outer, "other (a.py:3)") == 0);
  CHECK(memprof_begin(spools[1], "") == 1 && memprof_stack_node(0, "outer (a.py:1)") == outer);
  memprof_end();
  const struct trail trail = read_spool(spools[1]);
  char text[4097];
  CHECK_EQUAL(count(&trail, MEMPROF_STACK), 2);
  CHECK(trail_event(&trail, MEMPROF_STACK, 1)->requested == inner && trail_event(&trail, MEMPROF_STACK, 1)->provided == outer);
  trail_text(&trail, trail_event(&trail, MEMPROF_STACK, 1)->context, trail.count, text);
  CHECK(strcmp(text, "inner (a.py:2)") == 0);
  remove_spool(spools[0]);
  remove_spool(spools[1]);
}

TEST(no_spool, "MEMPROF_SPOOL", "") {
  CHECK(memprof_begin("/nonexistent/spool", "") == 0 && memprof_active() == 0);
  CHECK(memprof_begin("", "") == 0 && memprof_begin("-", "") == 0 && memprof_begin(NULL, "") == 0);
  memprof_end();
  CHECK(mkdtemp(spools[0]) != NULL && memprof_begin(spools[0], "") == 1);
  memprof_end();
  remove_spool(spools[0]);
}

// A process that `memprof record` runs is not recorded a second time.
TEST(recorded_already) {
  CHECK(memprof_begin("/tmp", "") == 0);
  memprof_end();
  CHECK(memprof_active() == 1);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
