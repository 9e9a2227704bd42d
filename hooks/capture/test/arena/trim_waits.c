// trim_waits.c - growth unmaps pages of free chunks that kernels may still be at work on: before one
// is unmapped, the device has to be through with its work.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "arena/streams.h"
#include "blocks.h"

// Blocks of the stream, of 2, 8, 2, 6, 2 and 2 MiB: 22 MiB.
static void fill(struct block *blocks, void *stream) {
  const uint64_t sizes[] = {2, 8, 2, 6, 2, 2};
  for (int i = 0; i < 6; i++) begin(&blocks[i], sizes[i] * MiB, stream);
  CHECK_EQUAL(reserved(), 22 * MiB);
}

// What a free block has is still there: the work on it is not done.
static void leave(struct block *block) { memprof_free(block->start, 0, 0, NULL); }

// Where the device cannot be waited for, free chunks stay as they are, and the whole request is mapped.
static void test_nothing_is_taken_unwaited(void) {
  gpu_start();
  struct block blocks[6], large;
  fill(blocks, NULL);
  leave(&blocks[1]), leave(&blocks[3]);
  begin(&large, 20 * MiB, NULL);
  CHECK(large.start != NULL);
  CHECK_EQUAL(reserved(), 42 * MiB);
  CHECK_EQUAL(8 * GiB - gpu_free(), 42 * MiB);
  const struct trail trail = audited();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_UNMAP), 0);
  for (int i = 0; i < 6; i++) check_pattern(&blocks[i]);
  memset(blocks[1].start, 1, 8 * MiB), memset(blocks[3].start, 2, 6 * MiB);
  check_pattern(&large);
}

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);

// Nor while a stream is captured, which a wait would spoil.
static void test_taking_spoils_no_capture(void) {
  gpu_start();
  void *stream = gpu_stream(), *graph = NULL;
  struct block blocks[6], large;
  fill(blocks, NULL);
  leave(&blocks[1]), leave(&blocks[3]);
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
  begin(&large, 20 * MiB, NULL);
  CHECK_EQUAL(reserved(), 42 * MiB);
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  CHECK(large.start != NULL && graph != NULL);
  for (int i = 0; i < 6; i++) check_pattern(&blocks[i]);
  audited();
}

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

// Asks for more than there is while the stream is at work on what the blocks had, free or not.
static void ask_while_at_work(struct request *request, const struct block *blocks) {
  pthread_t thread;
  const uint64_t before = gpu_free();
  gpu_hold(request->stream);
  CHECK(pthread_create(&thread, NULL, ask, request) == 0);
  gpu_await_waiter();
  CHECK_EQUAL(gpu_free(), before);
  for (int i = 0; i < 6; i++) check_pattern(&blocks[i]);
  gpu_let_go(request->stream);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(request->block.start != NULL);
}

// Each request waits for itself: there may be new work since the one before.
static void test_taking_waits_for_the_work(void) {
  gpu_start();
  void *stream = gpu_stream();
  struct block blocks[6];
  struct request first = {stream, 20 * MiB, {0}}, second = {stream, 22 * MiB, {0}};
  fill(blocks, stream);
  leave(&blocks[1]), leave(&blocks[3]);
  ask_while_at_work(&first, blocks);
  CHECK_EQUAL(reserved(), 28 * MiB);  // 14 of the 20 were taken
  blocks[1].start = blocks[3].start = NULL;
  leave(&blocks[4]);
  ask_while_at_work(&second, blocks);
  CHECK_EQUAL(reserved(), 48 * MiB);  // and 2 of the 22
  CHECK_EQUAL(stats().syncs, 2);
  const struct trail trail = audited();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_UNMAP), 3);
  check_pattern(&first.block), check_pattern(&second.block);
}

static void iterate(void *stream, uint64_t bytes) {
  struct block block;
  begin(&block, bytes, stream);
  end(&block);
  memprof_iteration(NULL);
}

static _Atomic bool let_go;

static void *let_go_later(void *stream) {
  gpu_await_waiter();
  let_go = true;
  gpu_let_go(stream);
  return NULL;
}

// The trimmer comes back when the work on what it unmaps is done. By then the cache was emptied: what it would have
// mapped ahead stays unmapped, until the next iteration ends.
static void test_nothing_is_mapped_into_an_emptied_cache(void) {
  gpu_start();
  void *stream = gpu_stream();
  pthread_t thread;
  iterate(stream, 40 * MiB), iterate(stream, 4 * MiB);
  gpu_hold(stream);
  iterate(stream, 4 * MiB), iterate(stream, 4 * MiB);
  rest_for_a_while();  // the trimmer waits for the stream
  CHECK_EQUAL(reserved(), 40 * MiB);
  CHECK(pthread_create(&thread, NULL, let_go_later, stream) == 0);
  CHECK_EQUAL(memprof_empty_cache(0), 40 * MiB);  // waits for the stream, which the trimmer's event is of
  CHECK(pthread_join(thread, NULL) == 0);
  rest();
  CHECK_EQUAL(reserved(), 0);
  memprof_iteration(NULL);
  rest();
  CHECK_EQUAL(reserved(), 4 * MiB);
  audited();
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
  streams_end(stream);
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
  streams_end(request.stream);
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
#define COMPACT "MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", "growth=needed,split=always,trim=iteration"
  static const struct test tests[] = {
      {"nothing is taken unwaited", test_nothing_is_taken_unwaited, {COMPACT, "MEMPROF_SIM_FAIL", "cuCtxSynchronize:1+=900"}},
      {"taking spoils no capture", test_taking_spoils_no_capture, {COMPACT}},
      {"taking waits for the work", test_taking_waits_for_the_work, {COMPACT}},
      {"nothing is mapped into an emptied cache", test_nothing_is_mapped_into_an_emptied_cache, {COMPACT}},
      {"trim waits for all streams", test_trim_waits_for_all_streams, {COMPACT}},
      {"trim of a destroyed stream", test_trim_of_a_destroyed_stream, {COMPACT}},
      {"no thread", test_no_thread, {COMPACT}},
      {"a handle returns", test_a_handle_returns, {COMPACT}},
  };
  return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
