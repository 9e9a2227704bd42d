// driver.c - see driver.h.
#include "device/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/problem.h"
#include "base/real_dlsym.h"
#include "device/overhead.h"

enum { MOST_DEVICES = 64 };

static struct driver table;
static bool usable;
static void *contexts[MOST_DEVICES];  // primary contexts, retained for good
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct name {
  const char *symbol;
  size_t offset;
};

#define ENTRY(symbol, member) {symbol, offsetof(struct driver, member)}
static const struct name names[] = {
    ENTRY("cuInit", init),
    ENTRY("cuDeviceGet", device_get),
    ENTRY("cuDeviceGetCount", device_count),
    ENTRY("cuDeviceGetAttribute", device_attribute),
    ENTRY("cuDeviceTotalMem_v2", device_total),
    ENTRY("cuDeviceCanAccessPeer", can_access),
    ENTRY("cuDevicePrimaryCtxRetain", primary_retain),
    ENTRY("cuCtxGetCurrent", context_get),
    ENTRY("cuCtxGetDevice", context_device),
    ENTRY("cuCtxPushCurrent_v2", context_push),
    ENTRY("cuCtxPopCurrent_v2", context_pop),
    ENTRY("cuCtxSynchronize", synchronize),
    ENTRY("cuMemGetInfo_v2", memory_info),
    ENTRY("cuMemAddressReserve", reserve),
    ENTRY("cuMemAddressFree", unreserve),
    ENTRY("cuMemCreate", create),
    ENTRY("cuMemRelease", release),
    ENTRY("cuMemMap", map),
    ENTRY("cuMemUnmap", unmap),
    ENTRY("cuMemSetAccess", set_access),
    ENTRY("cuMemGetAllocationGranularity", granularity),
    ENTRY("cuEventCreate", event_create),
    ENTRY("cuEventRecord", event_record),
    ENTRY("cuEventQuery", event_query),
    ENTRY("cuEventDestroy_v2", event_destroy),
    ENTRY("cuStreamIsCapturing", stream_capturing),
    ENTRY("cuStreamGetCtx", stream_context),
};

// What the hook does without where the driver is too old for it.
static const struct name optional[] = {
    ENTRY("cuDeviceGetUuid_v2", device_uuid),
    ENTRY("cuDevicePrimaryCtxGetState", primary_state),
    ENTRY("cuMemExportToShareableHandle", export_handle),
    ENTRY("cuMemImportFromShareableHandle", import_handle),
    ENTRY("cuMemHostAlloc", host_alloc),
    ENTRY("cuMemFreeHost", host_free),
    ENTRY("cuMemcpyDtoHAsync_v2", copy_out),
    ENTRY("cuMemcpyHtoDAsync_v2", copy_in),
    ENTRY("cuStreamCreate", stream_create),
    ENTRY("cuStreamSynchronize", stream_synchronize),
    ENTRY("cuStreamDestroy_v2", stream_destroy),
};

static void load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    problem("no CUDA driver: %s", dlerror());
    return;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *function = real_dlsym(library, names[i].symbol);
    if (function == NULL) {
      problem("the CUDA driver has no %s", names[i].symbol);
      return;
    }
    memcpy((char *)&table + names[i].offset, &function, sizeof function);
  }
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
    void *function = real_dlsym(library, optional[i].symbol);
    memcpy((char *)&table + optional[i].offset, &function, sizeof function);
  }
  const driver_result result = table.init(0);
  if (result != DRIVER_OK) {
    problem("cuInit: error %d", result);
    return;
  }
  usable = true;
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

static void *primary_context(int device) {
  if (device < 0 || device >= MOST_DEVICES) return NULL;
  void *context = known_context(device);
  if (context != NULL) return context;
  struct overhead_context making;
  overhead_context_begin(&making, device, true);
  pthread_mutex_lock(&lock);
  if (contexts[device] == NULL) {
    int handle;
    if (table.device_get(&handle, device) != DRIVER_OK || table.primary_retain(&contexts[device], handle) != DRIVER_OK) {
      contexts[device] = NULL;
    }
  }
  context = contexts[device];
  pthread_mutex_unlock(&lock);
  overhead_context_end(&making, context != NULL);
  return context;
}

int driver_enter(int device, struct driver_scope *scope) {
  scope->pushed = 0;
  int current, handle;
  if (table.context_device(&current) == DRIVER_OK && table.device_get(&handle, device) == DRIVER_OK && current == handle) return 1;
  void *context = primary_context(device);
  if (context == NULL || table.context_push(context) != DRIVER_OK) return 0;
  scope->pushed = 1;
  return 1;
}

void driver_leave(const struct driver_scope *scope) {
  void *context;
  if (scope->pushed) table.context_pop(&context);
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

int driver_synchronize(int device) {
  struct driver_scope scope;
  if (!driver_enter(device, &scope)) return 0;
  const int ok = table.synchronize() == DRIVER_OK;
  driver_leave(&scope);
  return ok;
}
