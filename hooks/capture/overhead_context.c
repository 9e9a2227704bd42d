// overhead_context.c - what a context takes. The driver has a context's memory told only by
// a context, so NVML is asked before and after, once for each context of the process.
#define _GNU_SOURCE
#include <dlfcn.h>
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

struct nvml {
  int (*init)(void);
  int (*shutdown)(void);
  int (*by_uuid)(const char *, void **);
  int (*memory)(void *, struct nvml_memory *);
};

static bool load(struct nvml *nvml) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return false;
  void *init = real_dlsym(library, "nvmlInit_v2"), *shutdown = real_dlsym(library, "nvmlShutdown");
  void *by_uuid = real_dlsym(library, "nvmlDeviceGetHandleByUUID"), *memory = real_dlsym(library, "nvmlDeviceGetMemoryInfo");
  memcpy(&nvml->init, &init, sizeof init);
  memcpy(&nvml->shutdown, &shutdown, sizeof shutdown);
  memcpy(&nvml->by_uuid, &by_uuid, sizeof by_uuid);
  memcpy(&nvml->memory, &memory, sizeof memory);
  return init != NULL && shutdown != NULL && by_uuid != NULL && memory != NULL;
}

// "GPU-8-4-4-4-12" of 16 bytes.
static bool uuid_of(int device, char text[48]) {
  static struct entry entry = {.name = "cuDeviceGetUuid_v2"};
  cuda_error (*get)(unsigned char *, int) = entry_real(&entry);
  unsigned char bytes[16];
  int handle;
  if (get == NULL || driver_get()->device_get(&handle, device) != DRIVER_OK || get(bytes, handle) != CUDA_OK) return false;
  int length = snprintf(text, 48, "GPU-");
  for (int i = 0; i < 16; i++) length += snprintf(text + length, (size_t)(48 - length), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
  return true;
}

static bool device_used(int device, uint64_t *used) {
  struct nvml nvml = {0};
  struct nvml_memory memory = {0};
  void *handle;
  char uuid[48];
  if (!uuid_of(device, uuid) || !load(&nvml) || nvml.init() != 0) return false;
  const bool told = nvml.by_uuid(uuid, &handle) == 0 && nvml.memory(handle, &memory) == 0;
  nvml.shutdown();
  *used = memory.used;
  return told;
}

static bool active(int device) {
  static struct entry entry = {.name = "cuDevicePrimaryCtxGetState"};
  cuda_error (*get)(int, unsigned *, int *) = entry_real(&entry);
  unsigned flags;
  int yes = 1, handle;
  return get == NULL || driver_get()->device_get(&handle, device) != DRIVER_OK || get(handle, &flags, &yes) != CUDA_OK || yes;
}

void overhead_context_begin(struct overhead_context *making, int device, bool primary) {
  making->device = -1;
  if (!hook_on() || interpose_own() || driver_get() == NULL || (primary && active(device))) return;
  making->device = device;
  making->told = device_used(device, &making->used);
}

void overhead_context_end(const struct overhead_context *making) {
  uint64_t used = 0, free_bytes = 0, total = 0;
  if (making->device < 0) return;
  if (making->told && device_used(making->device, &used)) {
    overhead_note(making->device, (int64_t)(used - making->used), spool_string("what=context"));
    return;
  }
  // A second context is within what stands for the first.
  if (overhead_noted(making->device) || !driver_memory(making->device, &free_bytes, &total)) return;
  overhead_note(making->device, (int64_t)(total - free_bytes), spool_string("what=context\thow=total"));
}
