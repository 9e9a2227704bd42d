// nvml.c - as much of the management library as memprof asks, with two made-up GPUs.
//
// Built with -DOLD it is one that has no second version of anything, as drivers before 510.
#include <string.h>

typedef void *device;
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7 };

static char gpus[2];

static int count(unsigned *n) {
  *n = 2;
  return SUCCESS;
}

static int by_index(unsigned index, device *gpu) {
  if (index >= 2) return INVALID_ARGUMENT;
  *gpu = &gpus[index];
  return SUCCESS;
}

// nvmlMemory_t: used with what the driver keeps for itself
int nvmlDeviceGetMemoryInfo(device gpu, unsigned long long memory[3]) {
  memory[0] = 1000, memory[2] = gpu == &gpus[0] ? 150 : 650, memory[1] = memory[0] - memory[2];
  return SUCCESS;
}

const char *nvmlErrorString(int code) { return code == SUCCESS ? "success" : "failure"; }
int nvmlShutdown(void) { return SUCCESS; }

struct process {
  unsigned pid;
  unsigned long long used;
#ifndef OLD
  unsigned gpu_instance, compute_instance;
#endif
};

// The first GPU has three processes, and the driver does not report the use of one.
static int processes(device gpu, unsigned *room, struct process *out) {
  static const struct process all[] = {{.pid = 71, .used = 60}, {.pid = 72, .used = ~0ull}, {.pid = 73, .used = 40}};
  const unsigned there = gpu == &gpus[0] ? 3 : 0, fit = *room;
  *room = there;
  if (fit < there) return INSUFFICIENT_SIZE;
  memcpy(out, all, there * sizeof *out);
  return SUCCESS;
}

#ifdef OLD
int nvmlInit(void) { return SUCCESS; }
int nvmlDeviceGetCount(unsigned *n) { return count(n); }
int nvmlDeviceGetHandleByIndex(unsigned index, device *gpu) { return by_index(index, gpu); }
int nvmlDeviceGetComputeRunningProcesses(device gpu, unsigned *room, struct process *out) { return processes(gpu, room, out); }
#else
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *n) { return count(n); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *gpu) { return by_index(index, gpu); }
int nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *room, struct process *out) { return processes(gpu, room, out); }

int nvmlDeviceGetMemoryInfo_v2(device gpu, struct memory_v2 *memory) {
  if (memory->version != (sizeof *memory | 2u << 24)) return INVALID_ARGUMENT;
  memory->total = 1000, memory->reserved = 50, memory->used = gpu == &gpus[0] ? 100 : 600;
  memory->free = memory->total - memory->reserved - memory->used;
  return SUCCESS;
}
#endif
