// windows.c - growth of used memory becomes one event, of the right window, even if other threads allocate
// meanwhile; and the hook's own calls are not recorded.
#define _GNU_SOURCE
#include "arena/arena.h"
#include "base/real_dlsym.h"
#include "device/otherlib.h"
#include "device/overhead.h"
#include "device/own_calls.h"
#include "gpu.h"
#include "memprof.h"
#include "trail.h"

#include <pthread.h>
#include <stdarg.h>

int cudaMalloc(void **ptr, size_t bytes);
int cudaFree(void *ptr);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);

// Code of `bytes` behind the hook's back, as if within the driver.
static void *load_code(uint64_t bytes) {
  void *module, *found = real_dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuModuleLoadData");
  int (*load)(void **, const char *);
  char image[64];
  memcpy(&load, &found, sizeof load);
  snprintf(image, sizeof image, "simcuda:%llu", (unsigned long long)bytes);
  CHECK(load(&module, image) == 0);
  return module;
}

static struct trail so_far(void) { return trail_read(getpid(), 0); }

// The overhead events after those of the start, in order.
static void check_overheads(uint64_t count, ...) {
  const struct trail trail = so_far();
  va_list list;
  va_start(list, count);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_OVERHEAD), count);
  for (uint64_t i = 0; i < count; i++) CHECK_EQUAL(trail_event(&trail, MEMPROF_OVERHEAD, i)->provided, va_arg(list, uint64_t));
  va_end(list);
}

TEST(own_memory_is_no_overhead, "MEMPROF_SIM_MEMORY", "1g") {
  struct overhead window;
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  overhead_begin(&window);
  CHECK_EQUAL(window.device, 0);
  void *block = memprof_malloc(40 * MiB, 0, NULL);
  load_code(6 * MiB);
  memprof_free(block, 0, 0, NULL);
  CHECK(memprof_empty_cache(0) > 0);
  overhead_end(&window, 0);
  check_overheads(1, 6 * MiB);
}

TEST(others_memory_is_no_overhead, "MEMPROF_SIM_MEMORY", "1g") {
  struct overhead window;
  void *before, *within;
  gpu_start();
  CHECK(cudaMalloc(&before, 10 * MiB) == 0);
  overhead_begin(&window);
  CHECK(cudaMalloc(&within, 30 * MiB) == 0 && cudaFree(before) == 0);
  overhead_end(&window, 0);
  check_overheads(0);
}

// A first allocation may load code on its way, in the same thread.
TEST(code_within_an_allocation, "MEMPROF_SIM_MEMORY", "1g") {
  struct overhead window;
  gpu_start();
  otherlib_call_begin();
  overhead_begin(&window);
  load_code(6 * MiB);
  overhead_end(&window, 0);
  otherlib_call_end();
  check_overheads(1, 6 * MiB);
}

// Growth belongs to the window that ends first after it.
TEST(windows_overlap, "MEMPROF_SIM_MEMORY", "1g") {
  struct overhead one, two, inner;
  gpu_start();
  overhead_begin(&one);
  load_code(2 * MiB);
  overhead_begin(&two);
  load_code(4 * MiB);
  overhead_end(&one, 0);
  load_code(8 * MiB);
  overhead_begin(&inner);
  load_code(16 * MiB);
  overhead_end(&inner, 0);
  overhead_end(&two, 0);
  check_overheads(2, 6 * MiB, 24 * MiB);
}

TEST(no_window_in_capture, "MEMPROF_SIM_MEMORY", "1g") {
  struct overhead window;
  void *stream, *graph;
  gpu_start();
  stream = gpu_stream();
  overhead_begin(&window);
  CHECK(cudaStreamBeginCapture(stream, 2) == 0);
  load_code(2 * MiB);
  overhead_end(&window, 0);
  overhead_begin(&window);
  CHECK_EQUAL(window.device, -1);
  CHECK(cudaStreamEndCapture(stream, &graph) == 0);
  overhead_end(&window, 0);
  check_overheads(0);
}

// Sum of the driver overhead events so far, in bytes.
static int64_t overhead_sum(void) {
  const struct trail trail = so_far();
  int64_t sum = 0;
  for (uint64_t i = 0; i < trail.count; i++)
    if (trail_kind(&trail.records[i]) == MEMPROF_OVERHEAD) sum += (int64_t)trail.records[i].provided;
  return sum;
}

// Four threads load code and allocate at the same time: the sum is right whatever the order.
static void *load_and_allocate(void *unused) {
  (void)unused;
  gpu_start();
  for (int i = 0; i < 200; i++) {
    struct overhead window;
    void *ptr;
    overhead_begin(&window);
    load_code(65536);
    overhead_end(&window, 0);
    CHECK(cudaMalloc(&ptr, 65536) == 0);
    if (i % 2 == 0) CHECK(cudaFree(ptr) == 0);
    memprof_free(memprof_malloc(1 + (size_t)i * 10000, 0, NULL), 0, 0, NULL);
  }
  return NULL;
}

TEST(threads, "MEMPROF_SIM_MEMORY", "4g") {
  pthread_t threads[4];
  struct memprof_stats stats;
  gpu_start();
  const uint64_t all = gpu_free();
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, load_and_allocate, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  const int64_t sum = overhead_sum();
  memprof_get_stats(0, &stats);
  CHECK_EQUAL(otherlib_bytes(0), 4 * 100 * 65536);
  CHECK_EQUAL(all - gpu_free(), stats.reserved_bytes.current + 4 * 100 * 65536 + 4 * 200 * 65536);
  // A window is not measured if other threads never pause in it: how many are depends on the machine. Events may show less than was
  // loaded, never more. A window of one thread alone is measured to the byte, also after all of these.
  CHECK(sum <= 4 * 200 * 65536);
  struct overhead window;
  overhead_begin(&window);
  load_code(65536);
  overhead_end(&window, 0);
  CHECK_EQUAL(overhead_sum(), sum + 65536);
}

TEST(lock_is_not_waited_for, "MEMPROF_SIM_MEMORY", "1g") {
  struct overhead window;
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  struct gpu *gpu = gpu_get(0);
  lock_take(&gpu->lock);
  overhead_begin(&window);
  CHECK_EQUAL(window.device, -1);
  lock_give(&gpu->lock);
  overhead_begin(&window);
  load_code(2 * MiB);
  lock_take(&gpu->lock);
  overhead_end(&window, 0);
  lock_give(&gpu->lock);
  check_overheads(0);
}

TEST(own_calls_pass_unseen, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "preset=compact") {
  void *ptr = NULL, *too_much = NULL;
  gpu_start();
  void *block = memprof_malloc(600 * MiB, 0, NULL);
  memprof_free(block, 0, 0, NULL);  // reclaim could unmap it
  own_calls_begin();
  own_calls_begin();
  own_calls_end();
  CHECK(cudaMalloc(&ptr, MiB) == 0 && cudaFree(ptr) == 0);
  CHECK(cudaMalloc(&too_much, 800 * MiB) == 2);
  own_calls_end();
  struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC) + trail_number(&trail, MEMPROF_EXTERNAL_FREE), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_RECLAIM), 0);
  CHECK(cudaMalloc(&too_much, 800 * MiB) == 0);
  trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_RECLAIM), 1);
}

// Random blocks, against sums that are kept apart.
TEST(other_libraries) {
  enum { BLOCKS = 700 };
  uint64_t sizes[BLOCKS] = {0}, state = 7;
  bool pooled[BLOCKS] = {false};
  int64_t plain_sum = 0, pooled_sum = 0;
  for (int i = 0; i < 200000; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const size_t at = (state >> 33) % BLOCKS;
    // Far apart, side by side, and in the same place again.
    const uint64_t addr = at % 3 == 0 ? 0x7f0000000000 + at * 512 : 0x100000000 * (at + 1);
    if (sizes[at] != 0 && (state >> 60) != 0) {
      otherlib_remove(addr);
      *(pooled[at] ? &pooled_sum : &plain_sum) -= (int64_t)sizes[at];
      sizes[at] = 0;
    } else {
      if (sizes[at] != 0) *(pooled[at] ? &pooled_sum : &plain_sum) -= (int64_t)sizes[at];
      sizes[at] = 1 + (state >> 40) % 5000;
      pooled[at] = (state >> 50) % 2 == 0;
      otherlib_add(addr, sizes[at], 5, pooled[at]);
      *(pooled[at] ? &pooled_sum : &plain_sum) += (int64_t)sizes[at];
    }
    CHECK_EQUAL(otherlib_bytes(5), plain_sum);
    CHECK_EQUAL(otherlib_pooled_bytes(5), pooled_sum);
  }
  otherlib_remove(12345);
  CHECK_EQUAL(otherlib_bytes(5), plain_sum);
  CHECK_EQUAL(otherlib_bytes(4), 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
