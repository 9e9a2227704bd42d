// attribution.c - contexts by number, call stacks and labels, as they reach the spool.
#define _GNU_SOURCE
#include <pthread.h>

#include "arena/gpu.h"
#include "arena/trim.h"
#include "asleep.h"
#include "base/hook.h"
#include "gpu.h"
#include "memprof.h"
#include "spool/context.h"
#include "trail.h"

static void *allocate(size_t bytes) {
  void *block = memprof_malloc(bytes, 0, NULL);
  CHECK(block != NULL);
  return block;
}

static void expect_context(const struct trail *trail, enum memprof_kind kind, uint64_t n, const char *want) {
  char text[4097];
  const struct memprof_record *event = trail_event(trail, kind, n);
  CHECK(event != NULL);
  trail_text(trail, event->context, (uint64_t)(event - trail->records), text);
  if (strcmp(text, want) != 0) fprintf(stderr, "event %d of kind %d: \"%s\", want \"%s\"\n", (int)n, kind, text, want);
  CHECK(strcmp(text, want) == 0);
}

static void *allocate_elsewhere(void *number) {
  CHECK_EQUAL(*memprof_context_cell(), 0);  // a thread starts without
  *memprof_context_cell() = *(uint32_t *)number;
  return allocate(300);
}

TEST(cell_is_of_the_thread) {
  gpu_start();
  const uint32_t conv = memprof_context("module=layer1.conv1"), fc = memprof_context("module=fc");
  CHECK(conv != 0 && fc != 0 && conv != fc);
  CHECK_EQUAL(memprof_context("module=fc"), fc);
  CHECK_EQUAL(memprof_context(""), 0);
  *memprof_context_cell() = conv;
  allocate(100);
  pthread_t thread;
  uint32_t number = fc;
  CHECK(pthread_create(&thread, NULL, allocate_elsewhere, &number) == 0 && pthread_join(thread, NULL) == 0);
  allocate(100);
  *memprof_context_cell() = 0;
  allocate(100);
  const struct trail trail = trail_read(getpid(), 0);
  expect_context(&trail, MEMPROF_ALLOC, 0, "module=layer1.conv1");
  expect_context(&trail, MEMPROF_ALLOC, 1, "module=fc");
  expect_context(&trail, MEMPROF_ALLOC, 2, "module=layer1.conv1");
  expect_context(&trail, MEMPROF_ALLOC, 3, "");
}

TEST(stacks_are_a_tree) {
  gpu_start();
  const uint32_t outer = memprof_stack_node(0, "main (train.py:10)");  // before the first allocation
  const uint32_t left = memprof_stack_node(outer, "forward (net.py:5)"), right = memprof_stack_node(outer, "forward (net.py:6)");
  CHECK_EQUAL(outer, 1);
  CHECK_EQUAL(left, 2);
  CHECK_EQUAL(right, 3);
  CHECK_EQUAL(memprof_stack_node(outer, "forward (net.py:5)"), left);
  CHECK_EQUAL(memprof_stack_node(left, "forward (net.py:5)"), 4);  // a recursion is another node
  CHECK_EQUAL(memprof_stack_node(5, "nobody's child"), 0);
  CHECK_EQUAL(memprof_stack_node(outer, ""), 0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STACK), 4);
  expect_context(&trail, MEMPROF_STACK, 2, "forward (net.py:6)");
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STACK, 2)->requested, right);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STACK, 2)->provided, outer);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_STACK, 3)->provided, left);
}

TEST(stack_joins_the_module) {
  gpu_start();
  const uint32_t outer = memprof_stack_node(0, "main (train.py:10)");
  const uint32_t inner = memprof_stack_node(outer, "forward (net.py:5)");
  context_set_stack(inner);
  allocate(100);
  memprof_set_context("module=fc");
  allocate(100);
  context_set_stack(outer);
  allocate(100);
  context_set_stack(inner);
  allocate(100);
  context_set_stack(0);
  allocate(100);
  const struct trail trail = trail_read(getpid(), 0);
  expect_context(&trail, MEMPROF_ALLOC, 0, "stack=2");
  expect_context(&trail, MEMPROF_ALLOC, 1, "module=fc\tstack=2");
  expect_context(&trail, MEMPROF_ALLOC, 2, "module=fc\tstack=1");
  expect_context(&trail, MEMPROF_ALLOC, 4, "module=fc");
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, 3)->context, trail_event(&trail, MEMPROF_ALLOC, 1)->context);
  trail_audit(&trail);
}

// Ten thousand nodes, found again after the tables have grown.
TEST(many_stacks) {
  gpu_start();
  enum { COUNT = 10000 };
  static uint32_t numbers[COUNT];
  char frame[64];
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t i = 0; i < COUNT; i++) {
      snprintf(frame, sizeof frame, "f%u (x.py:%u)", i % 97, i);
      const uint32_t number = memprof_stack_node(i / 3, frame);
      if (pass == 0) numbers[i] = number;
      CHECK_EQUAL(number, numbers[i]);
      CHECK_EQUAL(number, i + 1);
      context_set_stack(number);
      context_get();  // more pairs than are kept
    }
  }
  context_set_stack(77);
  allocate(1);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_STACK), COUNT);
  expect_context(&trail, MEMPROF_ALLOC, 0, "stack=77");
}

TEST(labels_of_live_blocks) {
  gpu_start();
  char *weight = allocate(4000), *gone = allocate(4000), *state = allocate(4000);
  memprof_free(gone, 0, 0, NULL);
  memprof_label(weight + 1000, "category=weights\tname=fc.weight");  // a view's address
  memprof_label(gone, "category=weights");
  memprof_label(&gone, "category=weights");  // of the host
  memprof_label(NULL, "category=weights");
  const uint64_t addresses[] = {(uintptr_t)weight, (uintptr_t)gone, (uintptr_t)state};
  const uint32_t gradient = memprof_context("category=gradients"), contexts[] = {gradient, gradient, memprof_context("category=optimizer")};
  memprof_label_many(3, addresses, contexts);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_LABEL), 3);
  expect_context(&trail, MEMPROF_LABEL, 0, "category=weights\tname=fc.weight");
  expect_context(&trail, MEMPROF_LABEL, 1, "category=gradients");
  expect_context(&trail, MEMPROF_LABEL, 2, "category=optimizer");
  const struct memprof_record *first = trail_event(&trail, MEMPROF_LABEL, 0);
  CHECK_EQUAL(first->addr, (uintptr_t)weight);
  CHECK_EQUAL(first->device, 0);
  CHECK_EQUAL(first->arena, trail_event(&trail, MEMPROF_ALLOC, 0)->arena);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_LABEL, 2)->addr, (uintptr_t)state);
}

// A block that waits for another stream has been freed: what it held is over.
TEST(no_label_for_pending_blocks) {
  gpu_start();
  void *other = gpu_stream(), *block = allocate(4000);
  gpu_hold(other);
  memprof_record_stream(block, other);
  memprof_label(block, "category=inputs");
  memprof_free(block, 0, 0, NULL);
  memprof_label(block, "category=weights");
  gpu_let_go(other);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_LABEL), 1);
  expect_context(&trail, MEMPROF_LABEL, 0, "category=inputs");
}

TEST(nothing_before_the_first_allocation) {
  uint32_t context = memprof_context("category=weights");
  uint64_t address = 256;
  memprof_label((void *)(uintptr_t)address, "category=weights");
  memprof_label_many(1, &address, &context);
  char path[600];
  CHECK(context != 0);
  CHECK(!trail_find(getpid(), path, sizeof path));
}

// The first allocation of a job is made inside a phase that began before there was a spool.
TEST(phase_open_at_the_first_allocation) {
  memprof_phase_begin("data");
  memprof_phase_end("data");
  memprof_phase_begin("forward");
  memprof_phase_end("never begun");
  gpu_start();
  CHECK(memprof_malloc(1000, 0, NULL) != NULL);
  memprof_phase_end("forward");
  memprof_phase_end("forward");
  const struct trail trail = trail_read(getpid(), 0);
  const struct memprof_record *begin = trail_event(&trail, MEMPROF_PHASE_BEGIN, 0);
  char text[4097];
  CHECK_EQUAL(trail_number(&trail, MEMPROF_PHASE_BEGIN), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_PHASE_END), 1);
  CHECK(begin < trail_event(&trail, MEMPROF_ALLOC, 0));
  trail_text(&trail, begin->context, trail.count, text);
  CHECK(strcmp(text, "forward") == 0);
}

static _Atomic pid_t second_is;

static void *use_second_device(void *nothing) {
  second_is = (pid_t)syscall(SYS_gettid);
  CHECK(memprof_malloc(1000, 1, NULL) != NULL);
  return nothing;
}

static pthread_t second;

static void mark_meanwhile(void *nothing) {
  CHECK(pthread_create(&second, NULL, use_second_device, nothing) == 0);
  while (second_is == 0) usleep(100);
  await_call(second_is, SYS_futex);
  CHECK(gpu_existing(1) == NULL);
}

// A device that is used for the first time has either seen an iteration's end or begun after it.
TEST(no_device_comes_within_a_mark, "MEMPROF_SIM_DEVICES", "2") {
  gpu_start();
  allocate(100);
  trim_iteration(mark_meanwhile, NULL);
  CHECK(pthread_join(second, NULL) == 0);
  CHECK(gpu_existing(1) != NULL);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
