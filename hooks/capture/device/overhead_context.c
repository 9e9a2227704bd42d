// overhead_context.c - what a context takes: see overhead.h. NVML is asked before and after a context
// is made.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/hook.h"
#include "device/devices.h"
#include "device/driver.h"
#include "device/nvml.h"
#include "device/overhead.h"
#include "device/own_calls.h"
#include "spool/spool.h"

// A thread is measuring a context on the device. Others do not: each would count the same growth.
static _Atomic bool making_on[MOST_DEVICES];

// The device in NVML, if NVML was seen to list this process on it; else NULL. NVML stays initialised
// for each.
static void *_Atomic listing[MOST_DEVICES];

int64_t overhead_own(int device) {
  void *found = device_valid(device) ? atomic_load(&listing[device]) : NULL;
  unsigned others;
  const int64_t own = found != NULL ? nvml_own(found, &others) : -1;
  return own > 0 ? own : -1;  // 0: not listed, though it has a context there
}

// Keeps NVML initialised for a device that lists this process. False: it is kept already.
static bool keep(int device, void *found) {
  void *none = NULL;
  return atomic_compare_exchange_strong(&listing[device], &none, found);
}

static void forget(void) {
  for (int i = 0; i < MOST_DEVICES; i++) atomic_store(&listing[i], NULL);
}

void overhead_context_begin(struct overhead_context *making, int device, bool primary) {
  *making = (struct overhead_context){.device = -1};
  if (!device_valid(device) || !hook_on() || own_calls() || driver_get() == NULL || (primary && driver_primary_active(device))) return;
  if (atomic_exchange(&making_on[device], true)) return;
  making->device = device;
  making->nvml = nvml_open(device);
  if (making->nvml == NULL) return;
  if (nvml_used(making->nvml, &making->used)) {
    unsigned others;
    making->own = nvml_own(making->nvml, &others);
    return;
  }
  nvml_close();
  making->nvml = NULL;
}

// By how many bytes use grew, by the event's fields in `text`. *own_use: the process's own use did,
// which is preferred. A context always takes memory. So if the process's use did not grow, NVML does
// not list this process, or lists another one by its id, from outside of this container. If the
// device's use did not grow either, other processes returned memory meanwhile: false.
static bool growth(const struct overhead_context *making, int64_t *bytes, bool *own_use, char text[64]) {
  unsigned others = 0;
  const int64_t own = making->own >= 0 ? nvml_own(making->nvml, &others) : -1;
  uint64_t used = 0;
  strcpy(text, "what=context");
  *bytes = own - making->own;
  *own_use = own >= 0 && *bytes > 0;
  if (*own_use) return true;
  strcpy(text, "what=context\thow=device");
  if (others > 0) snprintf(text, 64, "what=context\thow=device\tothers=%u", others);
  const bool known = nvml_used(making->nvml, &used);
  *bytes = (int64_t)(used - making->used);
  return known && *bytes > 0;
}

void overhead_context_end(const struct overhead_context *making, bool made) {
  uint64_t free_bytes, total;
  int64_t bytes = 0;
  bool own_use = false;
  char text[64];
  const bool measured = made && making->nvml != NULL && growth(making, &bytes, &own_use, text);
  if (making->nvml != NULL && !(own_use && keep(making->device, making->nvml))) nvml_close();
  if (making->device < 0) return;
  atomic_store(&making_on[making->device], false);
  if (!made) return;
  overhead_seen(making->device);
  if (measured) overhead_note(making->device, bytes, spool_string(text));
  // how=total, for the first context only: the number includes what later ones take.
  if (making->nvml != NULL || overhead_noted(making->device) || !driver_memory(making->device, &free_bytes, &total)) return;
  overhead_note(making->device, (int64_t)(total - free_bytes), spool_string("what=context\thow=total"));
}

// By device, the measurement of a primary context that the hook itself is making, which the driver's observer
// begins and ends. Only the thread that has set making_on[device] uses the entry.
static struct overhead_context primaries[MOST_DEVICES];

static bool begin(int device) {
  struct overhead_context making;
  overhead_context_begin(&making, device, true);
  if (making.device >= 0) primaries[device] = making;
  return making.device >= 0;
}

static void end(int device, bool made) {
  const struct overhead_context making = primaries[device];
  overhead_context_end(&making, made);
}

static void observe(void) {
  static const struct driver_observer observer = {begin, end};
  driver_observe(&observer);
}

HOOK_PART(.order = HOOK_REST, .start = observe, .forget = forget);
