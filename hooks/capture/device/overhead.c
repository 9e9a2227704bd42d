// overhead.c - see overhead.h.
#define _GNU_SOURCE
#include "device/overhead.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/lock.h"
#include "device/captures.h"
#include "device/devices.h"
#include "device/driver.h"
#include "device/driver_pools.h"
#include "device/otherlib.h"
#include "device/own_calls.h"
#include "spool/spool.h"

enum { TRIES = 20, PAUSE_US = 50 };
static const uint64_t RECENT_NS = 1000000000;  // how old the reading before a later one may be

// Held while the numbers of one instant are read, never across a call that may wait for the device.
// Taken before a device's lock.
static struct lock lock;
static _Atomic int64_t noted[MOST_DEVICES];  // bytes, the sum of the events so far
static _Atomic int first_seen = -1;          // the first device with a context; -1: none
static _Atomic bool several;                 // another device has one, too

// Under the lock.
static int64_t pools_noted[MOST_DEVICES];  // bytes of `noted` that are idle in the driver's pools
static int open_windows[MOST_DEVICES];
static int64_t before[MOST_DEVICES];   // unaccounted bytes before the first of the open windows
static bool of_process[MOST_DEVICES];  // the open windows measure this process, not the device
static int64_t last[MOST_DEVICES];     // unaccounted bytes after the last reading
static bool last_of_process[MOST_DEVICES];

static _Atomic uint64_t last_at[MOST_DEVICES];  // when that was, in nanoseconds of clock_now; 0: `last` is not known
static _Atomic uint32_t later[MOST_DEVICES];    // string id of what the next reading's growth is of; 0: nothing
static _Atomic bool some_later;                 // one of them may be set

static overhead_mapped *_Atomic left_out;

void overhead_leave_out(overhead_mapped *arenas) { atomic_store_explicit(&left_out, arenas, memory_order_release); }

void overhead_note(int device, int64_t bytes, uint32_t context) {
  if (!device_valid(device) || bytes == 0) return;
  atomic_fetch_add(&noted[device], bytes);
  device_note_use(device);
  hook_start();
  spool_write(&(struct spool_event){
      .kind = MEMPROF_OVERHEAD,
      .device = device,
      .arena = MEMPROF_NO_ARENA,
      .provided = (uint64_t)bytes,
      .context = context,
  });
}

void overhead_seen(int device) {
  int none = -1;
  if (!atomic_compare_exchange_strong(&first_seen, &none, device) && none != device) atomic_store(&several, true);
}

bool overhead_of_several(void) { return atomic_load_explicit(&several, memory_order_relaxed); }

bool overhead_noted(int device) { return device_valid(device) && atomic_load(&noted[device]) != 0; }

void overhead_gone(int device) {
  if (!device_valid(device)) return;
  lock_take(&lock);
  overhead_note(device, -atomic_load(&noted[device]), spool_string("what=context"));
  pools_noted[device] = 0;
  atomic_store(&last_at[device], 0);
  lock_give(&lock);
}

static bool used_by(bool process, int device, int64_t *bytes) {
  size_t free_bytes, total;
  if (process) return (*bytes = overhead_own(device)) >= 0;
  const bool known = driver_get()->memory_info(&free_bytes, &total) == DRIVER_OK;
  if (known) *bytes = (int64_t)(total - free_bytes);
  return known;
}

// Used bytes that no event accounts for, read while no other thread allocates or frees. False: another
// thread does, or holds the device's lock. It is not waited for: the caller may be inside a library
// and hold a lock that the other thread waits for.
static bool try_unaccounted(bool process, int device, int64_t *bytes) {
  int64_t used = 0, mapped = 0, pools = 0;
  bool quiet, still_quiet;
  struct lock *held = NULL;
  overhead_mapped *arenas = atomic_load_explicit(&left_out, memory_order_acquire);
  if (arenas != NULL && !arenas(device, &held, &mapped)) return false;
  const unsigned calls = otherlib_calls(&quiet);
  bool known = quiet && used_by(process, device, &used);
  if (known) {
    if (!driver_pools_reserved(device, &pools)) pools = otherlib_pooled_bytes(device);
    const int64_t others = otherlib_bytes(device) + pools + atomic_load(&noted[device]) - pools_noted[device];
    *bytes = used - mapped - others;
    known = otherlib_calls(&still_quiet) == calls;
  }
  if (held != NULL) lock_give(held);
  return known;
}

// No capture begins meanwhile, since asking for a pool's memory would end it.
static bool unaccounted(bool process, int device, int64_t *bytes) {
  int current;
  if (driver_get()->context_device(&current) != DRIVER_OK || current != device || !captures_hold()) return false;
  bool known = try_unaccounted(process, device, bytes);
  for (int i = 1; !known && i < TRIES; i++) {
    usleep(PAUSE_US);
    known = try_unaccounted(process, device, bytes);
  }
  captures_let();
  return known;
}

// The string id of a context with how=process added, if that is how it was measured.
static uint32_t measured(bool process, uint32_t context) {
  static const char HOW[] = "\thow=process";
  char text[1024];
  if (!process) return context;
  const size_t length = spool_string_text(context, text, sizeof text - sizeof HOW);
  memcpy(text + length, HOW, sizeof HOW);
  return spool_string(length > 0 ? text : text + 1);
}

// A reading is done. What the event of its growth does not account for is `bytes` again.
static void keep(int device, bool process, bool known, int64_t bytes) {
  last[device] = bytes;
  last_of_process[device] = process;
  atomic_store(&last_at[device], known ? clock_now() : 0);
}

// The reading before the first open window. Growth since the one before it is of the call that asked for
// overhead_later. Under the lock.
static bool read_first(int device) {
  const bool process = overhead_own(device) >= 0;
  const uint32_t context = atomic_exchange(&later[device], 0);
  int64_t now = 0;
  const bool known = unaccounted(process, device, &now);
  if (known && context != 0 && atomic_load(&last_at[device]) != 0 && last_of_process[device] == process && now != last[device]) {
    overhead_note(device, now - last[device], measured(process, context));
    now = last[device];
  }
  keep(device, process, known, now);
  before[device] = now;
  of_process[device] = process;
  return known;
}

// The current context's device, if its memory may be read now and events are wanted; else -1.
static int readable_device(void) {
  const struct driver *driver = hook_on() && !own_calls() && !capturing() ? driver_get() : NULL;
  int device;
  if (driver == NULL || (spool_started() && !spool_start())) return -1;
  return driver->context_device(&device) == DRIVER_OK && device_valid(device) ? device : -1;
}

void overhead_begin(struct overhead *window) {
  const int device = readable_device();
  window->device = -1;
  if (device < 0) return;
  overhead_seen(device);
  lock_take(&lock);
  if (open_windows[device] > 0 || read_first(device)) {
    window->device = device;
    open_windows[device]++;
  }
  lock_give(&lock);
}

void overhead_end(const struct overhead *window, uint32_t context) {
  const int device = window->device;
  int64_t now;
  if (device < 0) return;
  lock_take(&lock);
  const bool process = of_process[device], known = unaccounted(process, device, &now);
  if (known && now != before[device]) overhead_note(device, now - before[device], measured(process, context));
  keep(device, process, known, before[device]);
  open_windows[device]--;
  lock_give(&lock);
}

bool overhead_later(uint32_t context) {
  const int device = readable_device();
  const uint64_t at = device >= 0 ? atomic_load(&last_at[device]) : 0;
  if (at == 0 || clock_now() - at > RECENT_NS) return false;
  atomic_store(&later[device], context);
  atomic_store(&some_later, true);
  return true;
}

void overhead_read_later(void) {
  if (!atomic_load_explicit(&some_later, memory_order_relaxed)) return;
  const int device = readable_device();
  if (device < 0) return;
  atomic_store(&some_later, false);
  lock_take(&lock);
  if (atomic_load(&later[device]) != 0 && open_windows[device] == 0) read_first(device);
  lock_give(&lock);
}

// Idle bytes change with each request and free; an event for each change would be too many.
static bool much(int64_t difference, int64_t reserved) {
  const int64_t least = (int64_t)2 << 20, share = reserved / 256;
  const int64_t size = difference < 0 ? -difference : difference;
  return size >= (share > least ? share : least);
}

void overhead_pools(int device) {
  if (!device_valid(device) || !captures_hold()) return;
  int64_t reserved;
  const bool known = driver_pools_reserved(device, &reserved);
  captures_let();
  if (!known) return;
  lock_take(&lock);
  const int64_t idle = reserved - otherlib_pooled_bytes(device);
  if (much(idle - pools_noted[device], reserved)) {
    overhead_note(device, idle - pools_noted[device], spool_string("what=pool\tname=driver's memory pools"));
    pools_noted[device] = idle;
  }
  lock_give(&lock);
}

static void forget(void) {
  lock = (struct lock){0};
}

HOOK_PART(.forget = forget);
