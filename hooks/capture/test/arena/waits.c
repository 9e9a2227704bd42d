// waits.c - memory that leaves its use altogether: the device has to be through with its work, on whatever stream, also of no arena. What a
// program asks for at once waits for that; all else stays until it is.
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "arena/reclaim.h"
#include "device/calls.h"
#include "gpu.h"
#include "memprof.h"

#define CARD "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0"

enum { POOL = 7 };

// Has the action happen while a stream is at work.
static void check_waits(void (*act)(void)) {
  void *stream = gpu_stream();
  pthread_t thread;
  gpu_hold(stream);
  was_let_go = false;
  const struct calls before = calls_so_far();
  CHECK(pthread_create(&thread, NULL, let_go_later, stream) == 0);
  act();
  CHECK(was_let_go);
  CHECK(calls_so_far().waited_ns > before.waited_ns);
  CHECK(pthread_join(thread, NULL) == 0);
}

// Has the action happen while a stream is at work. It does not wait.
static void check_leaves(void (*act)(void)) {
  void *stream = gpu_stream();
  gpu_hold(stream);
  const uint64_t before = gpu_free();
  const struct calls calls = calls_so_far();
  act();
  CHECK(gpu_free() <= before);
  CHECK_EQUAL(gpu_waits(), 0);
  CHECK_EQUAL(calls_so_far().waited_ns, calls.waited_ns);
  gpu_let_go(stream);
}

static void *take(uint64_t bytes) {
  void *block = memprof_malloc(bytes, 0, NULL);
  CHECK(block != NULL);
  return block;
}

static void drop(void *block) { memprof_free(block, 0, 0, NULL); }

static void *take_tagged(uint64_t bytes) {
  CHECK_EQUAL(memprof_region_begin("weights", 0), MEMPROF_OK);
  void *block = take(bytes);
  memprof_region_end();
  return block;
}

static const char *const tag[] = {"weights"};

static void empty_cache(void) { CHECK_EQUAL(memprof_empty_cache(0), 64 * MiB); }

TEST(empty_cache, CARD) {
  gpu_start();
  drop(take(64 * MiB));
  check_waits(empty_cache);
  CHECK_EQUAL(gpu_free(), GiB);
}

static void make_way(void) { CHECK(reclaim_for_other_library(0, GiB)); }

TEST(other_library, CARD) {
  gpu_start();
  drop(take(64 * MiB));
  check_waits(make_way);
  CHECK_EQUAL(gpu_free(), GiB);
}

static void release_pool(void) { memprof_release_pool(0, POOL, 0); }

TEST(pool, CARD) {
  gpu_start();
  memprof_pool_hold(0, POOL, 0);
  drop(memprof_malloc_in_pool(64 * MiB, 0, NULL, POOL, 0));
  check_leaves(release_pool);
  CHECK_EQUAL(gpu_free(), GiB - 64 * MiB);
  memprof_free(memprof_malloc_in_pool(MiB, 0, NULL, POOL + 1, 0), 0, 0, NULL);  // another one's first request looks
  CHECK_EQUAL(gpu_free(), GiB - 2 * MiB);
}

static void pause_tag(void) { CHECK_EQUAL(memprof_pause(tag, 1, 0), MEMPROF_OK); }

TEST(pause, CARD) {
  gpu_start();
  take_tagged(64 * MiB);
  check_waits(pause_tag);
  CHECK_EQUAL(gpu_free(), GiB);
}

static void resume_tag(void) { CHECK_EQUAL(memprof_resume(tag, 1, 0), MEMPROF_OK); }

// What a paused tag's requests got elsewhere goes when the tag is resumed.
TEST(may_unmap, CARD) {
  gpu_start();
  take_tagged(64 * MiB);
  pause_tag();
  drop(take_tagged(32 * MiB));
  check_leaves(resume_tag);
  CHECK_EQUAL(gpu_free(), GiB - 96 * MiB);
  pause_tag(), resume_tag();
  CHECK_EQUAL(gpu_free(), GiB - 64 * MiB);
}

static void *opened;

static void close_shared(void) { memprof_close_shared(opened, 0); }

TEST(shared, CARD) {
  char name[128];
  gpu_start();
  CHECK(memprof_share(take(64 * MiB), name, sizeof name) == 1);
  opened = memprof_open_shared(name, 0);
  CHECK(opened != NULL);
  check_leaves(close_shared);
  CHECK_EQUAL(gpu_access(opened, 0), 3);
  memprof_empty_cache(0);
  CHECK_EQUAL(gpu_access(opened, 0), -1);
}

static void forget_block(void *self, void *ptr) { (void)self, (void)ptr; }

static void restore(void) { CHECK(memprof_restore(0, POOL, 0, NULL, 0, NULL, forget_block)); }

// A checkpoint ends pending blocks, too.
TEST(checkpoint, CARD) {
  gpu_start();
  void *stream = gpu_stream();
  memprof_pool_hold(0, POOL, 0);
  void *block = memprof_malloc_in_pool(64 * MiB, 0, NULL, POOL, 0);
  gpu_hold(stream);
  memprof_record_stream(block, stream);
  drop(block);
  pthread_t thread;
  was_let_go = false;
  CHECK(pthread_create(&thread, NULL, let_go_later, stream) == 0);
  restore();
  CHECK(was_let_go);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
