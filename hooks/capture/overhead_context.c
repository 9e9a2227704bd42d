// overhead_context.c - what a context takes. The driver has a context's memory told only by
// a context, so NVML is asked before and after, once for each context of the process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "hook.h"
#include "interpose.h"
#include "interpose_internal.h"
#include "overhead.h"
#include "spool.h"

// nvmlMemory_t
struct nvml_memory {
  unsigned long long total, free, used;
};

// Loaded at the first use, and initialised only while a context is made.
static struct {
  int (*init)(void);
  int (*shutdown)(void);
  int (*by_uuid)(const char *, void **);
  int (*memory)(void *, struct nvml_memory *);
} nvml;
static bool loaded;

static void load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
  void *init = real_dlsym(library, "nvmlInit_v2"), *shutdown = real_dlsym(library, "nvmlShutdown");
  void *by_uuid = real_dlsym(library, "nvmlDeviceGetHandleByUUID"), *memory = real_dlsym(library, "nvmlDeviceGetMemoryInfo");
  memcpy(&nvml.init, &init, sizeof init);
  memcpy(&nvml.shutdown, &shutdown, sizeof shutdown);
  memcpy(&nvml.by_uuid, &by_uuid, sizeof by_uuid);
  memcpy(&nvml.memory, &memory, sizeof memory);
  loaded = init != NULL && shutdown != NULL && by_uuid != NULL && memory != NULL;
}

// "GPU-8-4-4-4-12" of 16 bytes.
static bool uuid_of(int device, char text[48]) {
  static struct entry entry = {.name = "cuDeviceGetUuid_v2"};
  cuda_error (*get)(unsigned char *, int) = entry_real(&entry);
  unsigned char bytes[16];
  int handle;
  if (get == NULL || driver_get()->device_get(&handle, device) != DRIVER_OK || get(bytes, handle) != CUDA_OK) return false;
  int length = snprintf(text, 48, "GPU-");
  for (int i = 0; i < 16; i++) {
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    length += snprintf(text + length, (size_t)(48 - length), dash ? "-%02x" : "%02x", bytes[i]);
  }
  return true;
}

static bool used_now(void *device, uint64_t *bytes) {
  struct nvml_memory memory = {0};
  const bool told = nvml.memory(device, &memory) == 0;
  *bytes = memory.used;
  return told;
}

// The device in NVML, which stays initialised for it; NULL if it cannot tell of it.
static void *open_device(int device) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  void *handle;
  char uuid[48];
  pthread_once(&once, load);
  if (!loaded || !uuid_of(device, uuid) || nvml.init() != 0) return NULL;
  if (nvml.by_uuid(uuid, &handle) == 0) return handle;
  nvml.shutdown();
  return NULL;
}

static bool active(int device) {
  static struct entry entry = {.name = "cuDevicePrimaryCtxGetState"};
  cuda_error (*get)(int, unsigned *, int *) = entry_real(&entry);
  unsigned flags;
  int yes = 1, handle;
  return get == NULL || driver_get()->device_get(&handle, device) != DRIVER_OK || get(handle, &flags, &yes) != CUDA_OK || yes;
}

// One at a time on a device: the growth would be told by each.
enum { DEVICES = 64 };
static _Atomic bool making_on[DEVICES];

void overhead_context_begin(struct overhead_context *making, int device, bool primary) {
  *making = (struct overhead_context){.device = -1};
  if (device < 0 || device >= DEVICES || !hook_on() || interpose_own() || driver_get() == NULL || (primary && active(device))) return;
  if (atomic_exchange(&making_on[device], true)) return;
  making->device = device;
  making->nvml = open_device(device);
  if (making->nvml == NULL || used_now(making->nvml, &making->used)) return;
  nvml.shutdown();
  making->nvml = NULL;
}

void overhead_context_end(const struct overhead_context *making, bool made) {
  uint64_t used = 0, free_bytes = 0, total = 0;
  const bool told = making->nvml != NULL && used_now(making->nvml, &used);
  if (making->nvml != NULL) nvml.shutdown();
  if (making->device < 0) return;
  atomic_store(&making_on[making->device], false);
  if (!made) return;
  if (told) {
    overhead_note(making->device, (int64_t)(used - making->used), spool_string("what=context"));
    return;
  }
  // A second context is within what stands for the first.
  if (overhead_noted(making->device) || !driver_memory(making->device, &free_bytes, &total)) return;
  overhead_note(making->device, (int64_t)(total - free_bytes), spool_string("what=context\thow=total"));
}
