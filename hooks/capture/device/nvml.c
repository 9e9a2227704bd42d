// nvml.c - see nvml.h.
#define _GNU_SOURCE
#include "device/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/real_dlsym.h"
#include "device/driver.h"

// nvmlMemory_t
struct nvml_memory {
  unsigned long long total, free, used;
};

// nvmlProcessInfo_t, which nvmlProcessInfo_v2_t is the same as.
struct nvml_process {
  unsigned pid;
  unsigned long long used;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};

// A list of so many is asked for. Drivers 535.43 to 535.86 write entries of 32 bytes, in which
// we may not find ourselves, but for which there is room.
enum { PROCESSES = 256, ROOM = PROCESSES * 32 / sizeof(struct nvml_process) + 1 };

static struct {
  int (*init)(void);
  int (*shutdown)(void);
  int (*by_uuid)(const char *, void **);
  int (*memory)(void *, struct nvml_memory *);
  int (*processes)(void *, unsigned *, struct nvml_process *);  // NULL in old drivers
} nvml;
static bool loaded;

static void load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
  void *init = real_dlsym(library, "nvmlInit_v2"), *shutdown = real_dlsym(library, "nvmlShutdown");
  void *by_uuid = real_dlsym(library, "nvmlDeviceGetHandleByUUID"), *memory = real_dlsym(library, "nvmlDeviceGetMemoryInfo");
  void *processes = real_dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (processes == NULL) processes = real_dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
  memcpy(&nvml.init, &init, sizeof init);
  memcpy(&nvml.shutdown, &shutdown, sizeof shutdown);
  memcpy(&nvml.by_uuid, &by_uuid, sizeof by_uuid);
  memcpy(&nvml.memory, &memory, sizeof memory);
  memcpy(&nvml.processes, &processes, sizeof processes);
  loaded = init != NULL && shutdown != NULL && by_uuid != NULL && memory != NULL;
}

void *nvml_open(int device) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  void *handle;
  char uuid[DRIVER_UUID_TEXT];
  pthread_once(&once, load);
  if (!loaded || !driver_uuid_text(device, uuid) || nvml.init() != 0) return NULL;
  if (nvml.by_uuid(uuid, &handle) == 0) return handle;
  nvml.shutdown();
  return NULL;
}

void nvml_close(void) { nvml.shutdown(); }

bool nvml_used(void *device, uint64_t *bytes) {
  struct nvml_memory memory = {0};
  const bool known = nvml.memory(device, &memory) == 0;
  *bytes = memory.used;
  return known;
}

int64_t nvml_own(void *device, unsigned *others) {
  struct nvml_process list[ROOM] = {0};
  const unsigned ours = (unsigned)getpid();
  unsigned count = PROCESSES;
  uint64_t used = 0;
  *others = 0;
  if (nvml.processes == NULL || nvml.processes(device, &count, list) != 0 || count > PROCESSES) return -1;
  for (unsigned i = 0; i < count; i++) {
    if (list[i].pid != ours) {
      ++*others;
      continue;
    }
    if (list[i].used > INT64_MAX - used) return -1;
    used += list[i].used;
  }
  return (int64_t)used;
}
