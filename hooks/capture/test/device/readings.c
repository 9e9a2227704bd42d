// readings.c - what the thread that reads the devices' used memory writes, and when it does not.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "calls.h"
#include "gpu.h"
#include "memprof.h"
#include "trail.h"

#define CARD_OF "MEMPROF_SIM_MEMORY", "8g"
#define READ CARD_OF, "MEMPROF_OPTIONS", "readings=1"

// FEW: after so many calls for the used memory, two readings of what is in use now have been taken, and a third is under way.
enum { NOT_INITIALIZED = 3, MOST = 64, FEW = 4 };

static const uint64_t CARD = (uint64_t)8 << 30, MS = 1000000;

static const char *const READING = "cuMemGetInfo";

static void pass(uint64_t ms) { nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * MS)}, NULL); }

struct reading {
  uint64_t time, used;
};

// The readings so far of a process.
static int readings_of(pid_t pid, struct reading *list) {
  const struct trail trail = trail_read(pid, 1);
  int count = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    const struct memprof_record *event = &trail.records[i];
    char text[4097];
    if (trail_kind(event) != MEMPROF_DEVICE_USED || event->arena != MEMPROF_NO_ARENA) continue;
    trail_text(&trail, event->context, i, text);
    CHECK(strcmp(text, "all=1") == 0 && count < MOST);
    CHECK_EQUAL(event->device, 0);
    CHECK_EQUAL(event->requested, CARD);
    list[count++] = (struct reading){event->time_ns, event->provided};
  }
  free(trail.records);
  return count;
}

static int readings(struct reading *list) { return readings_of(getpid(), list); }

static int count(void) {
  struct reading list[MOST];
  return readings(list);
}

static uint64_t used(void) { return CARD - gpu_free(); }

// Waits until the last reading is of what is in use, and for a few more of the same.
static int read_all(struct reading *list) {
  int n = 0;
  for (int i = 0; i < 3000 && (n == 0 || list[n - 1].used != used()); i++) {
    pass(20);
    n = readings(list);
  }
  CHECK(n > 0);
  CHECK_EQUAL(list[n - 1].used, used());
  await_calls(READING, FEW);
  CHECK_EQUAL(count(), n);  // while a number stays nothing is written
  return n;
}

TEST(not_unless_asked, CARD_OF) {
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  pass(250);
  CHECK_EQUAL(count(), 0);
}

TEST(changes, READ) {
  struct reading list[MOST];
  log_calls();
  gpu_start();
  CHECK(memprof_malloc(64 * MiB, 0, NULL) != NULL);
  const int before = read_all(list);
  const uint64_t was = list[before - 1].used, changed = clock_now();
  CHECK(memprof_malloc(512 * MiB, 0, NULL) != NULL);
  CHECK(used() >= was + 512 * MiB);
  // The old number once more, as of the last reading of it, and the new one.
  const int after = read_all(list);
  CHECK(after >= before + 2);
  CHECK_EQUAL(list[before].used, was);
  CHECK(list[before].time >= list[before - 1].time + 200 * MS && list[before].time <= changed);
  CHECK(list[after - 1].time >= changed);
  for (int i = before + 1; i < after; i++) CHECK(list[i].used > was && list[i].time > list[i - 1].time);
}

// An unchanged number is written again, so that readers know that it stayed.
TEST(heartbeat, READ) {
  struct reading list[MOST];
  log_calls();
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  const int before = read_all(list);
  for (int i = 0; i < 600 && count() == before; i++) pass(100);
  CHECK_EQUAL(readings(list), before + 1);
  CHECK_EQUAL(list[before].used, list[before - 1].used);
  CHECK(list[before].time >= list[before - 1].time + 10000 * MS);
}

// A process that has not used the driver does not use it for the sake of readings.
TEST(driver_is_left_alone, READ) {
  int (*device_count)(int *), devices;
  CHECK(memprof_watch_device(0, "native", NULL) != NULL);
  pass(250);
  CHECK_EQUAL(count(), 0);
  GPU_CALL(device_count, "cuDeviceGetCount");
  CHECK_EQUAL(device_count(&devices), NOT_INITIALIZED);
}

static void no_sums(int device, struct memprof_watch_sums *out) {
  (void)device;
  memset(out, 0, sizeof *out);
}

// Readings make no context: a device is read once it has one. Here a native allocator has reported the
// device.
TEST(no_context_is_made, READ) {
  int (*state)(int, unsigned *, int *), (*reset)(int), active = 1;
  unsigned flags;
  struct reading list[MOST];
  log_calls();
  struct memprof_watch *watch = memprof_watch_device(0, "native", no_sums);
  CHECK(watch != NULL);
  memprof_watch_map(watch, 0, GiB, 2 * MiB, NULL, 0, 0, 0);
  pass(250);
  GPU_CALL(state, "cuDevicePrimaryCtxGetState");
  CHECK(state(0, &flags, &active) == 0 && active == 0);
  CHECK_EQUAL(count(), 0);
  gpu_start();
  const int before = read_all(list);
  GPU_CALL(reset, "cuDevicePrimaryCtxReset_v2");
  CHECK_EQUAL(reset(0), 0);
  pass(350);
  CHECK(state(0, &flags, &active) == 0 && active == 0);
  CHECK_EQUAL(count(), before);
}

// While a graph is captured, in the strictest mode, there are readings, and the capture holds.
TEST(during_capture, READ) {
  struct reading list[MOST];
  void *graph = NULL;
  log_calls();
  gpu_start();
  void *stream = gpu_stream();
  CHECK(memprof_malloc(64 * MiB, 0, NULL) != NULL);
  const int before = read_all(list);
  CHECK_EQUAL(cuStreamBeginCapture_v2(stream, 0), 0);
  CHECK(memprof_malloc(512 * MiB, 0, NULL) != NULL);
  CHECK(read_all(list) >= before + 2);
  CHECK(cuStreamEndCapture(stream, &graph) == 0 && graph != NULL);
}

// The end of the last run of equal readings is written when the process ends.
TEST(exit, READ) {
  struct reading list[MOST];
  int status;
  const pid_t child = fork();
  if (child == 0) {
    log_calls();
    gpu_start();
    if (memprof_malloc(MiB, 0, NULL) == NULL) _exit(1);
    await_calls(READING, FEW);
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  const int n = readings_of(child, list);
  CHECK(n >= 2);
  CHECK_EQUAL(list[n - 1].used, list[n - 2].used);
  CHECK(list[n - 1].time >= list[n - 2].time + 200 * MS);
}

// A forked child has no thread and no part in the parent's readings, which go on.
TEST(fork, READ) {
  struct reading list[MOST];
  int status;
  char path[512];
  log_calls();
  gpu_start();
  CHECK(memprof_malloc(64 * MiB, 0, NULL) != NULL);
  const int before = read_all(list);
  const pid_t child = fork();
  if (child == 0) exit(0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(!trail_find(child, path, sizeof path));
  CHECK_EQUAL(count(), before);
  CHECK(memprof_malloc(512 * MiB, 0, NULL) != NULL);
  CHECK(read_all(list) >= before + 2);
}

static void *churn(void *done) {
  while (!atomic_load((_Atomic(bool) *)done)) {
    void *block = memprof_malloc(3 * GiB, 0, NULL);
    memprof_free(block, 0, 0, NULL);
    memprof_empty_cache(0);
  }
  return NULL;
}

// Every reading is of some moment, in the order of time, whatever goes on beside it.
TEST(beside_others, READ) {
  struct reading list[MOST];
  pthread_t thread;
  static _Atomic(bool) done;
  log_calls();
  gpu_start();
  CHECK(memprof_malloc(MiB, 0, NULL) != NULL);
  CHECK(pthread_create(&thread, NULL, churn, &done) == 0);
  pass(1000);
  atomic_store(&done, true);
  pthread_join(thread, NULL);
  const int n = read_all(list);
  for (int i = 1; i < n; i++) CHECK(list[i].time > list[i - 1].time);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
