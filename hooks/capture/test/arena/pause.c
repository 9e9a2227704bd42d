// pause.c - tags: paused and resumed at the same addresses, all or nothing.
#define _GNU_SOURCE
#include "calls.h"
#include "stats.h"
#include "tags.h"

enum { LARGE = 300 << 20, SMALL = 5 << 20 };

static const char *const weights[] = {"weights"}, *const cache[] = {"cache"}, *const both[] = {"weights", "cache"};

// The halves of a block hold a number and the next one.
static void fill_halves(const char *ptr, size_t bytes, int seed) { fill(ptr, bytes / 2, seed), fill(ptr + bytes / 2, bytes - bytes / 2, seed + 1); }

static void check_filled(const char *ptr, size_t bytes, int seed) {
  CHECK_EQUAL(at(ptr, 0), seed);
  CHECK_EQUAL(at(ptr, bytes / 2 - 1), seed);
  CHECK_EQUAL(at(ptr, bytes / 2), seed + 1);
  CHECK_EQUAL(at(ptr, bytes - 1), seed + 1);
}

TEST(memory, "MEMPROF_OPTIONS", "preset=classic") {
  gpu_start();
  char *kept = memprof_malloc(SMALL, 0, NULL), *a = take("cache", 0, LARGE), *b;
  CHECK_EQUAL(memprof_region_begin("cache", 0), MEMPROF_OK);
  b = memprof_malloc(SMALL, 0, gpu_stream());
  memprof_region_end();
  fill_halves(kept, SMALL, 7);
  const uint64_t before = gpu_free();
  const int64_t reserved = stats().reserved_bytes.current, live = stats().allocated_bytes.current, torch_bytes = stats().torch_bytes.current;
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(gpu_free(), before + LARGE + SMALL + MiB);  // to the granule
  CHECK(!try_fill(a, 1, 0) && !try_fill(b, 1, 0));
  CHECK_EQUAL(stats().reserved_bytes.current, reserved - LARGE - SMALL - (int64_t)MiB);
  CHECK_EQUAL(usage("cache").paused, LARGE + SMALL + MiB);
  CHECK_EQUAL(usage("cache").mapped, 0);
  CHECK_EQUAL(usage("cache").live, LARGE + SMALL + MiB);  // chunks: what is left of a granule is not split off
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(gpu_free(), before);
  CHECK_EQUAL(stats().reserved_bytes.current, reserved);
  CHECK_EQUAL(stats().allocated_bytes.current, live);
  CHECK_EQUAL(stats().torch_bytes.current, torch_bytes);
  fill_halves(a, LARGE, 1), fill_halves(b, SMALL, 3);
  check_filled(kept, SMALL, 7);
  check_filled(a, LARGE, 1);
}

static void fill_ends(const char *ptr, int seed) { fill_halves(ptr, SMALL, seed), fill_halves(ptr + 3 * LARGE - SMALL, SMALL, seed); }

// A block that is larger than a handle gets one of its own, so that a resume takes few calls; what is freed afterwards
// can be unmapped as before.
TEST(large_blocks, "MEMPROF_OPTIONS", "preset=classic") {
  gpu_start();
  char *small = take("cache", 0, SMALL), *large = take("cache", 0, 3 * LARGE), *last = take("cache", 0, 3 * LARGE);
  CHECK_EQUAL(stats().segment.current, 9);  // one, and four each
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(stats().segment.current, 3);
  fill_halves(small, SMALL, 1), fill_ends(large, 3), fill_ends(last, 5);
  check_filled(small, SMALL, 1), check_filled(large, SMALL, 3), check_filled(last + 3 * LARGE - SMALL, SMALL, 5);
  const uint64_t before = gpu_free();
  memprof_free(large, 0, 0, NULL);
  memprof_empty_cache(0);
  CHECK_EQUAL(gpu_free(), before + 3 * LARGE);
  for (int i = 0; i < 2; i++) {
    CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
    CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
    CHECK_EQUAL(stats().segment.current, 2);
  }
  fill_ends(last, 7);
}

// The driver refuses the first of two large handles: the block is mapped in smaller ones.
TEST(refused_large_handle, "MEMPROF_SIM_FAIL", "cuMemCreate:9") {
  gpu_start();
  char *a = take("cache", 0, 3 * LARGE), *b = take("cache", 0, 3 * LARGE);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(stats().segment.current, 5);
  fill_ends(a, 3), fill_ends(b, 5);
}

TEST(content, "MEMPROF_OPTIONS", "preset=classic") {
  gpu_start();
  char *a = take("weights", 1, LARGE), *gone = take("weights", 1, SMALL), *b = take("weights", 1, SMALL);
  fill_halves(a, LARGE, 1), fill_halves(b, SMALL, 5);
  memprof_free(gone, 0, 0, NULL);
  for (int i = 0; i < 3; i++) {
    CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
    CHECK_EQUAL(usage("weights").copied, LARGE + SMALL + MiB);
    CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
    check_filled(a, LARGE, 1), check_filled(b, SMALL, 5);
  }
}

// A kept copy is the content if the caller says so, and only for the same blocks.
TEST(kept) {
  gpu_start();
  char *a = take("weights", 1, SMALL);
  fill_halves(a, SMALL, 1);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 1), MEMPROF_OK);
  fill_halves(a, SMALL, 9);  // the caller breaks its word: what was kept comes back
  CHECK_EQUAL(memprof_pause(weights, 1, 1), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 1), MEMPROF_OK);
  check_filled(a, SMALL, 1);
  char *b = take("weights", 1, SMALL);
  fill_halves(a, SMALL, 20), fill_halves(b, SMALL, 30);
  CHECK_EQUAL(memprof_pause(weights, 1, 1), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
  check_filled(a, SMALL, 20), check_filled(b, SMALL, 30);
}

TEST(wrong) {
  gpu_start();
  static const char *const unknown[] = {"nobody"};
  CHECK_EQUAL(memprof_pause(unknown, 1, 0), MEMPROF_UNKNOWN_TAG);
  check_message("nobody");
  CHECK_EQUAL(memprof_pause(NULL, 0, 0), MEMPROF_WRONG_STATE);
  take("cache", 0, SMALL);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_WRONG_STATE);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_WRONG_STATE);
  take("weights", 0, SMALL);
  CHECK_EQUAL(memprof_pause(both, 2, 0), MEMPROF_WRONG_STATE);  // one of them is paused: neither moves
  CHECK_EQUAL(usage("weights").paused, 0);
  CHECK_EQUAL(memprof_pause(NULL, 0, 0), MEMPROF_OK);  // all that is not
  CHECK_EQUAL(memprof_resume(NULL, 0, 0), MEMPROF_OK);
}

TEST(graphs) {
  gpu_start();
  memprof_pool_hold(0, 3, 0);
  memprof_region_begin("cache", 0);
  char *a = memprof_malloc_in_pool(SMALL, 0, NULL, 3, 0);
  memprof_region_end();
  CHECK(a != NULL);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_NO_BACKUP);
  memprof_region_begin("cache", 1);
  memprof_region_end();
  fill_halves(a, SMALL, 4);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  check_filled(a, SMALL, 4);
}

// What is free in a graph's pool is what its kernels work in, whenever it is replayed.
TEST(graphs_free_memory) {
  gpu_start();
  memprof_pool_hold(0, 3, 0);
  memprof_region_begin("cache", 1);
  char *a = memprof_malloc_in_pool(SMALL, 0, NULL, 3, 0), *used = memprof_malloc_in_pool(LARGE, 0, NULL, 3, 0);
  memprof_region_end();
  memprof_free(used, 0, 0, NULL);
  fill_halves(a, SMALL, 4);
  const uint64_t before = gpu_free();
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK(!try_fill(used, LARGE, 1));
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(gpu_free(), before);
  fill_halves(used, LARGE, 1);
  check_filled(a, SMALL, 4);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  memprof_release_pool(0, 3, 0);  // no graph is left, and it need not come back
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  CHECK(!try_fill(used, LARGE, 1));
  check_filled(a, SMALL, 4);
}

TEST(while_paused) {
  gpu_start();
  char *a = take("cache", 0, LARGE), *b = take("cache", 0, SMALL);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  const uint64_t paused = gpu_free();
  memprof_free(a, 0, 0, NULL);
  char *c = take("cache", 0, SMALL);  // fresh memory, not under the paused blocks
  CHECK(c != NULL && (c >= a + LARGE || c + SMALL <= a) && c != b);
  fill_halves(c, SMALL, 2);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  fill_halves(b, SMALL, 8);
  check_filled(c, SMALL, 2), check_filled(b, SMALL, 8);
  CHECK_EQUAL(paused - gpu_free(), 2 * (SMALL + MiB));  // what was freed is not taken again
  struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_PAUSE), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_RESUME), 1);
  char *d = take("cache", 0, LARGE);
  fill_halves(d, LARGE, 3);
  check_filled(b, SMALL, 8);
}

TEST(nesting, "MEMPROF_OPTIONS", "preset=classic") {
  gpu_start();
  memprof_region_begin("weights", 0);
  memprof_region_begin("cache", 0);
  memprof_region_begin(NULL, 0);  // out of any region
  memprof_malloc(SMALL, 0, NULL);
  memprof_region_end();
  memprof_malloc(SMALL, 0, NULL);
  memprof_region_end();
  memprof_malloc(SMALL, 0, NULL);
  memprof_region_end();
  memprof_malloc(SMALL, 0, NULL);
  CHECK_EQUAL(usage("weights").live, SMALL + MiB);
  CHECK_EQUAL(usage("cache").live, SMALL + MiB);
  CHECK_EQUAL(stats().allocation.current, 4);
}

// Memory that another mapping keeps does not become free, and the pause says so.
TEST(memory_that_stays) {
  gpu_start();
  char *a = take("cache", 0, LARGE), name[128];
  CHECK(memprof_share(a, name, sizeof name) == 1);
  CHECK(memprof_open_shared(name, 0) != NULL);
  const uint64_t before = gpu_free();
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(gpu_free(), before);
  check_message("released 0.29 GiB, yet only 0.00 GiB more are free");
  const struct trail trail = trail_read(getpid(), 0);
  CHECK(strstr(trail_problems(&trail), "released 0.29 GiB, yet only 0.00 GiB more are free") != NULL);
}

TEST(no_memory, "MEMPROF_SIM_MEMORY", "1073741824", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0") {
  log_calls();
  gpu_start();
  char *a = take("cache", 0, LARGE), *b = take("weights", 1, SMALL);
  fill_halves(b, SMALL, 6);
  CHECK_EQUAL(memprof_pause(both, 2, 0), MEMPROF_OK);
  void *others = memprof_malloc(900 * MiB, 0, NULL);
  CHECK(others != NULL);
  const uint64_t before = gpu_free();
  const uint64_t made = calls_of("cuMemCreate");
  CHECK_EQUAL(memprof_resume(both, 2, 0), MEMPROF_NO_MEMORY);
  check_message("are needed");
  CHECK(made > 0);
  CHECK_EQUAL(calls_of("cuMemCreate"), made);  // it is not found out by mapping
  CHECK_EQUAL(gpu_free(), before);
  CHECK(!try_fill(a, 1, 0) && !try_fill(b, 1, 0));
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);  // one alone fits
  check_filled(b, SMALL, 6);
  memprof_free(others, 0, 0, NULL);
  memprof_empty_cache(0);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
}

// What other streams used is free once they are done: a resume that lacks memory unmaps it, though no request has asked since.
TEST(resume_beside_a_pending_block, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "preset=classic,headroom=0") {
  gpu_start();
  void *reader = gpu_stream(), *owner = gpu_stream();
  take("cache", 0, 512 * MiB);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  void *used = memprof_malloc(640 * MiB, 0, owner);
  CHECK(used != NULL);
  memprof_record_stream(used, reader);
  gpu_hold(reader);
  memprof_free(used, 0, 0, NULL);
  gpu_let_go(reader);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
