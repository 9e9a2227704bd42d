// unplaced.c - growth pages: free pages serve other addresses while their old mappings stay.
#define _GNU_SOURCE
#include "agree.h"
#include "arena/arena.h"
#include "base/array.h"
#include "blocks.h"
#include "calls.h"
#include "positions.h"
#include "random.h"

#include <time.h>

#define PAGES "preset=compact,headroom=0"

enum { BLOCKS = 24, OPERATIONS = 240, POSITIONS = 24 };

static void agree(bool device_too) {
  trail_agrees();
  if (device_too) CHECK_EQUAL(GiB - gpu_free(), reserved());
}

// Two blocks in turns on the same pages at different addresses. From the second iteration on the driver
// refuses to create, map, unmap and wait, and is not asked to.
TEST(pages_in_turns, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_FAIL", "cuMemCreate:8+,cuMemMap:12+,cuMemUnmap:1+,cuCtxSynchronize:1+") {
  gpu_start();
  for (int i = 0; i < 6; i++) {
    struct block small, between, large;
    begin(&small, 8 * MiB, NULL), begin(&between, 4 * MiB, NULL);
    const unsigned char *first = small.start;
    end(&small);
    begin(&large, 12 * MiB, NULL);
    CHECK(large.start > first);
    CHECK_EQUAL(reserved(), 16 * MiB);
    agree(true);
    check_pattern(&between);
    end(&large), end(&between);
    memprof_iteration("step");
  }
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_MAP_FAILED) + trail_number(&trail, MEMPROF_GROW_FAILED), 0);
}

// A job whose pages were at two hundred thousand addresses exchanges those of two blocks as soon as any other: nothing moves in memory.
TEST(many_old_mappings, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  enum { OTHERS = 200000, ROUNDS = 1000 };
  gpu_start();
  void *small = memprof_malloc(8 * MiB, 0, NULL), *between = memprof_malloc(4 * MiB, 0, NULL), *large;
  struct vmm *vmm = &gpu_get(0)->arenas->memory.vmm;
  struct timespec start, now;
  for (int i = 0; i < ROUNDS; i++) {
    memprof_free(small, 8 * MiB, 0, NULL);
    large = memprof_malloc(12 * MiB, 0, NULL);
    memprof_free(large, 12 * MiB, 0, NULL);
    small = memprof_malloc(8 * MiB, 0, NULL);
    CHECK(small < between && large > between);
    if (i != 1) continue;
    CHECK(vmm->old_count > 0 && array_reserve(&vmm->old, &vmm->old_room, vmm->old_count + OTHERS + ROUNDS, sizeof *vmm->old));
    for (uint64_t k = 0; k < OTHERS; k++) vmm->old[vmm->old_count++] = (struct vmm_mapping){.addr = ((uint64_t)1 << 60) + k * 4 * MiB, .bytes = 4 * MiB};
    clock_gettime(CLOCK_MONOTONIC, &start);
  }
  clock_gettime(CLOCK_MONOTONIC, &now);
  vmm->old_count -= OTHERS;
  const double seconds = (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9;
  if (seconds > 3) printf("%d rounds took %.1f s\n", ROUNDS, seconds);
  CHECK(seconds < 3);
  agree(true);
}

// A request that is mapped on what others left does not ask the driver how much memory is free: it takes none.
TEST(unplaced_handles_ask_for_no_free_memory, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  log_calls();
  gpu_start();
  uint64_t asked = 0;
  for (int i = 0; i < 6; i++) {
    struct block small, between, large;
    begin(&small, 8 * MiB, NULL), begin(&between, 4 * MiB, NULL);
    end(&small);
    begin(&large, 12 * MiB, NULL);
    if (i == 0) asked = calls_of("cuMemGetInfo");
    end(&large), end(&between);
    memprof_iteration("step");
  }
  CHECK(asked > 0);
  CHECK_EQUAL(calls_of("cuMemGetInfo"), asked);
}

// What was unplaced is given back with all its mappings.
TEST(empty_cache, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  struct block small, between, large;
  begin(&small, 8 * MiB, NULL), begin(&between, 4 * MiB, NULL);
  end(&small);
  begin(&large, 12 * MiB, NULL);
  end(&large);
  CHECK_EQUAL(memprof_empty_cache(0), 12 * MiB);
  agree(true);
  begin(&small, 8 * MiB, NULL), begin(&large, 12 * MiB, NULL);
  check_pattern(&between), check_pattern(&small);
  end(&small), end(&large), end(&between);
  memprof_empty_cache(0);
  CHECK_EQUAL(gpu_free(), GiB);
}

// A peer that gets access while pages are unplaced has it when they return to their old mappings.
TEST(peers, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_DEVICES", "2") {
  gpu_start();
  struct block small, between, large;
  begin(&small, 8 * MiB, NULL), begin(&between, 4 * MiB, NULL);
  end(&small);
  begin(&large, 12 * MiB, NULL);
  CHECK(memprof_enable_peer(0, 1));
  CHECK_EQUAL(gpu_access(large.start, 1), 3);
  end(&large);
  begin(&small, 8 * MiB, NULL);
  CHECK_EQUAL(gpu_access(small.start, 1), 3);
}

// Random blocks on a card that they sometimes exceed, on two streams. The driver may refuse any one call.
TEST(scenario, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_FAIL", "none:1") {
  gpu_start();
  const bool exact = !gpu_fails("cuMemUnmap") && !gpu_fails("cuMemRelease");
  void *streams[] = {NULL, gpu_stream()};
  struct block blocks[BLOCKS] = {0};
  uint64_t state = 7;
  for (int i = 0; i < OPERATIONS; i++) {
    struct block *block = &blocks[random_below(&state, BLOCKS)];
    if (block->start != NULL)
      end(block);
    else
      begin(block, 1 + random_below(&state, random_below(&state, 8) == 0 ? 300 * MiB : 24 * MiB), streams[i % 5 == 0]);
    if (i % 40 == 39) {
      for (int k = 0; k < BLOCKS; k++) check_pattern(&blocks[k]);
      agree(exact);
      memprof_iteration("step");
    }
    if (i == 150) memprof_empty_cache(0);
  }
  for (int k = 0; k < BLOCKS; k++) end(&blocks[k]);
  memprof_empty_cache(0);
  begin(&blocks[0], 20 * MiB, NULL);  // the failure is over
  CHECK(blocks[0].start != NULL);
  end(&blocks[0]);
  agree(exact);
}

// A request during a capture maps one of two gaps, and finds no memory for the other one: what it has mapped, which nobody has used,
// goes at once. A later request of another stream gets it.
TEST(refused_in_a_capture, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  int (*take)(uint64_t *, size_t);
  GPU_CALL(take, "cuMemAlloc_v2");
  void *captured = gpu_stream(), *other = gpu_stream(), *graph;
  uint64_t others;
  struct block before, between, behind, refused, served;
  begin(&before, 4 * MiB, NULL), begin(&between, 4 * MiB, NULL), begin(&behind, 8 * MiB, NULL);
  end(&before), end(&behind);
  CHECK_EQUAL(memprof_empty_cache(0), 12 * MiB);
  end(&between);
  CHECK_EQUAL(take(&others, gpu_free() - 4 * MiB), 0);
  CHECK_EQUAL(cuStreamBeginCapture_v2(captured, 2), 0);
  begin(&refused, 16 * MiB, NULL);
  CHECK(refused.start == NULL);
  CHECK_EQUAL(gpu_free(), 4 * MiB);
  CHECK_EQUAL(cuStreamEndCapture(captured, &graph), 0);
  begin(&served, 8 * MiB, other);
  CHECK(served.start != NULL);
  CHECK_EQUAL(reserved(), 8 * MiB);
  trail_agrees();
}

int main(int argc, char **argv) {
  static const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, NULL};
  static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuCtxSynchronize", "cuEventRecord", "cuEventCreate", "cuEventQuery", "cuEventSynchronize", "cuCtxRecordEvent"};
  int failed = run_tests(argc, argv);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], "", POSITIONS, true, environment);
  return failed;
}
