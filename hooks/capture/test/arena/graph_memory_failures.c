// graph_memory_failures.c - the driver refuses calls of a graph memory, at each position of a
// scenario that opens, grows and releases shapes. Requests and shapes may fail for it; nothing
// else may be wrong afterwards.
#define _GNU_SOURCE
#include "positions.h"
#include "shapes.h"

enum { POSITIONS = 32 };

// The driver refuses one call, or all from one on: requests and shapes may fail, nothing else.
static void agree(bool exact) {
  uint64_t most = 0;
  for (uint64_t shape = 1; shape <= 4; shape++) {
    const uint64_t bytes = memprof_graph_extent(0, 0, shape);
    if (bytes > most) most = bytes;
  }
  if (exact) CHECK_EQUAL(usage().physical, most);
  CHECK(usage().physical >= most);
  audited(exact);
}

static void work(uint64_t shape, uint64_t bytes, bool exact) {
  if (try_shape(shape) != 0) {
    CHECK(memprof_graph_message()[0] != '\0');
    agree(exact);
    return;
  }
  unsigned char *ptr = memprof_malloc_in_pool(bytes, 0, NULL, 0, shape);
  if (ptr != NULL) {
    ptr[0] = ptr[bytes - 1] = (unsigned char)shape;  // it is there in full
    CHECK_EQUAL(ptr[bytes - 1], shape);
    drop(ptr);
  }
  agree(exact);
}

static void scenario(void) {
  const char *failing = getenv("MEMPROF_SIM_FAIL");
  const bool onwards = strchr(failing, '+') != NULL;
  const bool exact = strstr(failing, "cuMemUnmap") == NULL && strstr(failing, "cuMemRelease") == NULL &&
                     strstr(failing, "cuMemGetInfo") == NULL && strstr(failing, "cuCtxSynchronize") == NULL;
  gpu_start();
  memory = memprof_graph_memory_open(0, 64 * MiB);
  if (memory == 0) return;
  work(1, 6 * MiB, exact);
  work(2, 10 * MiB, exact);
  work(3, 2 * MiB, exact);
  memprof_release_pool(0, 0, 2);
  agree(exact);
  work(4, 8 * MiB, exact);
  for (uint64_t shape = 1; shape <= 4; shape++) memprof_release_pool(0, 0, shape);
  memprof_empty_cache(0);
  agree(exact);
  if (onwards) return;
  // The failure is over: shapes are served, and what could not be released is released.
  const uint64_t before = usage().ranges;
  if (try_shape(1) != 0) open_shape(1);
  void *ptr = memprof_malloc_in_pool(4 * MiB, 0, NULL, 0, 1);
  if (ptr == NULL) ptr = take(1, 4 * MiB);
  agree(exact);
  drop(ptr);
  CHECK_EQUAL(extent(1), 4 * MiB);
  memprof_release_pool(0, 0, 1);
  memprof_empty_cache(0);
  CHECK(usage().ranges <= before);
  if (strstr(failing, "cuMemRelease") != NULL) return;
  CHECK_EQUAL(usage().physical, 0);
  if (strstr(failing, "cuMemGetInfo") == NULL) CHECK_EQUAL(gpu_free(), GiB);
}

// The first growth fails, and the driver does not take back what it had mapped already: that memory is
// no part of the store, and must not stay where its pages will be when the request tries again.
TEST(remains_of_a_failed_growth, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuMemSetAccess:2,cuMemUnmap:1,cuMemUnmap:2,cuMemUnmap:3") {
  begin(0);
  open_shape(1), open_shape(2);
  unsigned char *one = take(1, 3 * MiB), *two = take(2, 3 * MiB);
  for (uint64_t i = 0; i < 3 * MiB; i += 4096) one[i] = (unsigned char)(i >> 12);
  for (uint64_t i = 0; i < 3 * MiB; i += 4096) CHECK_EQUAL(two[i], (unsigned char)(i >> 12));
  audited(true);
}

TEST(scenario, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "none:1") { scenario(); }

int main(int argc, char **argv) {
  static const char *const environment[] = {"MEMPROF_SIM_MEMORY", "1g", NULL};
  static const char *const calls[] = {"cuMemAddressReserve", "cuMemCreate",  "cuMemMap",     "cuMemSetAccess",
                                      "cuMemGetInfo",        "cuMemUnmap",   "cuMemRelease", "cuCtxSynchronize",
                                      "cuMemAddressFree"};
  int failed = run_tests(argc, argv);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    failed |= !each_position(calls[i], "", POSITIONS, false, environment);
    failed |= !each_position(calls[i], "+", POSITIONS, false, environment);
  }
  // What was done cannot be undone at once.
  failed |= !each_position("cuMemMap", ",cuMemUnmap:1", POSITIONS, false, environment);
  failed |= !each_position("cuMemSetAccess", ",cuMemUnmap:1", POSITIONS, false, environment);
  return failed;
}
