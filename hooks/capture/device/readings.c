// readings.c - what the devices have in use, read from within the process.
//
// The books of a run hold what its events explain against what a card has in use. NVML tells
// that from outside, whoever uses the card; where there is no NVML only the driver can be
// asked, by cuMemGetInfo, and only by a process that has a context on the device. So
// `memprof record` then has each process ask for itself (readings=1): a thread of the hook's
// own reads every 100 ms and writes device_used events without an arena.
//
//   time      0    100    200    300    400  ...
//   used     5 G   5 G    5 G    7 G    7 G
//   written   x            x,     x                 5 G at 0 and at 200, 7 G at 300
//
// A number is written when it differs from the one before, and so is the time of the last
// reading at which it was still the old one: between the two events of a stretch every
// reading gave that number. A stretch that lasts is told of again every 10 s, and once more
// when the process exits, so that a killed one loses no more than that.
//
// The number is that of all who use the card, and has in it what the driver keeps for itself.
// No context is made to learn it: a device is read once memory was asked for on it, or a
// context of it was seen, and as long as its primary context is there. cuMemGetInfo neither
// waits for the device nor belongs to a stream, so it is allowed while graphs are captured,
// in every mode.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/lock.h"
#include "base/options.h"
#include "device/devices.h"
#include "device/driver.h"
#include "spool/spool.h"

enum {
  STACK_BYTES = 512 << 10,  // the driver is called on it
  BUSY_SHARE = 20,          // the thread rests this many times as long as a round took
  TRIES = 1000,             // of a millisecond each, for the thread to come out of the driver
};

static const uint64_t INTERVAL_NS = 100000000, LONGEST_NS = 2000000000;  // of a rest
static const uint64_t HEARTBEAT_NS = 10000000000;                         // an unchanged number is written again after this

// One device's number over time. Times are 0 for never.
struct course {
  uint64_t used, total;
  uint64_t read, written;
};

static struct course courses[MOST_DEVICES];
static struct lock working;  // held while the thread reads and writes; for good once the process exits
static _Atomic bool running;
static uint32_t everybody;  // string id of "all=1"

static void write_reading(int device, struct course *course, uint64_t time_ns) {
  course->written = time_ns;
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

// Writes when the number was last read.
static void settle(int device, struct course *course) {
  if (course->read > course->written) write_reading(device, course, course->read);
}

static void take(int device, struct course *course, uint64_t now, uint64_t used, uint64_t total) {
  const bool changed = course->written == 0 || used != course->used;
  if (changed) settle(device, course);
  course->used = used;
  course->total = total;
  course->read = now;
  if (changed || now - course->written >= HEARTBEAT_NS) write_reading(device, course, now);
}

// Whether the device has a context that is not of our making. The driver is not asked before
// the process has used the device: it would be initialised by that.
static bool has_context(int device) {
  if (!device_used(device)) return false;
  const struct driver *driver = driver_get();
  unsigned flags;
  int handle, active = 0;
  return driver != NULL && driver->primary_state != NULL && driver->device_get(&handle, device) == DRIVER_OK &&
         driver->primary_state(handle, &flags, &active) == DRIVER_OK && active != 0;
}

// The process exits, and the driver is about to be taken down: the thread is not to be inside
// of it. A driver that does not answer keeps no process from ending.
static void stop(void) {
  if (!atomic_load(&running)) return;
  for (int i = 0; !lock_try(&working); i++) {
    if (i == TRIES) return;
    usleep(1000);
  }
  for (int device = 0; device < MOST_DEVICES; device++) settle(device, &courses[device]);
}

static void read_device(int device) {
  static bool registered;
  uint64_t free_bytes, total;
  if (!has_context(device)) return;
  // Only now, since what is registered last is called first: before the driver's own.
  if (!registered) registered = atexit(stop) == 0;
  const uint64_t now = clock_now();
  if (driver_memory(device, &free_bytes, &total)) take(device, &courses[device], now, total - free_bytes, total);
}

static void *read_devices(void *nothing) {
  for (;;) {
    lock_take(&working);
    const uint64_t start = clock_now();
    for (int device = 0; device < MOST_DEVICES; device++) read_device(device);
    uint64_t rest = (clock_now() - start) * BUSY_SHARE;
    lock_give(&working);
    if (rest < INTERVAL_NS) rest = INTERVAL_NS;
    if (rest > LONGEST_NS) rest = LONGEST_NS;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(rest / 1000000000), .tv_nsec = (long)(rest % 1000000000)}, NULL);
  }
  return nothing;
}

static void readings_start(void) {
  if (!options_get()->readings || !spool_start()) return;
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  everybody = spool_string("all=1");
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);  // the job's signals are the job's threads' business
  pthread_sigmask(SIG_SETMASK, &all, &before);
  atomic_store(&running, true);
  if (pthread_create(&thread, &attributes, read_devices, NULL) != 0) atomic_store(&running, false);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

static void forget(void) {
  working = (struct lock){0};
  atomic_store(&running, false);
}

HOOK_PART(.order = HOOK_REST, .start = readings_start, .forget = forget);
