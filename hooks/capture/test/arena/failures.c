// failures.c - what the driver refuses, and lacks. That it may refuse any one call of a job is tried in failure_pairs.c and trim.c.
#define _GNU_SOURCE
#include "agree.h"
#include "blocks.h"

static void agree(void) {
  trail_agrees();
  CHECK_EQUAL(GiB - gpu_free(), reserved());
}

// A driver that does not grant the flags we would like: memory without them is as good.
static void test_plain_handles(void) {
  gpu_start();
  CHECK(memprof_malloc(10 * MiB, 0, NULL) != NULL);
  agree();
}

// Unmapping does not wait for kernels: nothing may be unmapped where neither a fence nor a synchronisation tells that they are over.
TEST(no_unmap_without_synchronisation, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuCtxRecordEvent:1+=900,cuCtxSynchronize:1+=900") {
  gpu_start();
  void *block = memprof_malloc(64 * MiB, 0, NULL);
  memprof_free(block, 0, 0, NULL);
  const uint64_t before = gpu_free();
  CHECK_EQUAL(memprof_empty_cache(0), 0);
  CHECK_EQUAL(gpu_free(), before);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_UNMAP), 0);
}

// Memory that the driver refused to unmap, at once and by itself, lies in the way of what is mapped there later,
// whichever part of it is wanted first: nothing is refused for it.
TEST(refused_unmapping, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_OPTIONS", "handle=33554432,headroom=0", "MEMPROF_SIM_FAIL", "cuMemUnmap:1,cuMemUnmap:3") {
  gpu_start();
  struct block large, part, rest;
  begin(&large, 128 * MiB, NULL);
  end(&large);
  memprof_empty_cache(0);
  CHECK_EQUAL(GiB - gpu_free(), 32 * MiB);
  CHECK(fill(&part, 60 * MiB, NULL) && fill(&rest, 68 * MiB, NULL) && rest.start == part.start + part.bytes);
  end(&part), end(&rest);
  agree();
  memprof_empty_cache(0);
  CHECK_EQUAL(gpu_free(), GiB);
}

// Nor is anything left of a pool that has ended.
TEST(refused_unmapping_of_a_pool, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuMemUnmap:1") {
  gpu_start();
  memprof_pool_hold(0, 7, 0);
  memprof_free(memprof_malloc_in_pool(8 * MiB, 0, NULL, 7, 0), 0, 0, NULL);
  memprof_release_pool(0, 7, 0);
  CHECK_EQUAL(gpu_free(), GiB);
  agree();
}

// Work on the GPU has failed: what a request gets is that error, and it counts as no lack of memory. Free memory serves on.
TEST(fault_of_the_GPU, "MEMPROF_SIM_MEMORY", "1g") {
  gpu_start();
  void *block = memprof_malloc(64 * MiB, 0, NULL);
  memprof_free(block, 0, 0, NULL);
  gpu_fault(700);
  CHECK(memprof_malloc(60 * MiB, 0, NULL) == block);
  CHECK(memprof_malloc(600 * MiB, 0, NULL) == NULL);
  CHECK_EQUAL(memprof_oom_error(), 700);
  CHECK(strcmp(memprof_oom_message(), "GPU 0: CUDA error 700 for a request of 600.00 MiB; the request does not lack memory") == 0);
  CHECK_EQUAL(stats().ooms, 0);
  gpu_fault(0);
  CHECK(memprof_malloc(2 * GiB, 0, NULL) == NULL);
  CHECK_EQUAL(memprof_oom_error(), 0);
  CHECK(strncmp(memprof_oom_message(), "CUDA out of memory. Tried to allocate 2.00 GiB.", 47) == 0);
}

// No virtual memory management: the job runs on the runtime's own memory.
TEST(without_vmm, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuDeviceGetAttribute:1+=1") {
  gpu_start();
  void *block = memprof_malloc(10 * MiB, 0, NULL);
  CHECK(block != NULL);
  CHECK_EQUAL(GiB - gpu_free(), 10 * MiB);
  memprof_free(block, 0, 0, NULL);
  CHECK_EQUAL(gpu_free(), GiB);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)->requested, 10 * MiB);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_FREE), 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), 0);
}

TEST(peers, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_DEVICES", "2") {
  gpu_start();
  void *before = memprof_malloc(3 * MiB, 0, NULL);
  CHECK_EQUAL(gpu_access(before, 1), 0);
  CHECK(memprof_enable_peer(0, 1));
  CHECK_EQUAL(gpu_access(before, 1), 3);
  void *after = memprof_malloc(300 * MiB, 0, NULL);
  CHECK_EQUAL(gpu_access(after, 1), 3);
  CHECK_EQUAL(gpu_access(after, 0), 3);
}

// Device 9 does not exist: its access is refused, ours must not suffer from it.
TEST(peer_refused, "MEMPROF_SIM_MEMORY", "1g") {
  gpu_start();
  CHECK(!memprof_enable_peer(0, -1));
  memprof_enable_peer(0, 9);
  CHECK(memprof_malloc(3 * MiB, 0, NULL) != NULL);
  agree();
}

TEST(plain_handles_after_801, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuMemCreate:1=801") { test_plain_handles(); }
TEST(plain_handles_after_800_twice, "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_FAIL", "cuMemCreate:1=800,cuMemCreate:2=800") { test_plain_handles(); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
