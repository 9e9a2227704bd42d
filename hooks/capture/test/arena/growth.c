// growth.c - how arenas map memory, unmap it and map it again.
#define _GNU_SOURCE
#include <stdint.h>

#include "agree.h"
#include "calls.h"
#include "gpu.h"
#include "memprof.h"

#define SMALL_CARD "MEMPROF_SIM_MEMORY", "8g"

// The interposed call: this program's own symbols come before the runtime's.
int cudaMalloc(void **ptr, size_t bytes);
int cudaFree(void *ptr);
int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int cuMemFree_v2(uint64_t addr);

static void *allocate(uint64_t bytes) {
  void *block = memprof_malloc(bytes, 0, NULL);
  CHECK(block != NULL);
  return block;
}

static void release(void *block) { memprof_free(block, 0, 0, NULL); }

// The trail, if it agrees with the counters and the device.
static struct trail audited(uint64_t others) {
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(8 * GiB - gpu_free(), stats().reserved_bytes.current + others);
  return trail;
}

TEST(doubling, SMALL_CARD) {
  gpu_start();
  void *a = allocate(1000), *b = allocate(3 * MiB), *c = allocate(4 * MiB);
  const struct trail trail = audited(0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), 1);
  const struct memprof_record *arena = trail_event(&trail, MEMPROF_ARENA, 0);
  CHECK_EQUAL(arena->provided, 16 * GiB);
  CHECK_EQUAL(arena->requested, 8 * GiB);
  char text[4097];
  trail_text(&trail, arena->context, (uint64_t)(arena - trail.records), text);
  CHECK(strstr(text, "growth=double ") == text);
  CHECK(strstr(text, " headroom=2147483648 ") != NULL);
  CHECK(strstr(text, " fraction=0 gc=0 granularity=2097152 coalesces=1 ") != NULL);
  CHECK(strstr(text, " main=1") != NULL);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 0)->provided, 2 * MiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 1)->provided, 4 * MiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 2)->provided, 8 * MiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 1)->addr, arena->addr + 2 * MiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, 0)->requested, 1000);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, 0)->provided, 1024);
  CHECK_EQUAL((uintptr_t)a, arena->addr);
  // The 3 MiB lie across the first two grants.
  CHECK_EQUAL((uintptr_t)b, arena->addr + 1024);
  memset(a, 1, 1000), memset(b, 2, 3 * MiB), memset(c, 3, 4 * MiB);
}

TEST(unmap_and_map_again, SMALL_CARD) {
  gpu_start();
  char *low = allocate(64 * MiB), *high = allocate(100 * MiB);
  gpu_write(high, 7, 100 * MiB);
  release(high);
  const uint64_t reserved = (uint64_t)stats().reserved_bytes.current;
  const size_t given = memprof_empty_cache(0);
  CHECK(given >= 64 * MiB);
  CHECK_EQUAL(stats().reserved_bytes.current, reserved - given);
  audited(0);
  char *again = allocate(100 * MiB);
  CHECK(again == high);  // placement does not look at what is mapped
  gpu_write(again, 9, 100 * MiB), gpu_write(low, 1, 64 * MiB);
  const struct trail trail = audited(0);
  CHECK(trail_number(&trail, MEMPROF_UNMAP) > 0);
  char text[4097];
  const struct memprof_record *reclaim = trail_event(&trail, MEMPROF_RECLAIM, 0);
  CHECK_EQUAL(reclaim->arena, MEMPROF_NO_ARENA);
  trail_text(&trail, reclaim->context, (uint64_t)(reclaim - trail.records), text);
  CHECK(strcmp(text, "empty_cache") == 0);
  release(again), release(low);
  memprof_empty_cache(0);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
  CHECK_EQUAL(stats().segment.current, 0);
  CHECK_EQUAL(gpu_free(), 8 * GiB);
  audited(0);
}

// Growth beyond the request stops where 7.5 GiB of 8 are left to others.
TEST(headroom_is_recorded, SMALL_CARD, "MEMPROF_OPTIONS", "headroom=8053063680") {
  gpu_start();
  allocate(100 * MiB);  // the next region doubles to 128 MiB
  allocate(300 * MiB);  // and to 512, which is more than the headroom leaves
  const struct trail trail = audited(0);
  const struct memprof_record *asked = trail_event(&trail, MEMPROF_DEVICE_USED, 1);
  CHECK(asked != NULL);
  CHECK_EQUAL(asked->requested, 8 * GiB);
  CHECK_EQUAL(asked->provided, 128 * MiB);
  CHECK_EQUAL(asked->arena, 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 1)->requested, 384 * MiB);
  CHECK_EQUAL(stats().reserved_bytes.current, 512 * MiB);
}

TEST(nine_tenths_at_once, SMALL_CARD) {
  gpu_start();
  const uint64_t bytes = 8 * GiB / 10 * 9;
  char *block = allocate(bytes);
  block[0] = block[bytes - 1] = 1;
  const struct trail trail = audited(0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_GROW_FAILED), 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_MAP, 0)->provided, (bytes + 2 * MiB - 1) & ~(2 * MiB - 1));
}

TEST(another_library_s_allocation_fits, SMALL_CARD) {
  gpu_start();
  release(allocate(5 * GiB));
  CHECK(gpu_free() < 4 * GiB);
  void *other = NULL;
  CHECK(cudaMalloc(&other, 6 * GiB) == 0);
  // The runtime's own memory of the first, failed try must not surface in the job.
  int (*last)(void);
  GPU_CALL(last, "cudaGetLastError");
  CHECK_EQUAL(last(), 0);
  const struct trail trail = audited(6 * GiB);
  const struct memprof_record *event = trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0);
  CHECK_EQUAL(event->addr, (uintptr_t)other);
  CHECK_EQUAL(event->requested, 6 * GiB);
  CHECK_EQUAL(event->arena, MEMPROF_NO_ARENA);
  const struct memprof_record *reclaim = trail_event(&trail, MEMPROF_RECLAIM, 0);
  CHECK(reclaim != NULL && reclaim < event);
  CHECK_EQUAL(reclaim->requested, 6 * GiB);
  // More than there is fails as it does without us, and costs nobody his memory.
  void *too_much = NULL;
  CHECK_EQUAL(cudaMalloc(&too_much, 9 * GiB), 2);
  CHECK_EQUAL(cudaFree(other), 0);
  const struct trail after = audited(0);
  CHECK_EQUAL(trail_event(&after, MEMPROF_EXTERNAL_FREE, 0)->addr, (uintptr_t)other);
}

TEST(driver_calls_are_recorded, SMALL_CARD) {
  gpu_start();
  release(allocate(5 * GiB));
  uint64_t addr = 0;
  CHECK_EQUAL(cuMemAlloc_v2(&addr, 6 * GiB), 0);
  struct trail trail = audited(6 * GiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)->addr, addr);
  CHECK_EQUAL(cuMemFree_v2(addr), 0);
  trail = audited(0);
  char text[4097];
  const struct memprof_record *event = trail_event(&trail, MEMPROF_EXTERNAL_FREE, 0);
  trail_text(&trail, event->context, (uint64_t)(event - trail.records), text);
  const char *const want = "call=cuMemFree\tlibrary=growth";
  CHECK(event->addr == addr && strcmp(text, want) == 0);
}

// cudaMalloc is answered from the main arena; cudaFree waits for the device first.
TEST(serving, SMALL_CARD, "MEMPROF_OPTIONS", "serve=1") {
  gpu_start();
  void *block = NULL;
  CHECK_EQUAL(cudaMalloc(&block, 1000), 0);
  size_t provided = 0;
  CHECK(memprof_owns(block, &provided) == 1);
  CHECK_EQUAL(provided, 1024);
  CHECK_EQUAL(cudaMalloc(&block, 9 * GiB), 2);
  CHECK_EQUAL(cudaMalloc(&block, 2000), 0);
  CHECK_EQUAL(cudaFree(block), 0);
  CHECK(memprof_owns(block, &provided) == 0);
  const struct trail trail = audited(0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), 2);
}

// A stream's arena holds 5 GiB without need; the main arena wants 6 of 8.
TEST(reclaims_from_other_arenas, SMALL_CARD) {
  gpu_start();
  void *stream = gpu_stream();
  void *block = memprof_malloc(5 * GiB, 0, stream);
  CHECK(block != NULL);
  release(block);
  char *main_block = allocate(6 * GiB);
  main_block[6 * GiB - 1] = 1;
  const struct trail trail = audited(0);
  const struct memprof_record *reclaim = trail_event(&trail, MEMPROF_RECLAIM, 0);
  CHECK(reclaim != NULL);
  CHECK_EQUAL(reclaim->arena, trail_event(&trail, MEMPROF_ARENA, 1)->arena);
  CHECK_EQUAL(reclaim->requested, 6 * GiB);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_OOM), 0);
  CHECK(trail_event(&trail, MEMPROF_GROW_FAILED, 0) < reclaim);
  CHECK(trail_event(&trail, MEMPROF_UNMAP, 0) > reclaim);
}

TEST(out_of_memory, SMALL_CARD) {
  gpu_start();
  void *block = allocate(5 * GiB);
  CHECK(memprof_malloc(4 * GiB, 0, NULL) == NULL);
  const char *message = memprof_oom_message();
  CHECK(strstr(message, "4.00 GiB") != NULL && strstr(message, "capacity") != NULL && strchr(message, '\n') == NULL);
  const struct trail trail = audited(0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_OOM, 0)->requested, 4 * GiB);
  CHECK_EQUAL(stats().ooms, 1);
  release(block);
  CHECK(memprof_malloc(SIZE_MAX, 0, NULL) == NULL);
  CHECK(memprof_malloc(0, 0, NULL) == NULL);
  CHECK(memprof_malloc(1, 7, NULL) == NULL);  // there is one device
  CHECK(memprof_malloc(1, -1, NULL) == NULL);
  allocate(1);
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

// Programs look for torch's words, so a message begins with them.
TEST(text_of_out_of_memory, SMALL_CARD) {
  gpu_start();
  allocate(20 * MiB);
  CHECK(memprof_malloc(9 * GiB, 0, NULL) == NULL);
  CHECK(begins(memprof_oom_message(), "CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 7.97 GiB is free. "
                                      "Of the allocated memory 20.00 MiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated. memprof: "));
  memprof_set_limit(0, 64 * MiB);
  CHECK(memprof_malloc(44 * MiB + 1, 0, NULL) == NULL);
  CHECK(begins(memprof_oom_message(), "CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 7.97 GiB is free. 64.00 MiB allowed; "
                                      "Of the allocated memory 20.00 MiB is allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated. memprof: "));
  CHECK(strstr(memprof_oom_message(), "the largest chunk 0 bytes (capacity); others use 0 bytes of the device.") != NULL);
  CHECK(memprof_malloc((uint64_t)1 << 60, 0, NULL) == NULL);
  CHECK(strcmp(memprof_oom_message(), "CUDA out of memory. Tried to allocate more than 1EB memory.") == 0);
}

// Torch's own statistics count blocks, which are multiples of 512 bytes.
TEST(statistics_that_torch_counts, SMALL_CARD) {
  gpu_start();
  void *stream = gpu_stream(), *a = allocate(1), *b = allocate(513), *c = memprof_malloc(1024, 0, stream);
  CHECK_EQUAL(stats().torch_bytes.current, 512 + 1024 + 1024);
  CHECK_EQUAL(stats().torch_active.current, 512 + 1024 + 1024);
  memprof_record_stream(b, stream);
  gpu_hold(stream);
  release(b);
  CHECK_EQUAL(stats().torch_bytes.current, 512 + 1024);
  CHECK_EQUAL(stats().torch_active.current, 512 + 1024 + 1024);
  gpu_let_go(stream);
  release(allocate(100));  // a request looks which blocks are not in use any more
  CHECK_EQUAL(stats().torch_active.current, 512 + 1024);
  CHECK_EQUAL(stats().torch_bytes.peak, 512 + 1024 + 1024);
  memprof_reset_peak(0);
  CHECK_EQUAL(stats().torch_bytes.peak, 512 + 1024);
  release(a), release(c);
  CHECK_EQUAL(stats().torch_active.current, 0);
}

TEST(empty_cache_counts_once, SMALL_CARD) {
  gpu_start();
  memprof_empty_cache(0);  // there is no memory yet
  CHECK_EQUAL(stats().syncs, 1);
  release(allocate(1 * MiB));
  for (int i = 2; i <= 4; i++) {  // only the first one has anything to unmap
    memprof_empty_cache(0);
    CHECK_EQUAL(stats().syncs, i);
  }
  memprof_reset_accumulated(0);
  CHECK_EQUAL(stats().syncs, 0);
}

// A request that the limit leaves room for is served at once, though no growth beyond it fits: the device is not short.
TEST(request_for_the_rest_of_the_limit, "MEMPROF_SIM_MEMORY", "16g") {
  gpu_start();
  allocate(MiB);
  memprof_set_limit(0, 4096 * MiB);
  allocate(4000 * MiB);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_GROW_FAILED), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_SHORTAGE), 0);
  const struct memprof_record *reading = trail_event(&trail, MEMPROF_DEVICE_USED, trail_number(&trail, MEMPROF_DEVICE_USED) - 1);
  CHECK_EQUAL(reading->requested - reading->provided, 4094 * MiB);
  CHECK_EQUAL(reading->provided, 2 * MiB);
}

TEST(blocks_by_pointer, SMALL_CARD) {
  gpu_start();
  char *block = allocate(1 * MiB);
  size_t provided = 0;
  void *start = NULL;
  CHECK(memprof_owns(block, &provided) == 1);
  CHECK_EQUAL(provided, 1 * MiB);
  CHECK(memprof_owns(block + 256, &provided) == 0);
  CHECK(memprof_block_of(block + 4711, &start, &provided) == 1 && start == block);
  CHECK(memprof_block_of(&provided, &start, &provided) == 0);
  release(block);
  CHECK(memprof_owns(block, &provided) == 0);
  release(block);       // twice: a line in the problems file
  release(&provided);   // never ours: likewise
  const struct trail trail = audited(0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_FREE), 1);
  const char *text = trail_problems(&trail);
  CHECK(strchr(text, '\n') != strrchr(text, '\n'));
}

// A reservation is left when it is used up; a range that lies behind it is another region and never joined to it, since no
// physical handle can be mapped across the two. A request that leaves it grows once, and not by what a free chunk before lacks.
static void larger_than_a_reservation(uint64_t page) {
  gpu_start();
  void *stream = gpu_stream();
  char *small = memprof_malloc(1000, 0, stream), *large = memprof_malloc(20 * GiB + MiB, 0, stream);
  CHECK(small != NULL && large != NULL);
  CHECK_EQUAL(stats().reserved_bytes.current, 20 * GiB + 2 * page);
  memset(small, 1, 1000), memset(large, 2, 4096), memset(large + 20 * GiB, 3, MiB);
  trail_agrees();
}

TEST(larger_than_a_reservation_under_classic, "MEMPROF_SIM_MEMORY", "64g") { larger_than_a_reservation(2 * MiB); }
TEST(larger_than_a_reservation_under_compact, "MEMPROF_SIM_MEMORY", "64g", "MEMPROF_OPTIONS", "preset=compact") { larger_than_a_reservation(4 * MiB); }

// A large map has few handles, and adjacent ones are unmapped in one call.
TEST(few_calls, "MEMPROF_SIM_MEMORY", "64g", "MEMPROF_OPTIONS", "trim=iteration") {
  log_calls();
  gpu_start();
  void *stream = gpu_stream(), *a = memprof_malloc(16 * GiB, 0, stream), *b = memprof_malloc(6 * MiB, 0, stream), *c = memprof_malloc(2 * MiB, 0, stream);
  CHECK_EQUAL(calls_of("cuMemCreate"), 1024 + 3 + 1);
  CHECK_EQUAL(calls_of("cuMemSetAccess"), 3);
  release(a), release(c);
  CHECK_EQUAL(memprof_empty_cache(0), 16 * GiB + 2 * MiB);
  CHECK_EQUAL(calls_of("cuMemUnmap"), 2);
  CHECK(b != NULL && calls_of("cuMemRelease") == 1024 + 1);
}

// Where the driver refuses to unmap several, they are unmapped one by one.
TEST(unmaps_refused_at_once, "MEMPROF_SIM_MEMORY", "64g", "MEMPROF_OPTIONS", "preset=compact,handle=2097152", "MEMPROF_SIM_FAIL", "cuMemUnmap:1") {
  gpu_start();
  void *a = allocate(6 * MiB);
  release(a);
  CHECK_EQUAL(memprof_empty_cache(0), 6 * MiB);
  CHECK_EQUAL(gpu_free(), 64 * GiB);
  release(allocate(6 * MiB));
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
