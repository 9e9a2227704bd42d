// nvml.c - an NVML that knows the simulated device, and that its context takes 400 MiB of
// memory of which others have 5 GiB.
#include <string.h>

struct memory {
  unsigned long long total, free, used;
};

static int users, readings;

int nvmlInit_v2(void) {
  users++;
  return 0;
}

int nvmlShutdown(void) {
  users--;
  return 0;
}

// "simulated GPU 00", as cuDeviceGetUuid says it.
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = &readings;
  return users == 1 && strcmp(uuid, "GPU-73696d75-6c61-7465-6420-475055203030") == 0 ? 0 : 2;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
  if (users != 1 || device != &readings) return 1;
  memory->total = 80ull << 30;
  memory->used = (5ull << 30) + (readings++ > 0 ? 400ull << 20 : 0);
  memory->free = memory->total - memory->used;
  return 0;
}

int nvml_users(void) { return users; }
