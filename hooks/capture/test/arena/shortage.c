// shortage.c - a device that is short of memory: pages go where they are needed, and nothing is refused
// before the pages that blocks touch exceed the device.
#define _GNU_SOURCE
#include "agree.h"
#include "blocks.h"
#include "positions.h"

enum { BLOCKS = 12, POSITIONS = 48 };

// All of the card: 20 MiB in the main arena, then 44 in one arena after the other.
TEST(pages_wander, "MEMPROF_SIM_MEMORY", "64m") {
  gpu_start();
  void *stream = gpu_stream();
  struct block kept, large, small;
  CHECK(fill(&kept, 20 * MiB, NULL));
  CHECK(fill(&large, 44 * MiB, stream));
  for (int i = 0; i < 4; i++) {
    end(&large);
    CHECK(fill(&large, 44 * MiB, i % 2 == 0 ? NULL : stream));
    CHECK_EQUAL(gpu_free(), 0);
  }
  CHECK(!fill(&small, 1, NULL));
  CHECK_EQUAL(stats().ooms, 1);
  end(&large), end(&kept);
  trail_agrees();
}

// A free chunk whose middle is unmapped: a request gets no more than either end of it.
TEST(largest_piece, "MEMPROF_SIM_MEMORY", "16m") {
  gpu_start();
  void *stream = gpu_stream();
  struct block before, between, behind;
  CHECK(fill(&before, 2560 * KiB, stream) && fill(&between, 9 * MiB, stream) && fill(&behind, 2560 * KiB, stream));
  end(&between);
  CHECK(memprof_malloc(12 * MiB, 0, stream) == NULL);
  CHECK(strstr(memprof_oom_message(), "3.00 MiB of the request's arena are free, the largest chunk 1.50 MiB (capacity)") != NULL);
  end(&before), end(&behind);
  trail_agrees();
}

// A page is lacking that the slack of a block has.
TEST(slack_is_freed, "MEMPROF_SIM_MEMORY", "16m") {
  gpu_start();
  struct block first, second, third;
  CHECK(fill(&first, 14 * MiB, NULL));
  end(&first);
  CHECK(fill(&first, 8 * MiB, NULL));
  CHECK_EQUAL(stats().allocated_bytes.current, 14 * MiB);
  CHECK(fill(&second, 8 * MiB, NULL));
  CHECK_EQUAL(stats().allocated_bytes.current, 16 * MiB);
  struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_SHORTAGE), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_SHRINK), 1);
  const struct memprof_record *shrunk = trail_event(&trail, MEMPROF_SHRINK, 0);
  CHECK_EQUAL(shrunk->addr, (uintptr_t)first.start);
  CHECK_EQUAL(shrunk->requested, 8 * MiB);
  CHECK_EQUAL(shrunk->provided, 8 * MiB);
  end(&first);
  CHECK(fill(&third, 8 * MiB - 256, gpu_stream()));  // a new arena learns of the shortage, too
  trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_SHORTAGE), 2);
  end(&second), end(&third);
  trail_agrees();
}

// Unmapping needs a wait, which would end the capture: the request fails, and the capture does not.
TEST(nothing_is_unmapped_in_a_capture, "MEMPROF_SIM_MEMORY", "64m") {
  gpu_start();
  void *stream = gpu_stream(), *graph;
  struct block free_one, wanted;
  CHECK(fill(&free_one, 40 * MiB, NULL));
  end(&free_one);
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
  CHECK(!fill(&wanted, 30 * MiB, stream));
  CHECK(fill(&wanted, 24 * MiB, stream));  // what is free of the device
  CHECK_EQUAL(cuStreamEndCapture(stream, &graph), 0);
  struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_UNMAP), 0);
  end(&wanted);
  CHECK(fill(&wanted, 64 * MiB, stream));
  end(&wanted);
  trail_agrees();
}

// A limit counts as the device does, also one that is below what is mapped.
TEST(limit, "MEMPROF_SIM_MEMORY", "8g") {
  gpu_start();
  struct block kept, large, small;
  CHECK(fill(&kept, 20 * MiB, NULL));
  CHECK(fill(&large, 100 * MiB, gpu_stream()));
  end(&large);
  memprof_set_limit(0, 64 * MiB);
  CHECK(fill(&large, 44 * MiB, NULL));
  CHECK_EQUAL(stats().reserved_bytes.current, 64 * MiB);
  CHECK(!fill(&small, 1, NULL));
  end(&large), end(&kept);
  trail_agrees();
}

// Handles that were created for a block of so many bytes.
static int64_t handles_of(void **block, uint64_t bytes) {
  const int64_t before = stats().device_allocs;
  *block = memprof_malloc(bytes, 0, NULL);
  CHECK(*block != NULL);
  return stats().device_allocs - before;
}

static void empty_cache_of(void *block) {
  memprof_free(block, 0, 0, NULL);
  memprof_empty_cache(0);
}

// Handles are of a page while memory is short, but for a request of a GiB: until the program empties the cache and no more is mapped than is free.
TEST(handles_after_a_shortage, "MEMPROF_SIM_MEMORY", "64g") {
  gpu_start();
  void *large, *small;
  CHECK(handles_of(&large, 36 * GiB) <= 2048);
  CHECK(memprof_malloc(36 * GiB, 0, NULL) == NULL);
  empty_cache_of(large);
  CHECK(handles_of(&large, 36 * GiB) <= 2048);
  CHECK(memprof_malloc(36 * GiB, 0, NULL) == NULL);
  CHECK_EQUAL(handles_of(&small, GiB), 64);
  empty_cache_of(small);
  CHECK_EQUAL(handles_of(&small, GiB / 2), 256);  // 36 of 64 GiB are mapped
  memprof_free(small, 0, 0, NULL);
  empty_cache_of(large);
  CHECK(handles_of(&small, GiB) <= 128);
  trail_agrees();
}

// A large map has few handles under compact, too. Such pages move to no other address, and are unmapped as any when memory is short.
TEST(large_map_under_compact, "MEMPROF_SIM_MEMORY", "64g", "MEMPROF_OPTIONS", "preset=compact") {
  gpu_start();
  void *large, *small, *larger;
  CHECK_EQUAL(handles_of(&large, 36 * GiB), 36 * 64);
  CHECK_EQUAL(handles_of(&small, GiB), 256);
  memprof_free(large, 0, 0, NULL);
  CHECK_EQUAL(handles_of(&larger, 38 * GiB), 38 * 256);
  trail_agrees();
}

// A program that allocates its whole limit, beside a block that it has, is refused at once: no page is mapped for it, though
// all but a few of the addresses are a free chunk's whose pages were unmapped. Neither that nor a request beyond the device begins a shortage.
static void beyond_the_limit(void) {
  gpu_start();
  void *stream = gpu_stream();
  struct block kept, all;
  CHECK(fill(&kept, 1 * MiB, NULL));
  memprof_set_limit(0, 64 * MiB);
  CHECK(fill(&all, 60 * MiB, stream));
  end(&all);
  memprof_empty_cache(0);
  const int64_t before = stats().device_allocs;
  CHECK(!fill(&all, 64 * MiB, stream));
  CHECK_EQUAL(stats().device_allocs, before);
  CHECK(fill(&all, 60 * MiB, stream));
  end(&all), memprof_set_limit(0, 0);
  CHECK(!fill(&all, 9 * GiB, stream));
  const struct trail trail = trail_agrees();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_SHORTAGE), 0);
  CHECK(fill(&all, 64 * MiB, stream));
  end(&all), end(&kept);
}

TEST(beyond_the_limit_under_classic, "MEMPROF_SIM_MEMORY", "8g") { beyond_the_limit(); }
TEST(beyond_the_limit_under_compact, "MEMPROF_SIM_MEMORY", "8g", "MEMPROF_OPTIONS", "preset=compact") { beyond_the_limit(); }

// A driver call fails, once. A request may fail for it; nothing else may be wrong, and what is free at the
// end can be had.
TEST(scenario, "MEMPROF_SIM_MEMORY", "32m", "MEMPROF_SIM_FAIL", "none:1") {
  gpu_start();
  void *streams[] = {NULL, gpu_stream()};
  struct block blocks[BLOCKS] = {0};
  for (uint64_t i = 0; i < 40; i++) {
    struct block *block = &blocks[i * 7 % BLOCKS];
    if (block->start != NULL)
      end(block);
    else
      fill(block, (1 + i * 5 % 11) * MiB + i * 12345, streams[i % 2]);
  }
  for (int i = 0; i < BLOCKS; i++) end(&blocks[i]);
  fill(&blocks[0], 16 * MiB, streams[1]);
  end(&blocks[0]);
  CHECK(fill(&blocks[0], 16 * MiB, NULL) || fill(&blocks[0], 16 * MiB, NULL));  // the call may fail only now
  end(&blocks[0]);
  struct trail trail = trail_agrees();
  CHECK(trail_number(&trail, MEMPROF_SHORTAGE) > 0);
}

int main(int argc, char **argv) {
  static const char *const environment[] = {"MEMPROF_SIM_MEMORY", "32m", NULL};
  static const char *const calls[] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap",     "cuMemSetAccess",
                                      "cuMemGetInfo",        "cuMemUnmap",  "cuMemRelease", "cuCtxSynchronize"};
  int failed = run_tests(argc, argv);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) failed |= !each_position(calls[i], "", POSITIONS, false, environment);
  return failed;
}
