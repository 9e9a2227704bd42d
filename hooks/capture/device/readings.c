// readings.c - a thread reads the used memory of the devices, in each process of the job.
//
// Device accounting compares what the events explain with what a card has in use. `memprof record`
// asks NVML for the latter. Where there is no NVML, only the driver knows it, and it answers only a
// process that has a context on the device. Then `record` sets readings=1, and a thread of the hook
// asks the driver every 100 ms and writes device_used events without an arena.
//
//   time      0    100    200    300    400  ...
//   used     5 G   5 G    5 G    7 G    7 G
//   written   x            x,     x                 5 G at 0 and at 200, 7 G at 300
//
// When the number changes, two events are written: the old number with the time of its last
// reading, then the new one. So between two events with the same number every reading gave that
// number. An unchanged number is written again every 10 s and when the process exits, so a killed
// process loses at most 10 s.
//
// The number includes all processes that use the card, and what the driver keeps for itself. The
// thread makes no context: it reads a device once the job has used it (devices.h), and as long as
// its primary context is active. cuMemGetInfo neither waits for the device nor belongs to a stream,
// so it is legal while graphs are captured, in every mode.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/lock.h"
#include "base/options.h"
#include "base/thread.h"
#include "device/devices.h"
#include "device/driver.h"
#include "spool/spool.h"

enum {
  STACK_BYTES = 512 << 10,  // of the thread, which calls the driver
  BUSY_SHARE = 20,          // the thread sleeps this many times as long as a round took
  TRIES = 1000,             // of a millisecond each, to wait at exit until the thread has left the driver
};

static const uint64_t INTERVAL_NS = 100000000, LONGEST_NS = 2000000000;  // bounds of the sleep
static const uint64_t HEARTBEAT_NS = 10000000000;                         // an unchanged number is written again after this

// One device's last number: bytes, and when it was last read and last written, in nanoseconds of
// clock_now; 0: never. Under `working`.
struct course {
  uint64_t used, total;
  uint64_t read, written;
};

static struct course courses[MOST_DEVICES];
static struct lock working;  // held while the thread reads and writes; from the exit of the process on it stays held
static _Atomic bool running;   // devices are read
static _Atomic bool threaded;  // there is a thread
static uint32_t everybody;     // string id of "all=1"

static void write_reading(int device, struct course *course, uint64_t time_ns) {
  course->written = time_ns;
  clock_note(time_ns);
  spool_write_at(
      &(struct spool_event){
          .kind = MEMPROF_DEVICE_USED,
          .device = device,
          .arena = MEMPROF_NO_ARENA,
          .requested = course->total,
          .provided = course->used,
          .context = everybody,
      },
      time_ns);
}

// Writes the number once more, with the time of its last reading, unless that event exists.
static void write_last(int device, struct course *course) {
  if (course->read > course->written) write_reading(device, course, course->read);
}

static void take(int device, struct course *course, uint64_t now, uint64_t used, uint64_t total) {
  const bool changed = course->written == 0 || used != course->used;
  if (changed) write_last(device, course);
  course->used = used;
  course->total = total;
  course->read = now;
  if (changed || now - course->written >= HEARTBEAT_NS) write_reading(device, course, now);
}

// No device is read any more: waits until the thread is out of the driver, at most TRIES milliseconds, keeps it out, and
// writes the last numbers. False: nothing was read, or the thread is in the driver still.
static bool finish(void) {
  if (!atomic_exchange(&running, false)) return false;
  for (int i = 0; !lock_try(&working); i++) {
    if (i == TRIES) return false;
    usleep(1000);
  }
  for (int device = 0; device < MOST_DEVICES; device++) write_last(device, &courses[device]);
  return true;
}

// The process exits, and the driver is about to be destroyed.
static void at_exit(void) { finish(); }

static void read_device(int device) {
  static bool registered;
  uint64_t free_bytes, total;
  // The driver is asked only if the job has used the device: the question would initialise it.
  if (!device_used(device) || driver_get() == NULL || !driver_primary_active(device)) return;
  // Registered only now: exit handlers run in reverse order, so this runs before the driver's own.
  if (!registered) registered = atexit(at_exit) == 0;
  const uint64_t now = clock_now();
  if (driver_memory(device, &free_bytes, &total) && atomic_load(&running)) take(device, &courses[device], now, total - free_bytes, total);
}

// Whether the thread ends, since no recording wants it. It may start, or wake, only when the next one has begun.
static bool leaves(void) {
  if (atomic_load(&running)) return false;
  atomic_store(&threaded, false);
  return !atomic_load(&running) || atomic_exchange(&threaded, true);
}

static void *read_devices(void *nothing) {
  for (;;) {
    lock_take(&working);
    if (leaves()) break;
    const uint64_t start = clock_now();
    for (int device = 0; device < MOST_DEVICES; device++) read_device(device);
    uint64_t rest = (clock_now() - start) * BUSY_SHARE;
    lock_give(&working);
    if (rest < INTERVAL_NS) rest = INTERVAL_NS;
    if (rest > LONGEST_NS) rest = LONGEST_NS;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(rest / 1000000000), .tv_nsec = (long)(rest % 1000000000)}, NULL);
  }
  lock_give(&working);
  return nothing;
}

static void readings_start(void) {
  if (!options_get()->readings || !spool_start()) return;
  everybody = spool_string("all=1");
  atomic_store(&running, true);
  if (!atomic_exchange(&threaded, true) && thread_start(read_devices, STACK_BYTES) != 0) {
    atomic_store(&running, false);
    atomic_store(&threaded, false);
  }
}

static void forget(void) {
  working = (struct lock){0};
  atomic_store(&running, false);
  atomic_store(&threaded, false);
}

static void readings_end(void) {
  if (!hook_in_process() || !finish()) return;
  memset(courses, 0, sizeof courses);
  lock_give(&working);
}

HOOK_PART(.order = HOOK_REST, .start = readings_start, .end = readings_end, .forget = forget);
