// unplaced.c - growth pages: free pages serve other addresses while their old mappings stay.
#define _GNU_SOURCE
#include <unistd.h>

#include "agree.h"
#include "gpu.h"
#include "memprof.h"
#include "positions.h"
#include "random.h"

#define CALLS "build/asan/unplaced.log"  // of the simulated driver
#define PAGES "preset=compact,headroom=0"

enum { BLOCKS = 24, OPERATIONS = 240, POSITIONS = 24, STRIDE = 128 << 10 };

struct block {
  unsigned char *start;
  uint64_t bytes;
  unsigned char pattern;
};

static void fill(struct block *block, uint64_t bytes, void *stream, unsigned char pattern) {
  *block = (struct block){memprof_malloc(bytes, 0, stream), bytes, pattern};
  for (uint64_t i = 0; block->start != NULL && i < bytes; i += STRIDE) block->start[i] = pattern;
  if (block->start != NULL) block->start[bytes - 1] = pattern;
}

// The block is as it was filled: nobody else had one of its pages.
static void check_pattern(const struct block *block) {
  if (block->start == NULL) return;
  for (uint64_t i = 0; i < block->bytes; i += STRIDE) CHECK_EQUAL(block->start[i], block->pattern);
  CHECK_EQUAL(block->start[block->bytes - 1], block->pattern);
}

static void empty(struct block *block) {
  check_pattern(block);
  memprof_free(block->start, 0, 0, NULL);
  block->start = NULL;
}

static uint64_t reserved(void) {
  struct memprof_stats stats;
  memprof_get_stats(0, &stats);
  return (uint64_t)stats.reserved_bytes.current;
}

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
    fill(&small, 8 * MiB, NULL, 1), fill(&between, 4 * MiB, NULL, 2);
    const unsigned char *first = small.start;
    empty(&small);
    fill(&large, 12 * MiB, NULL, 3);
    CHECK(large.start > first);
    CHECK_EQUAL(reserved(), 16 * MiB);
    agree(true);
    check_pattern(&between);
    empty(&large), empty(&between);
    memprof_iteration("step");
  }
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_MAP_FAILED) + trail_number(&trail, MEMPROF_GROW_FAILED), 0);
}

static int calls_of(const char *name) {
  char line[512];
  int count = 0;
  FILE *log = fopen(CALLS, "r");
  CHECK(log != NULL);
  while (fgets(line, sizeof line, log) != NULL) count += strstr(line, name) != NULL;
  fclose(log);
  return count;
}

// A request that is mapped on what others left does not ask the driver how much memory is free: it takes none.
TEST(unplaced_handles_ask_for_no_free_memory, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_LOG", CALLS) {
  gpu_start();
  int asked = 0;
  for (int i = 0; i < 6; i++) {
    struct block small, between, large;
    fill(&small, 8 * MiB, NULL, 1), fill(&between, 4 * MiB, NULL, 2);
    empty(&small);
    fill(&large, 12 * MiB, NULL, 3);
    if (i == 0) asked = calls_of("cuMemGetInfo");
    empty(&large), empty(&between);
    memprof_iteration("step");
  }
  CHECK(asked > 0);
  CHECK_EQUAL(calls_of("cuMemGetInfo"), asked);
  unlink(CALLS);
}

// What was unplaced is given back with all its mappings.
TEST(empty_cache, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  struct block small, between, large;
  fill(&small, 8 * MiB, NULL, 1), fill(&between, 4 * MiB, NULL, 2);
  empty(&small);
  fill(&large, 12 * MiB, NULL, 3);
  empty(&large);
  CHECK_EQUAL(memprof_empty_cache(0), 12 * MiB);
  agree(true);
  fill(&small, 8 * MiB, NULL, 4), fill(&large, 12 * MiB, NULL, 5);
  check_pattern(&between), check_pattern(&small);
  empty(&small), empty(&large), empty(&between);
  memprof_empty_cache(0);
  CHECK_EQUAL(gpu_free(), GiB);
}

// A peer that gets access while pages are unplaced has it when they return to their old mappings.
TEST(peers, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_DEVICES", "2") {
  gpu_start();
  struct block small, between, large;
  fill(&small, 8 * MiB, NULL, 1), fill(&between, 4 * MiB, NULL, 2);
  empty(&small);
  fill(&large, 12 * MiB, NULL, 3);
  CHECK(memprof_enable_peer(0, 1));
  CHECK_EQUAL(gpu_access(large.start, 1), 3);
  empty(&large);
  fill(&small, 8 * MiB, NULL, 4);
  CHECK_EQUAL(gpu_access(small.start, 1), 3);
}

// Random blocks on a card that they sometimes exceed, on two streams. The driver may refuse any one call.
TEST(scenario, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_FAIL", "none:1") {
  gpu_start();
  const char *failing = getenv("MEMPROF_SIM_FAIL");
  const bool exact = strncmp(failing, "cuMemUnmap", 10) != 0 && strncmp(failing, "cuMemRelease", 12) != 0;
  void *streams[] = {NULL, gpu_stream()};
  struct block blocks[BLOCKS] = {0};
  uint64_t state = 7;
  for (int i = 0; i < OPERATIONS; i++) {
    struct block *block = &blocks[random_below(&state, BLOCKS)];
    if (block->start != NULL)
      empty(block);
    else
      fill(block, 1 + random_below(&state, random_below(&state, 8) == 0 ? 300 * MiB : 24 * MiB), streams[i % 5 == 0], (unsigned char)i);
    if (i % 40 == 39) {
      for (int k = 0; k < BLOCKS; k++) check_pattern(&blocks[k]);
      agree(exact);
      memprof_iteration("step");
    }
    if (i == 150) memprof_empty_cache(0);
  }
  for (int k = 0; k < BLOCKS; k++) empty(&blocks[k]);
  memprof_empty_cache(0);
  fill(&blocks[0], 20 * MiB, NULL, 9);  // the failure is over
  CHECK(blocks[0].start != NULL);
  empty(&blocks[0]);
  agree(exact);
}

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);

// A request during a capture maps one of two gaps, and finds no memory for the other one: what it has mapped, which nobody has used,
// goes at once. A later request of another stream gets it.
TEST(refused_in_a_capture, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  int (*take)(uint64_t *, size_t);
  GPU_CALL(take, "cuMemAlloc_v2");
  void *captured = gpu_stream(), *other = gpu_stream(), *graph;
  uint64_t others;
  struct block before, between, behind, refused, served;
  fill(&before, 4 * MiB, NULL, 1), fill(&between, 4 * MiB, NULL, 2), fill(&behind, 8 * MiB, NULL, 3);
  empty(&before), empty(&behind);
  CHECK_EQUAL(memprof_empty_cache(0), 12 * MiB);
  empty(&between);
  CHECK_EQUAL(take(&others, gpu_free() - 4 * MiB), 0);
  CHECK_EQUAL(cuStreamBeginCapture_v2(captured, 2), 0);
  fill(&refused, 16 * MiB, NULL, 4);
  CHECK(refused.start == NULL);
  CHECK_EQUAL(gpu_free(), 4 * MiB);
  CHECK_EQUAL(cuStreamEndCapture(captured, &graph), 0);
  fill(&served, 8 * MiB, other, 5);
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
