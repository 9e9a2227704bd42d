// trim_waits.c - nobody waits for the trimmer. That it unmaps nothing before the work of all streams is over, destroyed ones too, is
// in random_readers.c.
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
