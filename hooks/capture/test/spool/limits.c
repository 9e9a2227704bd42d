// limits.c - limits of the process that the hook must not run into: beyond RLIMIT_FSIZE the
// kernel's answer is a signal that ends the job.
#define _GNU_SOURCE
#include <sys/resource.h>

#include "base/problem.h"
#include "spool/spool.h"
#include "trail.h"

static void limit(int resource, rlim_t value) {
  struct rlimit limits;
  CHECK(getrlimit(resource, &limits) == 0);
  limits.rlim_cur = value;
  CHECK(setrlimit(resource, &limits) == 0);
}

static void say_much(void) {
  for (int i = 0; i < 200; i++) problem("line %d: %0500d", i, i);
}

TEST(no_file_may_have_a_byte) {
  say_much();
  limit(RLIMIT_FSIZE, 0);
  CHECK(!spool_start());
  say_much();
  spool_write(&(struct spool_event){.kind = MEMPROF_ITERATION, .device = -1});
  char directory[512];
  CHECK(trail_find(getpid(), directory, sizeof directory));  // it says that there was a process
}

TEST(files_are_too_small_for_a_page) {
  limit(RLIMIT_FSIZE, 1024);
  say_much();
  CHECK(!spool_start());
}

TEST(files_are_too_small_for_a_segment) {
  limit(RLIMIT_FSIZE, 1 << 20);
  say_much();
  CHECK(!spool_start());
  say_much();
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_STOPPED);
  CHECK_EQUAL(trail.process.stop_errno, EFBIG);
  CHECK_EQUAL(trail.count, 0);
}

TEST(files_are_large_enough) {
  limit(RLIMIT_FSIZE, (rlim_t)MEMPROF_SEGMENT_RECORDS * MEMPROF_RECORD_BYTES);
  CHECK(spool_start());
  for (int i = 0; i < 3 * MEMPROF_SEGMENT_RECORDS; i++) spool_write(&(struct spool_event){.kind = MEMPROF_ITERATION, .device = -1});
  CHECK_EQUAL(trail_read(getpid(), 0).count, 3 * MEMPROF_SEGMENT_RECORDS);
}

TEST(no_file_may_be_opened) {
  limit(RLIMIT_NOFILE, 3);
  CHECK(!spool_start());
  say_much();
}

TEST(few_files_may_be_opened) {
  limit(RLIMIT_NOFILE, 8);  // below where the process page is put out of the job's way
  CHECK(spool_start());
  for (int i = 0; i < 2 * MEMPROF_SEGMENT_RECORDS; i++) spool_write(&(struct spool_event){.kind = MEMPROF_ITERATION, .device = -1});
  limit(RLIMIT_NOFILE, 64);  // who reads has files open beside the thread that makes segments
  CHECK_EQUAL(trail_read(getpid(), 0).count, 2 * MEMPROF_SEGMENT_RECORDS);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
