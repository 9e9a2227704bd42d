// cuda.c - see cuda.h.
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
  INVALID_DEVICE = 101,        // CUDA_ERROR_INVALID_DEVICE
  ATTRIBUTE_VMM = 102,         // ..._VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  ATTRIBUTE_RDMA_VMM = 110,    // ..._GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
  STREAM_NON_BLOCKING = 1,     // CU_STREAM_NON_BLOCKING
  ALLOCATION_PINNED = 1,       // CU_MEM_ALLOCATION_TYPE_PINNED
  LOCATION_DEVICE = 1,         // CU_MEM_LOCATION_TYPE_DEVICE
  GRANULARITY_MINIMUM = 0,     // CU_MEM_ALLOC_GRANULARITY_MINIMUM
  ATTACH_GLOBAL = 1,           // CU_MEM_ATTACH_GLOBAL
  CAPTURE_RELAXED = 2,         // CU_STREAM_CAPTURE_MODE_RELAXED: the other calls go on as ever
  NOT_FOUND = 500,             // CUDA_ERROR_NOT_FOUND
};

// CUmemAllocationProp, as the driver's binary interface has it.
struct allocation_properties {
  int type, handle_types, location_type, location_id;
  void *win32;
  unsigned char flags[8];
};

// dlsym's result goes through memory: ISO C has no conversion from void * to a function.
static void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
}

int rerun_open_driver(struct rerun_cuda *cuda, const char *path, char *why, size_t size) {
  memset(cuda, 0, sizeof *cuda);
  cuda->current = -1;
  cuda->driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!cuda->driver) {
    const char *reason = dlerror();
    snprintf(why, size, "%s", reason ? reason : "dlopen failed");
    return -1;
  }
#define FIND(symbol, name, PARAMETERS) find(cuda->driver, #symbol, &cuda->name);
  RERUN_DRIVER(FIND)
  if (!cuda->init || !cuda->device_count || !cuda->device_get || !cuda->retain || !cuda->set_current || !cuda->mem_alloc ||
      !cuda->mem_free || !cuda->stream_create) {
    snprintf(why, size, "%s is not a CUDA driver", path);
    return -1;
  }
  return cuda->init(0);
}

int rerun_count(const struct rerun_cuda *cuda, int *version, int *devices) {
  *version = 0;
  if (cuda->driver_version && cuda->driver_version(version) != 0) *version = 0;
  return cuda->device_count(devices);
}

void rerun_describe(const struct rerun_cuda *cuda, int ordinal, struct rerun_device *device) {
  *device = (struct rerun_device){.total = -1, .granularity = -1, .vmm = -1, .rdma = -1};
  int handle = 0;
  if (cuda->device_get(&handle, ordinal) != 0) return;
  if (!cuda->device_name || cuda->device_name(device->name, sizeof device->name, handle) != 0) device->name[0] = 0;
  size_t bytes = 0;
  if (cuda->device_total && cuda->device_total(&bytes, handle) == 0) device->total = (int64_t)bytes;
  int value = 0;
  if (cuda->device_attribute && cuda->device_attribute(&value, ATTRIBUTE_VMM, handle) == 0) device->vmm = value != 0;
  if (cuda->device_attribute && cuda->device_attribute(&value, ATTRIBUTE_RDMA_VMM, handle) == 0) device->rdma = value != 0;
  struct allocation_properties properties = {
      .type = ALLOCATION_PINNED, .location_type = LOCATION_DEVICE, .location_id = handle};
  if (cuda->granularity && cuda->granularity(&bytes, &properties, GRANULARITY_MINIMUM) == 0) device->granularity = (int64_t)bytes;
}

const char *rerun_error_name(const struct rerun_cuda *cuda, int error) {
  const char *name = NULL;
  if (cuda->error_name && cuda->error_name(error, &name) == 0 && name) return name;
  return "unknown CUDA error";
}

int rerun_enter(struct rerun_cuda *cuda, int device) {
  if (cuda->current == device) return 0;
  if (device < 0 || device >= RERUN_DEVICES) return INVALID_DEVICE;
  if (!cuda->contexts[device]) {
    int handle = 0;
    int error = cuda->device_get(&handle, device);
    if (error == 0) error = cuda->retain(&cuda->contexts[device], handle);
    if (error != 0) return error;
  }
  int error = cuda->set_current(cuda->contexts[device]);
  if (error == 0) cuda->current = device;
  return error;
}

int rerun_stream(struct rerun_cuda *cuda, int device, uintptr_t *stream) {
  void *made = NULL;
  int error = rerun_enter(cuda, device);
  if (error == 0) error = cuda->stream_create(&made, STREAM_NON_BLOCKING);
  *stream = (uintptr_t)made;
  return error;
}

static int take_host(const struct rerun_cuda *cuda, size_t bytes, uintptr_t *address) {
  void *pointer = NULL;
  int error = cuda->host_alloc && cuda->host_free ? cuda->host_alloc(&pointer, bytes, 0) : NOT_FOUND;
  *address = (uintptr_t)pointer;
  return error;
}

int rerun_take(struct rerun_cuda *cuda, int device, enum rerun_memory memory, uintptr_t stream, size_t bytes, uintptr_t *address) {
  int error = rerun_enter(cuda, device);
  if (error != 0) return error;
  switch (memory) {
    case RERUN_DEVICE: return cuda->mem_alloc(address, bytes);
    case RERUN_MANAGED: return cuda->mem_alloc_managed ? cuda->mem_alloc_managed(address, bytes, ATTACH_GLOBAL) : NOT_FOUND;
    case RERUN_HOST: return take_host(cuda, bytes, address);
    case RERUN_POOL: return cuda->mem_alloc_async && cuda->mem_free_async ? cuda->mem_alloc_async(address, bytes, (void *)stream) : NOT_FOUND;
  }
  return NOT_FOUND;
}

int rerun_give(struct rerun_cuda *cuda, int device, enum rerun_memory memory, uintptr_t stream, uintptr_t address) {
  int error = rerun_enter(cuda, device);
  if (error != 0) return error;
  switch (memory) {
    case RERUN_DEVICE:
    case RERUN_MANAGED: return cuda->mem_free(address);
    case RERUN_HOST: return cuda->host_free((void *)address);
    case RERUN_POOL: return cuda->mem_free_async(address, (void *)stream);
  }
  return NOT_FOUND;
}

int rerun_capture_begin(struct rerun_cuda *cuda, int device, uintptr_t stream) {
  int error = rerun_enter(cuda, device);
  if (error != 0) return error;
  return cuda->begin_capture && cuda->end_capture ? cuda->begin_capture((void *)stream, CAPTURE_RELAXED) : NOT_FOUND;
}

int rerun_capture_end(struct rerun_cuda *cuda, int device, uintptr_t stream) {
  void *graph = NULL;
  int error = rerun_enter(cuda, device);
  if (error == 0) error = cuda->end_capture((void *)stream, &graph);
  if (error == 0 && graph && cuda->graph_destroy) error = cuda->graph_destroy(graph);
  return error;
}
