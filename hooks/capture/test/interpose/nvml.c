// nvml.c - an NVML that knows the simulated device, and says of it what a test wants.
//
// Built with -DSECOND it has the list of processes in its second version only, as drivers
// before 510 and 535.98 have.
#include "nvml.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7 };

struct memory {
  unsigned long long total, free, used;
};

static const struct nvml_scene *scene;
static int users, readings, lists;
static char card;

void nvml_play(const struct nvml_scene *new_scene) { scene = new_scene; }
int nvml_users(void) { return users; }
int nvml_asked(void) { return readings + lists; }

int nvmlInit_v2(void) {
  users++;
  return SUCCESS;
}

int nvmlShutdown(void) {
  users--;
  return SUCCESS;
}

// "simulated GPU 00", as cuDeviceGetUuid says it.
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = &card;
  return users == 1 && strcmp(uuid, "GPU-73696d75-6c61-7465-6420-475055203030") == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  if (users != 1 || device != &card) return UNINITIALIZED;
  memory->total = 80ull << 30;
  memory->used = scene->used[readings++ > 0];
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

static int list_processes(void *device, unsigned *count, void *out) {
  if (users != 1 || device != &card) return UNINITIALIZED;
  const int after = lists++ > 0;
  if (scene->live != NULL) {
    const struct nvml_entry ours = {(unsigned)getpid(), after ? scene->live() : 0, -1, -1};
    memcpy(out, &ours, sizeof ours);
    *count = after;  // there is no context the first time
    return SUCCESS;
  }
  const unsigned there = scene->count[after], room = *count;
  const size_t size = scene->wide ? 32 : sizeof(struct nvml_entry);
  if (scene->error != SUCCESS) return scene->error;
  *count = there;
  if (room < there) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < there; i++) {
    memset((char *)out + i * size, 0, size);
    memcpy((char *)out + i * size, &scene->listed[after][i], sizeof(struct nvml_entry));
  }
  return SUCCESS;
}

#ifdef SECOND
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *out) { return list_processes(device, count, out); }
#else
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *out) { return list_processes(device, count, out); }
#endif
