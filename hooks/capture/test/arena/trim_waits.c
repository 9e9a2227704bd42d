// trim_waits.c - the trimmer waits for all streams before it unmaps, and nobody waits for the trimmer.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "arena/exchange.h"
#include "blocks.h"

struct request {
  void *stream;
  uint64_t bytes;
  struct block block;
};

static void *ask(void *self) {
  struct request *request = self;
  begin(&request->block, request->bytes, request->stream);
  return NULL;
}

static void iterate(void *stream, uint64_t bytes) {
  struct block block;
  begin(&block, bytes, stream);
  end(&block);
  memprof_iteration(NULL);
}

static _Atomic bool let_go;

static void *let_go_later(void *stream) {
  usleep(50000);
  let_go = true;
  gpu_let_go(stream);
  return NULL;
}

// A program frees a block that another of its streams still reads: what that block had is unmapped when both are through.
static void test_trim_waits_for_all_streams(void) {
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

// The arena's stream is destroyed with work on it. It is not asked for any more; its work is.
static void test_trim_of_a_destroyed_stream(void) {
  gpu_start();
  void *stream = gpu_stream();
  int (*destroy)(void *);
  GPU_CALL(destroy, "cuStreamDestroy_v2");
  iterate(stream, 40 * MiB);
  gpu_hold(stream);
  exchange_stream_ends(stream);
  CHECK_EQUAL(destroy(stream), 0);
  for (int i = 0; i < 3; i++) memprof_iteration(NULL);
  rest_for_a_while();
  CHECK_EQUAL(reserved(), 40 * MiB);
  gpu_let_go(stream);
  await_reserved(0);
  rest();
  audited();
}

// A new stream with the handle of one that was destroyed gets that one's memory when its work is done.
static void test_a_handle_returns(void) {
  gpu_start();
  pthread_t thread;
  struct request request = {gpu_stream(), 4 * MiB, {0}};
  int (*destroy)(void *);
  GPU_CALL(destroy, "cuStreamDestroy_v2");
  iterate(request.stream, 4 * MiB);
  gpu_hold(request.stream);
  exchange_stream_ends(request.stream);
  CHECK_EQUAL(destroy(request.stream), 0);
  CHECK(pthread_create(&thread, NULL, let_go_later, request.stream) == 0);
  ask(&request);
  CHECK(let_go);
  CHECK(request.block.start != NULL);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQUAL(stats().syncs, 0);
  audited();
}

static _Atomic bool refused;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *self);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *self);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *self) {
  return refused ? EAGAIN : __real_pthread_create(thread, attributes, run, self);
}

// The system gives the trimmer no thread: nobody waits for it. Once it does, there is one.
static void test_no_thread(void) {
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

int main(int argc, char **argv) {
#define COMPACT "MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,trim=iteration"
  static const struct test tests[] = {
      {"trim waits for all streams", test_trim_waits_for_all_streams, {COMPACT}},
      {"trim of a destroyed stream", test_trim_of_a_destroyed_stream, {COMPACT}},
      {"no thread", test_no_thread, {COMPACT}},
      {"a handle returns", test_a_handle_returns, {COMPACT}},
  };
  return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
