// overhead_context.c - what a context takes. The driver has a context's memory told only by
// a context, so NVML is asked before and after, once for each context of the process: what
// this process uses of the device, and for want of that what is used of it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/real_dlsym.h"
#include "device/driver.h"
#include "device/overhead.h"
#include "device/own_calls.h"
#include "interpose/internal.h"
#include "spool/spool.h"

// nvmlMemory_t
struct nvml_memory {
  unsigned long long total, free, used;
};

// nvmlProcessInfo_t, which nvmlProcessInfo_v2_t is the same as.
struct nvml_process {
  unsigned pid;
  unsigned long long used;  // all ones: not told
  unsigned gpu_instance, compute_instance;
};

// A list of so many is asked for. Drivers 535.43 to 535.86 write entries of 32 bytes, in which
// we may not find ourselves, but for which there is room.
enum { PROCESSES = 256, ROOM = PROCESSES * 32 / sizeof(struct nvml_process) + 1 };

// Loaded at the first use. Initialised while a context is made, and from then on if that shows
// that this process is listed: a list takes some 15 us then, where an initialisation takes 10 ms.
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

// What this process uses of the device, 0 if it is not listed; -1 if NVML does not say. There
// is an entry for each part of a card (MIG) that a process uses. Others: how many entries are not ours.
static int64_t own_now(void *device, unsigned *others) {
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

// The devices in NVML that list this process; each has NVML initialised once.
static void *_Atomic listing[DEVICES];

int64_t overhead_own(int device) {
  void *found = device >= 0 && device < DEVICES ? atomic_load(&listing[device]) : NULL;
  unsigned others;
  const int64_t own = found != NULL ? own_now(found, &others) : -1;
  return own > 0 ? own : -1;  // 0: not listed, though it has a context there
}

// Whether NVML stays initialised for the device from now on.
static bool keep(int device, void *found) {
  void *none = NULL;
  return atomic_compare_exchange_strong(&listing[device], &none, found);
}

static void forget(void) {
  for (int i = 0; i < DEVICES; i++) atomic_store(&listing[i], NULL);
}

void overhead_context_begin(struct overhead_context *making, int device, bool primary) {
  *making = (struct overhead_context){.device = -1};
  if (device < 0 || device >= DEVICES || !hook_on() || own_calls() || driver_get() == NULL || (primary && active(device))) return;
  if (atomic_exchange(&making_on[device], true)) return;
  making->device = device;
  making->nvml = open_device(device);
  if (making->nvml == NULL) return;
  if (used_now(making->nvml, &making->used)) {
    unsigned others;
    making->own = own_now(making->nvml, &others);
    return;
  }
  nvml.shutdown();
  making->nvml = NULL;
}

// By how much use grew, and whose. A context takes something: where this process's use is not
// seen to grow it is hidden, or what is listed by its id is another one outside of our
// container; and where the device's did not, others gave back meanwhile.
static bool growth(const struct overhead_context *making, int64_t *bytes, bool *own_use, char text[64]) {
  unsigned others = 0;
  const int64_t own = making->own >= 0 ? own_now(making->nvml, &others) : -1;
  uint64_t used = 0;
  strcpy(text, "what=context");
  *bytes = own - making->own;
  *own_use = own >= 0 && *bytes > 0;
  if (*own_use) return true;
  strcpy(text, "what=context\thow=device");
  if (others > 0) snprintf(text, 64, "what=context\thow=device\tothers=%u", others);
  const bool told = used_now(making->nvml, &used);
  *bytes = (int64_t)(used - making->used);
  return told && *bytes > 0;
}

void overhead_context_end(const struct overhead_context *making, bool made) {
  uint64_t free_bytes, total;
  int64_t bytes = 0;
  bool own_use = false;
  char text[64];
  const bool measured = made && making->nvml != NULL && growth(making, &bytes, &own_use, text);
  if (making->nvml != NULL && !(own_use && keep(making->device, making->nvml))) nvml.shutdown();
  if (making->device < 0) return;
  atomic_store(&making_on[making->device], false);
  if (!made) return;
  overhead_seen(making->device);
  if (measured) overhead_note(making->device, bytes, spool_string(text));
  // A second context is within what stands for the first.
  if (making->nvml != NULL || overhead_noted(making->device) || !driver_memory(making->device, &free_bytes, &total)) return;
  overhead_note(making->device, (int64_t)(total - free_bytes), spool_string("what=context\thow=total"));
}

HOOK_PART(.forget = forget);
