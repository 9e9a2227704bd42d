// trim_waits.c - the trimmer unmaps nothing before the work of all streams is over, and nobody waits for the trimmer.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "blocks.h"

#define COMPACT "MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,trim=iteration"

static void iterate(void *stream, uint64_t bytes) {
  struct block block;
  begin(&block, bytes, stream);
  end(&block);
  memprof_iteration(NULL);
}

// A program frees a block that another of its streams still reads: what that block had is unmapped when both are through.
TEST(trim_waits_for_all_streams, COMPACT) {
  gpu_start();
  void *other = gpu_stream();
  struct block theirs;
  begin(&theirs, 2 * MiB, other);
  gpu_hold(other);
  iterate(NULL, 40 * MiB);
  for (int i = 0; i < 3; i++) iterate(NULL, 4 * MiB);
  rest_for_a_while();
  CHECK_EQUAL(reserved(), 42 * MiB);
  gpu_let_go(other);
  await_reserved(6 * MiB);
  rest();
  audited();
}

// The arena's stream is destroyed with work on it. The work counts.
TEST(trim_of_a_destroyed_stream, COMPACT) {
  gpu_start();
  void *stream = gpu_stream();
  int (*destroy)(void *);
  GPU_CALL(destroy, "cuStreamDestroy_v2");
  gpu_hold(stream);
  iterate(stream, 40 * MiB);
  CHECK_EQUAL(destroy(stream), 0);
  for (int i = 0; i < 3; i++) memprof_iteration(NULL);
  rest_for_a_while();
  CHECK_EQUAL(reserved(), 40 * MiB);
  gpu_let_go(stream);
  await_reserved(0);
  rest();
  audited();
}

static _Atomic bool refused;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *self);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *self);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *self) {
  return refused ? EAGAIN : __real_pthread_create(thread, attributes, run, self);
}

// The system gives the trimmer no thread: nobody waits for it. Once it does, there is one.
TEST(no_thread, COMPACT) {
  gpu_start();
  refused = true;
  iterate(NULL, 40 * MiB);
  for (int i = 0; i < 3; i++) iterate(NULL, 4 * MiB);
  CHECK(!memprof_trimming());
  CHECK_EQUAL(reserved(), 40 * MiB);
  refused = false;
  iterate(NULL, 4 * MiB);
  rest();
  CHECK_EQUAL(reserved(), 4 * MiB);
  audited();
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
