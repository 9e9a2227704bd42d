// streams.c - blocks that other streams use: reused only when those are through with them.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "agree.h"
#include "device/captures.h"
#include "gpu.h"
#include "memprof.h"

enum { BYTES = 1 << 20 };

static void *allocate(void *stream) {
  void *block = memprof_malloc(BYTES, 0, stream);
  CHECK(block != NULL);
  return block;
}

static void release(void *block) { memprof_free(block, 0, 0, NULL); }

TEST(pending_until_done) {
  gpu_start();
  void *other = gpu_stream();
  void *block = allocate(NULL);
  gpu_hold(other);
  memprof_record_stream(block, other);
  memprof_record_stream(block, other);
  release(block);
  size_t provided;
  CHECK(memprof_owns(block, &provided) == 0);  // pending is not live
  CHECK(allocate(NULL) != block);
  struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE_DONE), 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STREAM_USE, 0)->stream, (uintptr_t)other);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STREAM_USE, 0)->addr, (uintptr_t)block);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STREAM_USE), 1);
  release(block);  // a second time: refused, no event
  gpu_let_go(other);
  CHECK(allocate(NULL) == block);
  trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE), 1);
  const struct memprof_record *done = trail_event(&trail, MEMPROF_FREE_DONE, 0);
  CHECK(done != NULL && done > trail_event(&trail, MEMPROF_FREE, 0));
  CHECK(done < trail_event(&trail, MEMPROF_ALLOC, 2));
}

TEST(own_stream_needs_no_wait) {
  gpu_start();
  void *stream = gpu_stream(), *block = allocate(stream);
  gpu_hold(stream);
  memprof_record_stream(block, stream);
  release(block);
  CHECK(allocate(stream) == block);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STREAM_USE), 0);
  gpu_let_go(stream);
}

// One stream that hangs must not keep the blocks of others.
TEST(streams_do_not_wait_for_each_other) {
  gpu_start();
  void *slow = gpu_stream(), *quick = gpu_stream();
  void *first = allocate(NULL), *second = allocate(NULL);
  gpu_hold(slow);
  memprof_record_stream(first, slow);
  memprof_record_stream(second, quick);
  release(first), release(second);
  CHECK(allocate(NULL) == second);
  gpu_let_go(slow);
  CHECK(allocate(NULL) == first);
  trail_agrees();
}

// Torch's backward and data threads may never have had a context.
static void *allocate_without_context(void *blocks) {
  ((void **)blocks)[1] = memprof_malloc(BYTES, 0, NULL);
  return NULL;
}

TEST(thread_without_context) {
  gpu_start();
  void *other = gpu_stream(), *blocks[2] = {allocate(NULL), NULL};
  gpu_hold(other);
  memprof_record_stream(blocks[0], other);
  release(blocks[0]);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, allocate_without_context, blocks) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(blocks[1] != NULL && blocks[1] != blocks[0]);
  gpu_let_go(other);
  CHECK(allocate(NULL) == blocks[0]);
  trail_agrees();
}

// A request that does not fit waits for what is pending.
TEST(waits_before_out_of_memory, "MEMPROF_SIM_MEMORY", "64m") {
  gpu_start();
  void *other = gpu_stream();
  void *block = memprof_malloc(48 * MiB, 0, NULL);
  gpu_hold(other);
  memprof_record_stream(block, other);
  memprof_free(block, 0, 0, NULL);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, let_go_later, other) == 0);
  void *again = memprof_malloc(48 * MiB, 0, NULL);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(again != NULL);
  const struct trail trail = trail_agrees();
  const struct memprof_record *reclaim = trail_event(&trail, MEMPROF_RECLAIM, 0);
  CHECK(reclaim != NULL && reclaim < trail_event(&trail, MEMPROF_FREE_DONE, 0));
  CHECK_EQUAL(trail_number(&trail, MEMPROF_OOM), 0);
}

// The event cannot be recorded: the block is not reused before the stream is done all the same.
TEST(event_refused, "MEMPROF_SIM_FAIL", "cuEventRecord:1") {
  gpu_start();
  void *other = gpu_stream();
  void *block = allocate(NULL);
  memprof_record_stream(block, other);
  gpu_hold(other);
  release(block);
  CHECK(allocate(NULL) != block);
  gpu_let_go(other);
  trail_agrees();
}

static _Atomic bool refused;
void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes) { return refused ? NULL : __real_realloc(old, bytes); }
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return refused ? NULL : __real_malloc(bytes); }  // compilers make it of realloc(NULL, bytes)

static void use_unnoted(void *block, void *stream) {
  refused = true;
  memprof_record_stream(block, stream);
  refused = false;
}

// There is no host memory to note the stream: the block is reused when all that was queued is over, on whatever stream.
TEST(no_host_memory) {
  gpu_start();
  void *other = gpu_stream(), *block = allocate(NULL), *during = allocate(NULL);
  use_unnoted(block, other), use_unnoted(during, other);
  CHECK(memprof_used_elsewhere(block));
  gpu_hold(other);
  release(block);
  captures_begin();
  release(during);
  captures_end();
  void *next = allocate(NULL);
  CHECK(next != block && next != during);
  CHECK_EQUAL(gpu_waits(), 0);
  gpu_let_go(other);
  CHECK(allocate(NULL) == block);
  CHECK(allocate(NULL) == during);
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STREAM_USE), 2);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE_DONE), 2);
}

// The use is on a stream of another device's context.
TEST(stream_of_another_device, "MEMPROF_SIM_DEVICES", "2") {
  int (*retain)(void **, int), (*push)(void *), (*pop)(void **);
  void *context = NULL, *popped = NULL;
  gpu_start();
  GPU_CALL(retain, "cuDevicePrimaryCtxRetain");
  GPU_CALL(push, "cuCtxPushCurrent_v2");
  GPU_CALL(pop, "cuCtxPopCurrent_v2");
  CHECK(retain(&context, 1) == 0 && push(context) == 0);
  void *other = gpu_stream();
  CHECK(pop(&popped) == 0);
  void *block = allocate(NULL);
  gpu_hold(other);
  memprof_record_stream(block, other);
  release(block);
  CHECK(allocate(NULL) != block);
  gpu_let_go(other);
  CHECK(allocate(NULL) == block);
  trail_agrees();
}

static uint64_t reused[4];
static int reuses;

static void note_reuse(int device, uint64_t addr) {
  CHECK_EQUAL(device, 0);
  CHECK(reuses < 4);
  reused[reuses++] = addr;
}

// Torch's history has an entry for each: the observer hears of blocks whose free was pending, and only of those.
TEST(reuse_is_observed) {
  gpu_start();
  void *stream = gpu_stream(), *plain = memprof_malloc(1 * MiB, 0, NULL), *used = memprof_malloc(2 * MiB, 0, NULL);
  memprof_set_reuse_observer(note_reuse);
  memprof_record_stream(used, stream);
  CHECK(!memprof_used_elsewhere(plain) && memprof_used_elsewhere(used) && !memprof_used_elsewhere(&reuses));
  gpu_hold(stream);
  memprof_free(plain, 0, 0, NULL), memprof_free(used, 0, 0, NULL);
  CHECK(!memprof_used_elsewhere(used));
  memprof_free(memprof_malloc(1, 0, NULL), 0, 0, NULL);
  CHECK_EQUAL(reuses, 0);
  gpu_let_go(stream);
  memprof_free(memprof_malloc(1, 0, NULL), 0, 0, NULL);
  CHECK_EQUAL(reuses, 1);
  CHECK_EQUAL(reused[0], (uintptr_t)used);
  memprof_set_reuse_observer(NULL);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }

// Processor time of the thread.
static uint64_t spent(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// The time of a request and its free, of streams in turns, in ns.
static uint64_t of_request(int streams) {
  enum { ROUNDS = 4 };
  const uint64_t began = spent();
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 1; i <= streams; i++) release(allocate((void *)(uintptr_t)(i * 64)));
  }
  return (spent() - began) / (uint64_t)(ROUNDS * streams);
}

// A request finds its arena, and a free that of its block, without a look at those of thousands of other streams.
TEST(thousands_of_streams) {
  ONE_THREAD();
  enum { FEW = 16, MANY = 2000 };
  gpu_start();
  of_request(FEW);
  const uint64_t few = of_request(FEW);
  of_request(MANY);
  const uint64_t many = of_request(MANY);
  if (many > 10 * few + 2000) fprintf(stderr, "%d streams: %llu ns a request, %d: %llu\n", FEW, (unsigned long long)few, MANY, (unsigned long long)many);
  CHECK(many <= 10 * few + 2000);
}
