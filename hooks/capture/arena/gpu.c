// gpu.c - see gpu.h.
#include "arena/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/hook.h"
#include "device/devices.h"
#include "device/overhead.h"

static struct gpu *_Atomic gpus[MOST_DEVICES];
static _Atomic bool unusable[MOST_DEVICES];  // the driver was asked once, and the reason is in the problems file
static pthread_mutex_t arriving = PTHREAD_MUTEX_INITIALIZER;  // held while a device is made; taken before any device's lock

__thread const struct gpu *gpu_held;

struct gpu *gpu_existing(int device) {
  if (!device_valid(device)) return NULL;
  return atomic_load_explicit(&gpus[device], memory_order_acquire);
}

struct gpu *gpu_lock(int device) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu != NULL) lock_take(&gpu->lock);
  return gpu;
}

// Sets *mapped to the bytes that the device's arenas have mapped, which overhead.c subtracts from the device's
// use, and *held to their lock, which the caller releases. False: another thread holds the lock.
static bool try_mapped(int device, struct lock **held, int64_t *mapped) {
  struct gpu *gpu = gpu_existing(device);
  *held = NULL;
  *mapped = 0;
  if (gpu == NULL) return true;
  if (!lock_try(&gpu->lock)) return false;
  *held = &gpu->lock;
  *mapped = (int64_t)gpu->mapped;
  return true;
}

static struct gpu *make_gpu(int device) {
  struct gpu *gpu = calloc(1, sizeof *gpu);
  if (gpu == NULL) return NULL;
  if (!vmm_device_init(&gpu->vmm, device)) {
    atomic_store(&unusable[device], true);
    free(gpu);
    return NULL;
  }
  overhead_leave_out(try_mapped);
  device_note_use(device);
  atomic_store_explicit(&gpus[device], gpu, memory_order_release);
  return gpu;
}

// At the first use of a device.
__attribute__((cold, noinline)) static struct gpu *gpu_arrives(int device) {
  if (!device_valid(device) || atomic_load(&unusable[device]) || driver_get() == NULL) return NULL;
  pthread_mutex_lock(&arriving);
  struct gpu *gpu = gpu_existing(device);
  if (gpu == NULL && !atomic_load(&unusable[device])) gpu = make_gpu(device);
  pthread_mutex_unlock(&arriving);
  return gpu;
}

struct gpu *gpu_get(int device) {
  struct gpu *gpu = gpu_existing(device);
  return gpu != NULL ? gpu : gpu_arrives(device);
}

void gpus_hold(void) { pthread_mutex_lock(&arriving); }
void gpus_let(void) { pthread_mutex_unlock(&arriving); }

uint64_t gpu_left(const struct gpu *gpu) {
  if (gpu->limit == 0) return UINT64_MAX;
  return gpu->limit > gpu->mapped ? gpu->limit - gpu->mapped : 0;
}

void gpu_mapped(struct gpu *gpu, int64_t amount) { gpu->mapped += (uint64_t)amount; }

static void forget(void) { pthread_mutex_init(&arriving, NULL); }

HOOK_PART(.forget = forget);
