// driver.c - see driver.h.
#include "device/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/problem.h"
#include "base/real_dlsym.h"
#include "device/calls.h"
#include "device/devices.h"
#include "device/vendor.h"

static struct driver table;
static bool usable;  // the table is complete and the driver initialised
static void *contexts[MOST_DEVICES];  // primary contexts, retained for good
static bool alone[MOST_DEVICES];      // the job had none then: the hook's threads needed one
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct driver_observer *_Atomic observers;

void driver_observe(const struct driver_observer *observer) { atomic_store(&observers, observer); }

// Fills the table with functions of a library. False with a problem line: a needed one is missing.
static bool fill(const struct vendor *vendor, void *library) {
  for (const struct vendor_symbol *entry = vendor->needed; entry->symbol != NULL; entry++) {
    void *function = real_dlsym(library, entry->symbol);
    if (function == NULL) {
      problem("the %s driver has no %s", vendor->name, entry->symbol);
      return false;
    }
    memcpy((char *)&table + entry->offset, &function, sizeof function);
  }
  for (const struct vendor_symbol *entry = vendor->optional; entry->symbol != NULL; entry++) {
    void *function = real_dlsym(library, entry->symbol);
    memcpy((char *)&table + entry->offset, &function, sizeof function);
  }
  const char *missing = vendor->adapt != NULL ? vendor->adapt(&table, library) : NULL;
  if (missing != NULL) problem("the %s driver has no %s", vendor->name, missing);
  table.attributes = vendor->attributes;
  table.unmaps_ranges = vendor->unmaps_ranges;
  table.aliases = vendor->aliases;
  calls_count(&table);
  return missing == NULL;
}

// In the order in which their libraries are looked for. The first that is there is the driver.
static const struct vendor *const vendors[] = {&vendor_cuda, &vendor_hip, NULL};

static void *open_any(const char *const *libraries) {
  void *library = NULL;
  while (*libraries != NULL && (library = dlopen(*libraries, RTLD_NOW | RTLD_LOCAL)) == NULL) libraries++;
  return library;
}

static void load(void) {
  const struct vendor *const *vendor = vendors;
  void *library = NULL;
  while (*vendor != NULL && (library = open_any((*vendor)->libraries)) == NULL) vendor++;
  if (library == NULL) {
    problem("no GPU driver: neither %s nor %s can be loaded", vendors[0]->libraries[0], vendors[1]->libraries[0]);
    return;
  }
  if (!fill(*vendor, library)) return;
  const driver_result result = table.init(0);
  usable = result == DRIVER_OK;
  if (!usable) problem("the %s driver does not initialise: error %d", (*vendor)->name, result);
}

const struct driver *driver_get(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return usable ? &table : NULL;
}

static void *known_context(int device) {
  pthread_mutex_lock(&lock);
  void *context = contexts[device];
  pthread_mutex_unlock(&lock);
  return context;
}

bool driver_primary_active(int device) {
  unsigned flags;
  int active = 0, handle;
  return table.primary_state != NULL && table.device_get(&handle, device) == DRIVER_OK && table.primary_state(handle, &flags, &active) == DRIVER_OK && active;
}

static void *primary_context(int device) {
  if (!device_valid(device)) return NULL;
  void *context = known_context(device);
  if (context != NULL) return context;
  const struct driver_observer *observer = atomic_load_explicit(&observers, memory_order_acquire);
  const bool observed = observer != NULL && observer->begin(device);
  pthread_mutex_lock(&lock);
  if (contexts[device] == NULL) {
    int handle;
    alone[device] = !driver_primary_active(device);
    if (table.device_get(&handle, device) != DRIVER_OK || table.primary_retain(&contexts[device], handle) != DRIVER_OK) {
      contexts[device] = NULL;
    }
  }
  context = contexts[device];
  pthread_mutex_unlock(&lock);
  if (observed) observer->end(device, context != NULL);
  return context;
}

// Whether the calling thread's context is of the device.
static bool has_context(int device) {
  int current, handle;
  return table.context_device(&current) == DRIVER_OK && table.device_get(&handle, device) == DRIVER_OK && current == handle;
}

// Whether the job has the device's primary context: then that is where its default stream is.
static bool has_primary(int device) {
  pthread_mutex_lock(&lock);
  const bool known = contexts[device] != NULL, ours = alone[device];
  pthread_mutex_unlock(&lock);
  return known ? !ours : driver_primary_active(device);
}

int driver_enter(int device, struct driver_scope *scope) {
  void *current = NULL;
  scope->pushed = 0;
  if (!device_valid(device) || table.context_get(&current) != DRIVER_OK) return 0;
  if (current != NULL && current == known_context(device)) return 1;
  const bool own = current != NULL && has_context(device);
  if (own && !has_primary(device)) return 1;
  void *context = primary_context(device);
  if (own && context == current) return 1;
  if (context == NULL || table.context_push(context) != DRIVER_OK) return own;
  scope->pushed = 1;
  return 1;
}

void driver_leave(const struct driver_scope *scope) {
  void *context;
  if (scope->pushed) table.context_pop(&context);
}

static struct made {
  void *context;
  int device;
} made[DRIVER_CONTEXTS];  // by the program; under `lock`
static size_t made_count;  // how many it has made that it did not destroy: more than there is room for are not known

void driver_context_made(int device, void *context) {
  pthread_mutex_lock(&lock);
  if (made_count < DRIVER_CONTEXTS) made[made_count] = (struct made){context, device};
  made_count++;
  pthread_mutex_unlock(&lock);
}

void driver_context_gone(void *context) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < made_count && i < DRIVER_CONTEXTS; i++) {
    if (made[i].context != context) continue;
    made[i] = made[made_count <= DRIVER_CONTEXTS ? made_count - 1 : i];
    made_count--;
    break;
  }
  pthread_mutex_unlock(&lock);
}

size_t driver_contexts(int device, void **out, size_t most) {
  size_t count = 0;
  void *primary = known_context(device);
  if (primary == NULL && driver_primary_active(device)) primary = primary_context(device);
  if (primary != NULL && count < most) out[count++] = primary;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < made_count && i < DRIVER_CONTEXTS; i++) {
    if (made[i].device == device && count++ < most) out[count - 1] = made[i].context;
  }
  if (made_count > DRIVER_CONTEXTS) count = most + 1;
  pthread_mutex_unlock(&lock);
  return count;
}

enum { RELAXED = 2 };  // CU_STREAM_CAPTURE_MODE_RELAXED

int driver_relax(void) {
  int mode = RELAXED;
  if (table.capture_mode != NULL) table.capture_mode(&mode);
  return mode;
}

void driver_restrict(int mode) {
  if (table.capture_mode != NULL) table.capture_mode(&mode);
}

void driver_uuid_write(const unsigned char uuid[16], char text[DRIVER_UUID_TEXT]) {
  int length = snprintf(text, DRIVER_UUID_TEXT, "GPU-");
  for (int i = 0; i < 16; i++) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    length += snprintf(text + length, (size_t)(DRIVER_UUID_TEXT - length), dash ? "-%02x" : "%02x", uuid[i]);
  }
}

bool driver_uuid_text(int device, char text[DRIVER_UUID_TEXT]) {
  unsigned char uuid[16] = {0};
  const struct driver *driver = driver_get();
  int handle;
  const bool known = driver != NULL && driver->device_uuid != NULL && driver->device_get(&handle, device) == DRIVER_OK &&
                     driver->device_uuid(uuid, handle) == DRIVER_OK;
  if (!known) memset(uuid, 0, sizeof uuid);
  driver_uuid_write(uuid, text);
  return known;
}

int driver_memory(int device, uint64_t *free_bytes, uint64_t *total) {
  struct driver_scope scope;
  size_t free_size = 0, total_size = 0;
  *free_bytes = *total = 0;
  if (!driver_enter(device, &scope)) return 0;
  const int ok = table.memory_info(&free_size, &total_size) == DRIVER_OK;
  driver_leave(&scope);
  if (ok) {
    *free_bytes = free_size;
    *total = total_size;
  }
  return ok;
}

driver_result driver_fault(int device) {
  struct driver_scope scope;
  size_t free_size, total_size;
  if (!driver_enter(device, &scope)) return DRIVER_OK;
  const driver_result result = table.memory_info(&free_size, &total_size);
  driver_leave(&scope);
  return result == DRIVER_OUT_OF_MEMORY ? DRIVER_OK : result;
}

int driver_synchronize(int device) {
  struct driver_scope scope;
  if (!driver_enter(device, &scope)) return 0;
  const int ok = table.synchronize() == DRIVER_OK;
  driver_leave(&scope);
  return ok && (!scope.pushed || !has_context(device) || table.synchronize() == DRIVER_OK);
}
