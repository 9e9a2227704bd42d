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

static void test_no_file_may_have_a_byte(void) {
  say_much();
  limit(RLIMIT_FSIZE, 0);
  CHECK(!spool_start());
  say_much();
  spool_write(&(struct spool_event){.kind = MEMPROF_ITERATION, .device = -1});
  char directory[512];
  CHECK(trail_find(getpid(), directory, sizeof directory));  // it says that there was a process
}

static void test_files_are_too_small_for_a_page(void) {
  limit(RLIMIT_FSIZE, 1024);
  say_much();
  CHECK(!spool_start());
}

static void test_files_are_too_small_for_a_segment(void) {
  limit(RLIMIT_FSIZE, 1 << 20);
  say_much();
  CHECK(!spool_start());
  say_much();
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail.process.state, MEMPROF_STOPPED);
  CHECK_EQUAL(trail.process.stop_errno, EFBIG);
  CHECK_EQUAL(trail.count, 0);
}

static void test_files_are_large_enough(void) {
  limit(RLIMIT_FSIZE, (rlim_t)MEMPROF_SEGMENT_RECORDS * MEMPROF_RECORD_BYTES);
  CHECK(spool_start());
  for (int i = 0; i < 3 * MEMPROF_SEGMENT_RECORDS; i++) spool_write(&(struct spool_event){.kind = MEMPROF_ITERATION, .device = -1});
  CHECK_EQUAL(trail_read(getpid(), 0).count, 3 * MEMPROF_SEGMENT_RECORDS);
}

static void test_no_file_may_be_opened(void) {
  limit(RLIMIT_NOFILE, 3);
  CHECK(!spool_start());
  say_much();
}

static void test_few_files_may_be_opened(void) {
  limit(RLIMIT_NOFILE, 8);  // below where the process page is put out of the job's way
  CHECK(spool_start());
  for (int i = 0; i < 2 * MEMPROF_SEGMENT_RECORDS; i++) spool_write(&(struct spool_event){.kind = MEMPROF_ITERATION, .device = -1});
  limit(RLIMIT_NOFILE, 64);  // who reads has files open beside the thread that makes segments
  CHECK_EQUAL(trail_read(getpid(), 0).count, 2 * MEMPROF_SEGMENT_RECORDS);
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
      {"no file may have a byte", test_no_file_may_have_a_byte, {NULL}},
      {"files are too small for a page", test_files_are_too_small_for_a_page, {NULL}},
      {"files are too small for a segment", test_files_are_too_small_for_a_segment, {NULL}},
      {"files are large enough", test_files_are_large_enough, {NULL}},
      {"no file may be opened", test_no_file_may_be_opened, {NULL}},
      {"few files may be opened", test_few_files_may_be_opened, {NULL}},
  };
  return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
