// pause_odds.c - pauses and resumes under odd circumstances: what they say, and what is left.
#define _GNU_SOURCE
#include <pthread.h>

#include "device/host.h"
#include "stats.h"
#include "tags.h"

#define SMALL_CARD "MEMPROF_SIM_MEMORY", "1073741824", "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0"

static const char *const weights[] = {"weights"}, *const cache[] = {"cache"}, *const both[] = {"weights", "cache"};

// Blocks with unmapped memory between them do not take a slab each.
TEST(pieces, "MEMPROF_OPTIONS", "backup_limit=134217728", "MEMPROF_SIM_FAIL", "cuMemHostAlloc:1+") {
  ONE_THREAD();
  gpu_start();
  char *blocks[80];
  for (int i = 0; i < 80; i++) blocks[i] = take("weights", 1, 2 * MiB);
  for (int i = 0; i < 80; i += 2) memprof_free(blocks[i], 0, 0, NULL);
  for (int i = 1; i < 80; i += 2) fill(blocks[i], 2 * MiB, i);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);  // 80 MiB in two slabs
  CHECK_EQUAL(usage("weights").copied, 80 * MiB);
  for (int i = 1; i < 80; i += 4) memprof_free(blocks[i], 0, 0, NULL);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
  for (int i = 3; i < 80; i += 4) CHECK(at(blocks[i], 0) == i && at(blocks[i], 2 * MiB - 1) == i);
}

TEST(backup_limit, "MEMPROF_OPTIONS", "backup_limit=134217728") {
  ONE_THREAD();
  gpu_start();
  char *a = take("weights", 1, 100 * MiB);
  take("cache", 0, 10 * MiB);
  fill(a, 100 * MiB, 1);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 1), MEMPROF_OK);
  take("cache", 1, 100 * MiB);
  const uint64_t before = gpu_free();
  CHECK_EQUAL(memprof_pause(both, 2, 1), MEMPROF_NO_HOST_MEMORY);
  check_message("copies of 0.11 GiB: 0.12 GiB are pinned, 0.12 GiB of them in use, and the backup limit is 0.12 GiB");
  CHECK_EQUAL(gpu_free(), before);
  CHECK_EQUAL(at(a, 100 * MiB - 1), 1);
  CHECK_EQUAL(usage("weights").copied, 100 * MiB);  // what was kept before is kept
  CHECK_EQUAL(usage("cache").copied, 0);
  uint64_t kept, used;
  host_usage(&kept, &used);
  CHECK(kept == 128 * MiB && used == 128 * MiB);
}

TEST(copy_fails, "MEMPROF_SIM_FAIL", "cuMemcpyDtoHAsync:1=999") {
  gpu_start();
  fill(take("weights", 1, MiB), MiB, 1);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_DEVICE_FAILED);
  check_message("could not be copied to the host: nothing was paused");
}

// An unmapping that is refused undoes what was unmapped, and leaves kept copies.
TEST(kept_copies, "MEMPROF_SIM_FAIL", "cuMemUnmap:2=999") {
  gpu_start();
  fill(take("weights", 1, MiB), MiB, 1);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 1), MEMPROF_OK);
  CHECK_EQUAL(memprof_pause(weights, 1, 1), MEMPROF_DEVICE_FAILED);
  check_message("nothing was paused");
  CHECK(usage("weights").copied > 0);
}

// What is asked for next does not lie in what is not mapped, though it is free there. As soon as the
// driver maps that again, all is as before the pause.
TEST(not_undone, "MEMPROF_SIM_FAIL", "cuMemUnmap:2=999,cuMemMap:4=999,cuMemMap:5=999") {
  ONE_THREAD();
  gpu_start();
  char *a = take("weights", 0, 300 * MiB), *b = take("weights", 0, 20 * MiB);
  fill(a, 300 * MiB, 1), fill(b, 20 * MiB, 2);
  memprof_free(a, 0, 0, NULL);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_DEVICE_FAILED);
  check_message("0.25 GiB that were unmapped could not be mapped again");
  const uint64_t before = gpu_free();
  char *c = take("weights", 0, 100 * MiB);
  CHECK(c < a || c >= a + 320 * MiB);
  fill(c, 100 * MiB, 3);
  CHECK_EQUAL(gpu_free(), before - 100 * MiB);
  CHECK_EQUAL(usage("weights").mapped, 420 * MiB);
  char *d = take("weights", 0, 250 * MiB);  // the driver does not refuse any more
  CHECK(d == a);
  fill(d, 250 * MiB, 4);
  CHECK_EQUAL(gpu_free(), before - 100 * MiB);
  CHECK_EQUAL(at(b, 20 * MiB - 1), 2);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(gpu_free(), before + 320 * MiB);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
  fill(b, 20 * MiB, 5), fill(c, 100 * MiB, 6), fill(d, 250 * MiB, 7);
}

// Nor is anything copied from what is not mapped: a card would be of no more use behind that.
TEST(not_undone_is_not_copied, "MEMPROF_SIM_FAIL", "cuMemUnmap:2=999,cuMemMap:3=999,cuMemMap:4=999") {
  ONE_THREAD();
  gpu_start();
  char *a = take("weights", 1, 300 * MiB);
  fill(a, 300 * MiB, 1);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_DEVICE_FAILED);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_DEVICE_FAILED);
  check_message("0.25 GiB of the tag \"weights\" are not mapped since a pause failed");
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(at(a, 0), 1);
  CHECK_EQUAL(at(a, 300 * MiB - 1), 1);
}

// A block that other streams used is free at once if it is freed while paused, and is counted once.
TEST(other_streams) {
  gpu_start();
  void *side = gpu_stream();
  char *a = take("cache", 0, 10 * MiB), *b = take("cache", 0, 10 * MiB);
  memprof_record_stream(a, side);
  memprof_record_stream(b, side);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  memprof_free(a, 0, 0, NULL);
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(usage("cache").mapped, 10 * MiB);
  CHECK_EQUAL(stats().allocation.current, 1);
  memprof_free(b, 0, 0, NULL);
  memprof_empty_cache(0);
  CHECK_EQUAL(stats().allocation.current, 0);
  CHECK_EQUAL(stats().active.current, 0);
  CHECK_EQUAL(stats().allocated_bytes.current, 0);
  CHECK_EQUAL(stats().active_bytes.current, 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
}

// The number of arenas for requests under paused tags stays bounded.
TEST(naps) {
  ONE_THREAD();
  gpu_start();
  char *a = take("cache", 0, 10 * MiB);
  for (int i = 0; i < 50; i++) {
    CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
    memprof_free(take("cache", 0, 10 * MiB), 0, 0, NULL);
    if (i % 2 == 0) CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_WRONG_STATE);
    memprof_free(take("cache", 0, 10 * MiB), 0, 0, NULL);
    CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_OK);
    fill(a, 10 * MiB, i);
  }
  CHECK_EQUAL(usage("cache").mapped, 10 * MiB);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ARENA), 76);  // of 76 each but one has ended
  CHECK_EQUAL(trail_number(&trail, MEMPROF_POOL_RELEASE), 75);
}

TEST(pools) {
  gpu_start();
  memprof_pool_hold(0, 3, 0);
  memprof_region_begin("cache", 1);
  char *a = memprof_malloc_in_pool(MiB, 0, NULL, 3, 0);
  memprof_region_end();
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(cache, 1, 1), MEMPROF_OK);
  memprof_free(a, 0, 0, NULL);
  memprof_release_pool(0, 3, 0);
  uint64_t kept, used;
  host_usage(&kept, &used);
  CHECK_EQUAL(used, 0);
}

TEST(states) {
  gpu_start();
  memprof_region_begin("cache", 0);
  memprof_region_end();
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_WRONG_STATE);
  check_message("the tag \"cache\" has no memory");
  CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_WRONG_STATE);
  check_message("the tag \"cache\" is not paused");
  take("cache", 0, MiB);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_WRONG_STATE);
  check_message("the tag \"cache\" is paused already");
}

// The message counts what is free without what the resume had taken before it failed.
TEST(the_rest, SMALL_CARD) {
  gpu_start();
  take("weights", 0, 300 * MiB), take("cache", 0, 400 * MiB);
  CHECK_EQUAL(memprof_pause(both, 2, 0), MEMPROF_OK);
  CHECK(memprof_malloc(128 * MiB, 0, NULL) != NULL);
  take("gradients", 0, 256 * MiB);
  const uint64_t before = gpu_free();
  const int64_t reserved = stats().reserved_bytes.current;
  CHECK_EQUAL(memprof_resume(both, 2, 0), MEMPROF_NO_MEMORY);
  char wanted[300];
  snprintf(wanted, sizeof wanted, "on GPU 0: 0.68 GiB are needed and %.2f GiB free; others use %.2f GiB, the tag gradients 0.25 GiB, requests of no tag 0.12 GiB",
           (double)before / GiB, (double)(GiB - before - 384 * MiB) / GiB);
  check_message(wanted);
  CHECK_EQUAL(gpu_free(), before);
  CHECK_EQUAL(stats().reserved_bytes.current, reserved);
}

// Of two cards the one is named that lacks memory, and the other is left as it was.
TEST(second_card, SMALL_CARD, "MEMPROF_SIM_DEVICES", "2") {
  gpu_start();
  CHECK_EQUAL(memprof_region_begin("weights", 0), MEMPROF_OK);
  CHECK(memprof_malloc(300 * MiB, 0, NULL) != NULL && memprof_malloc(200 * MiB, 1, NULL) != NULL);
  memprof_region_end();
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  char *others = memprof_malloc(900 * MiB, 1, NULL);
  CHECK(others != NULL);
  const uint64_t before = gpu_free();
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_NO_MEMORY);
  check_message("on GPU 1: 0.20 GiB are needed and 0.12 GiB free");
  CHECK_EQUAL(gpu_free(), before);
  memprof_free(others, 0, 1, NULL);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(usage("weights").mapped, 500 * MiB);
}

// Free memory of other arenas is unmapped before a resume fails.
TEST(idle, SMALL_CARD) {
  ONE_THREAD();
  gpu_start();
  char *a = take("weights", 1, 300 * MiB);
  fill(a, 300 * MiB, 3);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  memprof_free(memprof_malloc(900 * MiB, 0, NULL), 0, 0, NULL);
  CHECK(gpu_free() < 300 * MiB);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(at(a, 300 * MiB - 1), 3);
}

TEST(limit, "MEMPROF_OPTIONS", "preset=compact,handle=2097152,headroom=0") {
  gpu_start();
  take("weights", 0, 300 * MiB);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  char *other = memprof_malloc(300 * MiB, 0, NULL);
  memprof_set_limit(0, 500 * MiB);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_NO_MEMORY);
  check_message("0.29 GiB are needed, and of the limit of 0.49 GiB that was set 0.20 GiB are left");
  memprof_free(other, 0, 0, NULL);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
}

TEST(refused, "MEMPROF_SIM_FAIL", "cuMemSetAccess:2=999") {
  gpu_start();
  take("weights", 0, MiB);
  CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
  CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_DEVICE_FAILED);
  check_message("the driver refused to map");
}

static void *source_allocate(void *self, size_t bytes) { return bytes <= 64 * MiB ? *(void **)self : NULL; }
static void source_release(void *self, void *ptr) { (void)self, (void)ptr; }

// Memory of a framework's allocator has no reservation of ours, and is nothing to pause.
TEST(memory_of_a_source) {
  gpu_start();
  int (*get)(uint64_t *, size_t);
  GPU_CALL(get, "cuMemAlloc_v2");
  uint64_t places[2];
  for (int i = 0; i < 2; i++) {
    CHECK(get(&places[i], 64 * MiB) == 0);
    memprof_pool_hold(0, 5, i);
    CHECK(memprof_pool_source(0, 5, i, &places[i], source_allocate, source_release));
    memprof_region_begin("cache", 0);
    CHECK(memprof_malloc_in_pool(MiB, 0, NULL, 5, i) != NULL);
    memprof_region_end();
  }
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_WRONG_STATE);
  check_message("an allocator that is not memprof's");
}

TEST(fork) {
  gpu_start();
  take("cache", 0, MiB);
  const pid_t child = fork();
  if (child == 0) {
    CHECK_EQUAL(memprof_region_begin("cache", 1), MEMPROF_OK);
    memprof_region_end();
    CHECK_EQUAL(usage("cache").live, 0);
    CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_NOT_ACTIVE);
    CHECK_EQUAL(memprof_resume(cache, 1, 0), MEMPROF_NOT_ACTIVE);
    check_message("not at work in this process");
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_OK);
}

static void *work(void *name) {
  for (int i = 0; i < 200; i++) {
    CHECK_EQUAL(memprof_region_begin(name, 1), MEMPROF_OK);
    void *ptr = memprof_malloc((size_t)(1 + i % 7) * MiB, 0, NULL);
    memprof_region_end();
    CHECK(ptr != NULL);
    usage(name);
    if (i % 3 == 0) memprof_record_stream(ptr, (void *)2);
    memprof_free(ptr, 0, 0, NULL);
  }
  return NULL;
}

// Other threads allocate, free and read statistics while tags are paused and resumed, their own among them.
TEST(threads) {
  gpu_start();
  char *a = take("weights", 1, 4 * MiB);
  fill(a, 4 * MiB, 7);
  static const char *const names[] = {"weights", "cache", "cache", "gradients"};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)names[i]) == 0);
  for (int i = 0; i < 50; i++) {
    CHECK_EQUAL(memprof_pause(weights, 1, 0), MEMPROF_OK);
    CHECK_EQUAL(memprof_resume(weights, 1, 0), MEMPROF_OK);
    const int all = memprof_pause(NULL, 0, 0);
    CHECK_EQUAL(all, MEMPROF_OK);
    CHECK_EQUAL(memprof_resume(NULL, 0, 0), MEMPROF_OK);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_EQUAL(at(a, 4 * MiB - 1), 7);
  memprof_free(a, 0, 0, NULL);
  memprof_empty_cache(0);
  CHECK_EQUAL(stats().allocation.current, 0);
  CHECK_EQUAL(stats().active.current, 0);
  CHECK_EQUAL(stats().reserved_bytes.current, 0);
}

static void *share_and_end(void *unused) {
  memprof_region_begin("cache", 0);
  memprof_region_share(1);
  memprof_region_share(0);
  memprof_region_end();
  return unused;
}

static void *ask(void *unused) {
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  return unused;
}

static void in_thread(void *(*run)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

// A second thread that waits for backward, and a backward within one, end nobody else's share.
TEST(sharers) {
  gpu_start();
  memprof_region_begin("weights", 0);
  memprof_region_share(1);
  in_thread(share_and_end);
  in_thread(ask);
  CHECK_EQUAL(usage("weights").live, MiB);
  memprof_region_share(1);
  memprof_region_share(0);
  in_thread(ask);
  CHECK_EQUAL(usage("weights").live, 2 * MiB);
  memprof_region_share(0);
  in_thread(ask);
  memprof_region_end();
  CHECK_EQUAL(usage("weights").live, 2 * MiB);
  CHECK_EQUAL(usage("cache").live, 0);
}

TEST(lost_handle, "MEMPROF_SIM_FAIL", "cuMemRelease:2=999") {
  gpu_start();
  memprof_free(take("cache", 0, 600 * MiB), 0, 0, NULL);
  memprof_empty_cache(0);
  const struct trail trail = trail_read(getpid(), 0);
  CHECK(strstr(trail_problems(&trail), "the driver did not take back 0.25 GiB") != NULL);
}

// Regions of a process with a native allocator hold nothing.
TEST(native) {
  gpu_start();
  CHECK(memprof_watch_device(0, "native", NULL) != NULL);
  memprof_region_begin("cache", 0);
  memprof_region_end();
  CHECK_EQUAL(memprof_pause(cache, 1, 0), MEMPROF_NOT_ACTIVE);
  check_message("--allocator native");
  CHECK_EQUAL(memprof_pause(NULL, 0, 0), MEMPROF_NOT_ACTIVE);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
