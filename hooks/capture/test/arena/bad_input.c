// bad_input.c - what a caller does wrong, and what a machine lacks, while the driver refuses each call in turn: the
// result says what was wrong, nothing has changed, and the next try has the result that it would have had.
//
// One process goes through all cases with one refused call. A first one, without, lists the calls. MEMPROF_TEST_ALL
// has each of them refused; without it one of twelve, which MEMPROF_TEST_SEED chooses, or the clock.
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "files.h"
#include "gpu.h"
#include "memprof.h"

enum { TAGS = 5, THIRD = 3, BYTES = 3 << 20, MUCH = 200 << 20, CALLS = 400, SETUP_FAILED = 20 };

static const char *const on_disk[TAGS] = {"a", "b", "c", "d", "e"}, *const cache[] = {"cache"}, *const much[] = {"much"}, *const file[] = {"file"};
static char folder[] = "/tmp/memprof-bad-XXXXXX";

// Which file of a pause the disk has no room for, from 1; 0: none.
static int full_at, made;
int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes) { return full_at > 0 && ++made == full_at ? ENOSPC : __real_posix_fallocate(fd, offset, bytes); }

// The calls of the test itself may be refused, too: once.
static bool set_bytes(const char *at, int value, size_t bytes) {
  int (*set)(uint64_t, unsigned char, size_t);
  GPU_CALL(set, "cuMemsetD8_v2");
  return set((uintptr_t)at, (unsigned char)value, bytes) == 0;
}

static int byte_at(const char *at) {
  int (*copy)(void *, uint64_t, size_t);
  unsigned char value = 0;
  GPU_CALL(copy, "cuMemcpyDtoH_v2");
  return copy(&value, (uintptr_t)at, 1) == 0 ? value : -1;
}

static void *new_stream(void) {
  int (*create)(void **, unsigned);
  void *stream = NULL;
  GPU_CALL(create, "cuStreamCreate");
  CHECK(create(&stream, 1) == 0 || create(&stream, 1) == 0);
  return stream;
}

static uint64_t free_memory(void) {
  int (*info)(size_t *, size_t *);
  size_t bytes = 0, total = 0;
  GPU_CALL(info, "cuMemGetInfo_v2");
  CHECK(info(&bytes, &total) == 0 || info(&bytes, &total) == 0);
  return bytes;
}

// A tag with one block of BYTES, or of MUCH, whose first and last byte are `value`.
static struct block {
  const char *tag;
  char *start;
  size_t bytes;
  int value;
  bool paused;
} blocks[TAGS + 3];
static size_t block_count;

static void add(const char *tag, int restore, size_t bytes) {
  struct block *block = &blocks[block_count++];
  CHECK_EQUAL(memprof_region_begin(tag, restore), MEMPROF_OK);
  *block = (struct block){.tag = tag, .start = memprof_malloc(bytes, 0, NULL), .bytes = bytes, .value = (int)block_count};
  memprof_region_end();
  struct memprof_tag_usage usage;
  memprof_tag_usage(tag, &usage);
  if (usage.live == 0 || !set_bytes(block->start, block->value, 1) || !set_bytes(block->start + bytes - 1, block->value, 1)) _exit(SETUP_FAILED);
}

static struct block *of(const char *tag) {
  struct block *block = blocks;
  while (strcmp(block->tag, tag) != 0) block++;
  return block;
}

static uint64_t free_bytes;  // as it was after the last step that changed something
static size_t file_number;
static bool keeps;           // the driver has not unmapped or released something

// All is as after that step.
static void check_unchanged(void) {
  for (size_t i = 0; i < block_count; i++) {
    const struct block *block = &blocks[i];
    if (block->paused && !keeps) CHECK(!set_bytes(block->start, 1, 1) && !set_bytes(block->start, 1, 1));
    if (!block->paused) CHECK(byte_at(block->start) == block->value && byte_at(block->start + block->bytes - 1) == block->value);
  }
  if (!keeps) CHECK_EQUAL(free_memory(), free_bytes);
  CHECK_EQUAL(files_mapped(folder), file_number);
}

static int refusals;  // of the driver, that a call has failed for

static int call(const char *const *names, size_t count, bool pause) {
  made = 0;
  return pause ? memprof_pause(names, count, 0) : memprof_resume(names, count, 0);
}

// The call fails with the result, or first for the driver.
static void fails(const char *const *names, size_t count, bool pause, int wanted) {
  int result = call(names, count, pause);
  CHECK(result != MEMPROF_OK && memprof_pause_message()[0] != '\0');
  check_unchanged();
  if (result != wanted) {
    CHECK(++refusals == 1);
    result = call(names, count, pause);
    check_unchanged();
  }
  CHECK_EQUAL(result, wanted);
}

// The call succeeds, or first fails for the driver.
static void succeeds(const char *const *names, size_t count, bool pause) {
  int result = call(names, count, pause);
  if (result == MEMPROF_LEAKED) CHECK(keeps && ++refusals == 1);
  if (result != MEMPROF_OK && result != MEMPROF_LEAKED) {
    CHECK(++refusals == 1);
    check_unchanged();
    result = call(names, count, pause);
    CHECK_EQUAL(result, MEMPROF_OK);
  }
  for (size_t i = 0; i < count; i++) {
    struct block *block = of(names[i]);
    block->paused = pause;
    const bool without = strcmp(block->tag, "cache") == 0 || strcmp(block->tag, "much") == 0;
    if (!pause && without) CHECK(set_bytes(block->start, block->value, 1) && set_bytes(block->start + block->bytes - 1, block->value, 1));
  }
  free_bytes = free_memory(), file_number = files_mapped(folder);
  check_unchanged();
}

static void not_paused(void) {
  static const char *const nobody[] = {"nobody"};
  fails(cache, 1, false, MEMPROF_WRONG_STATE);
  fails(nobody, 1, true, MEMPROF_UNKNOWN_TAG);
  succeeds(cache, 1, true);
  fails(cache, 1, true, MEMPROF_WRONG_STATE);
  succeeds(cache, 1, false);
}

static void full_disk(void) {
  full_at = THIRD;
  fails(on_disk, TAGS, true, MEMPROF_NO_DISK);
  full_at = 0;
  succeeds(on_disk, TAGS, true);
  succeeds(on_disk, TAGS, false);
}

// The backup limit is less than the copy. With another tag, which alone could be paused: all or nothing.
static void no_pinned_memory(void) {
  static const char *const both[] = {"cache", "much"};
  fails(much, 1, true, MEMPROF_NO_HOST_MEMORY);
  fails(both, 2, true, MEMPROF_NO_HOST_MEMORY);
}

// A copy by the test would end the capture, so content is compared after it.
static void in_a_capture(void *stream) {
  int (*begin)(void *, int), (*end)(void *, void **);
  void *graph = NULL;
  GPU_CALL(begin, "cuStreamBeginCapture_v2");
  GPU_CALL(end, "cuStreamEndCapture");
  succeeds(cache, 1, true);
  CHECK(begin(stream, 0) == 0 || begin(stream, 0) == 0);
  CHECK_EQUAL(memprof_pause(file, 1, 0), MEMPROF_IN_CAPTURE);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_IN_CAPTURE);
  CHECK(strstr(memprof_pause_message(), "captured") != NULL);
  CHECK((end(stream, &graph) == 0 || end(stream, &graph) == 0) && graph != NULL);
  check_unchanged();
  succeeds(file, 1, true);
  succeeds(file, 1, false);
  succeeds(cache, 1, false);
}

TEST(cases) {
  gpu_start();
  CHECK(mkdtemp(folder) != NULL);
  memprof_backup_folder(folder);
  const char *rule = getenv("MEMPROF_SIM_FAIL");
  keeps = strncmp(rule, "cuMemUnmap", 10) == 0 || strncmp(rule, "cuMemRelease", 12) == 0;
  for (int i = 0; i < TAGS; i++) add(on_disk[i], MEMPROF_RESTORE_DISK, BYTES);
  add("cache", MEMPROF_RESTORE_NONE, BYTES), add("much", MEMPROF_RESTORE_HOST, MUCH), add("file", MEMPROF_RESTORE_DISK, BYTES);
  free_bytes = free_memory();
  not_paused();
  full_disk();
  no_pinned_memory();
  in_a_capture(new_stream());
  CHECK(rmdir(folder) == 0);  // it is empty
}

// The calls of all cases, in order, each with its number among those of its name.
static struct called {
  char name[40];
  int number;
} called[CALLS];
static int called_count;

// Refused, these would fail the test itself: starting, streams and captures.
static bool of_the_test(const char *name) {
  return strncmp(name, "cuInit", 6) == 0 || strncmp(name, "cuDevice", 8) == 0 || strncmp(name, "cuCtxSetCurrent", 15) == 0 || strcmp(name, "cuMemsetD8") == 0 || strcmp(name, "cuMemcpyDtoH") == 0;
}

static bool list_calls(void) {
  char log[] = "/tmp/memprof-test-log-XXXXXX", line[512];
  struct called *next = called;
  const int descriptor = mkstemp(log);
  const char *const environment[] = {"MEMPROF_SIM_FAIL", "none:1", "MEMPROF_SIM_LOG", log, NULL};
  if (descriptor < 0) return false;
  close(descriptor);
  const int status = run_alone("cases", environment);
  FILE *calls = fopen(log, "r");
  while (calls != NULL && next < called + CALLS && fgets(line, sizeof line, calls) != NULL) {
    if (sscanf(line, "%*d %39[A-Za-z0-9]", next->name) != 1 || of_the_test(next->name)) continue;
    next->number = 1;
    for (const struct called *other = called; other < next; other++) next->number += strcmp(other->name, next->name) == 0;
    next++;
  }
  called_count = (int)(next - called);
  if (calls != NULL) fclose(calls);
  unlink(log);
  return status == 0 && called_count > 0 && called_count < CALLS;
}

int main(int argc, char **argv) {
  setenv("MEMPROF_SIM_MEMORY", "1g", 1), setenv("MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0,backup_limit=134217728", 1);
  if (argc > 1) return run_tests(argc, argv);
  if (!list_calls()) {
    printf("FAIL the cases themselves, or more calls than %d\n", CALLS);
    return 1;
  }
  const char *given = getenv("MEMPROF_TEST_SEED");
  const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  const int step = getenv("MEMPROF_TEST_ALL") != NULL ? 1 : 12;
  int failed = 0, refused = 0;
  for (int i = (int)(seed % (uint64_t)step); i < called_count; i += step, refused++) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s:%d=999", called[i].name, called[i].number);
    const char *const environment[] = {"MEMPROF_SIM_FAIL", rule, NULL};
    const int status = run_alone("cases", environment);
    if (status != 0 && status != SETUP_FAILED) printf("FAIL bad input, with MEMPROF_SIM_FAIL=%s: status %d\n", rule, status), failed++;
  }
  printf("%s bad input, with %d of %d calls refused in turn, MEMPROF_TEST_SEED=%llu\n", failed == 0 ? "ok  " : "FAIL", refused, called_count, (unsigned long long)seed);
  return failed != 0;
}
