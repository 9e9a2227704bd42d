// registered.c - memory that others know by its physical pages: what requests, pauses and the end of pools do about it.
#define _GNU_SOURCE
#include "arena/registered.h"
#include "gpu.h"
#include "stats.h"

#define PAGES "preset=compact,headroom=0"

enum { POOL = 7 };

static const struct registration_key key = {REGISTERED_NETWORK, 1, 2}, handle = {REGISTERED_RETAINED, 3, 0};

// Pages that are not registered are taken in place of those that are.
TEST(others_are_taken, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  void *first = memprof_malloc(8 * MiB, 0, NULL), *gap = memprof_malloc(4 * MiB, 0, NULL), *second = memprof_malloc(8 * MiB, 0, NULL);
  void *last = memprof_malloc(4 * MiB, 0, NULL);
  CHECK(registered_add(key, (uintptr_t)second, 8 * MiB, "test"));
  memprof_free(first, 0, 0, NULL), memprof_free(second, 0, 0, NULL);
  CHECK_EQUAL(audited_bytes(), 24 * MiB);
  memprof_malloc(12 * MiB, 0, NULL);  // best fit would take the second's pages, the last by address
  CHECK_EQUAL(audited_bytes(), 28 * MiB);
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  memset(second, 1, 8 * MiB);
  CHECK(!registered_remove(handle) && registered_remove(key) && !registered_remove(key));
  CHECK_EQUAL(memprof_empty_cache(0), 8 * MiB);
  memprof_free(gap, 0, 0, NULL), memprof_free(last, 0, 0, NULL);
}

TEST(not_ours, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  gpu_start();
  CHECK(!registered_add(key, 4096, 8 * MiB, "test"));
  CHECK(!registered_add(key, (uintptr_t)&key, UINT64_MAX, "test"));
  const uint64_t block = (uintptr_t)memprof_malloc(8 * MiB, 0, NULL);
  CHECK(!registered_add(key, block, UINT64_MAX, "test"));
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_REGISTER), 0);
}

// What will be deregistered keeps its tag resident; what is another process's for good does not.
TEST(pause, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) {
  const char *const tags[] = {"weights"};
  gpu_start();
  CHECK_EQUAL(memprof_region_begin("weights", 0), MEMPROF_OK);
  void *block = memprof_malloc(8 * MiB, 0, NULL);
  memprof_region_end();
  registered_keep((uintptr_t)block, 8 * MiB, "test");
  CHECK(registered_add(key, (uintptr_t)block, 8 * MiB, "test"));
  CHECK_EQUAL(memprof_pause(tags, 1, 0), MEMPROF_WRONG_STATE);
  CHECK(strstr(memprof_pause_message(), "registered") != NULL);
  memset(block, 1, 8 * MiB);
  CHECK(registered_remove(key));
  CHECK_EQUAL(memprof_pause(tags, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(tags, 1, 0), MEMPROF_OK);
}

// A pool ends when the last registration that ends has.
static void check_pool(void) {
  gpu_start();
  const uint64_t before = gpu_free();
  memprof_pool_hold(0, POOL, 0);
  void *block = memprof_malloc_in_pool(8 * MiB, 0, NULL, POOL, 0);
  CHECK(registered_add(key, (uintptr_t)block, 8 * MiB, "test"));
  registered_keep((uintptr_t)block, 32 * MiB, "test");
  memprof_free(block, 0, 0, NULL);
  memprof_release_pool(0, POOL, 0);
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  CHECK_EQUAL(audited_bytes(), before - gpu_free());
  memset(block, 1, 8 * MiB);
  CHECK(registered_remove(key));
  memprof_empty_cache(0);
  CHECK_EQUAL(gpu_free(), before);
  CHECK_EQUAL(audited_bytes(), 0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_REGISTER), trail_number(&trail, MEMPROF_DEREGISTER));
}

TEST(pool, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", PAGES) { check_pool(); }
TEST(pool_classic, "MEMPROF_SIM_MEMORY", "1g") { check_pool(); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
