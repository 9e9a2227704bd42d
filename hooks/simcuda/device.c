// device.c - settings, the beginning and end of every call, devices and their primary contexts.
//
// A forked child has no GPU, as with the real driver: its calls return "not initialised".
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_VERSION = 13000, CONTEXT_DEPTH = 32 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting;  // threads in sim_wait
static struct sim_settings settings;
static struct CUctx_st devices[SIM_MAX_DEVICES];
static struct CUctx_st made[SIM_MAX_DEVICES];  // contexts of the program's; primary NULL: the place is free
static bool configured, initialised, forked;

static _Thread_local struct CUctx_st *contexts[CONTEXT_DEPTH];
static _Thread_local int context_count;

// The size in an environment variable: a number with an optional binary suffix k, m, g or t.
// `fallback` if the variable is unset or has no such value.
static uint64_t size_from(const char *variable, uint64_t fallback) {
  const char *text = getenv(variable);
  if (text == NULL || *text == '\0') return fallback;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  const char *suffixes = "kmgt";
  const char *suffix = *end != '\0' ? strchr(suffixes, *end | 0x20) : NULL;
  if (suffix != NULL) {
    value <<= 10 * (suffix - suffixes + 1);
    end += 1 + (strcmp(end + 1, "iB") == 0 ? 2 : 0);
  }
  if (errno == 0 && end != text && *end == '\0' && *text != '-') return value;
  fprintf(stderr, "simcuda: %s: cannot use %s: want bytes; using %llu\n", variable, text, (unsigned long long)fallback);
  return fallback;
}

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&mutex); }
static void after_fork_in_child(void) {
  forked = true;
  pthread_mutex_unlock(&mutex);
}

static void configure(void) {
  configured = true;
  settings.granularity = size_from("MEMPROF_SIM_GRANULARITY", (uint64_t)2 << 20);
  if (settings.granularity < 65536 || (settings.granularity & (settings.granularity - 1)) != 0) {
    fprintf(stderr, "simcuda: MEMPROF_SIM_GRANULARITY: want a power of two of at least 65536; using 2097152\n");
    settings.granularity = (uint64_t)2 << 20;
  }
  settings.memory = size_from("MEMPROF_SIM_MEMORY", (uint64_t)80 << 30);
  settings.context = size_from("MEMPROF_SIM_CONTEXT", 0);
  uint64_t count = size_from("MEMPROF_SIM_DEVICES", 1);
  settings.devices = count > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : (int)count;
  for (int i = 0; i < settings.devices; i++) devices[i] = (struct CUctx_st){.ordinal = i, .memfd = -1};
  sim_inject_init(getenv("MEMPROF_SIM_FAIL"));
  sim_log_init(getenv("MEMPROF_SIM_LOG"));
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void sim_lock(void) { pthread_mutex_lock(&mutex); }
void sim_unlock(void) { pthread_mutex_unlock(&mutex); }

void sim_wait(void) {
  waiting++;
  pthread_cond_wait(&changed, &mutex);
  waiting--;
}

SIM_API int simcuda_waiting(void) {
  sim_lock();
  const int threads = waiting;
  sim_unlock();
  return threads;
}

void sim_wake(void) { pthread_cond_broadcast(&changed); }

CUresult sim_enter(const char *name, bool needs_init) {
  sim_lock();
  if (!configured) configure();
  CUresult injected = sim_inject(name);
  if (injected != CUDA_SUCCESS) return injected;
  return needs_init && (!initialised || forked) ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult sim_leave(const char *name, CUresult result, const char *format, ...) {
  char arguments[384];
  va_list list;
  va_start(list, format);
  vsnprintf(arguments, sizeof arguments, format, list);
  va_end(list);
  sim_log(name, result, arguments);
  sim_unlock();
  return result;
}

const struct sim_settings *sim_settings(void) { return &settings; }

struct CUctx_st *sim_device(int ordinal) {
  return ordinal >= 0 && ordinal < settings.devices ? &devices[ordinal] : NULL;
}

struct CUctx_st *sim_located(const CUmemLocation *location) {
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) return sim_device(location->id);
  const bool domain = location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN && location->id >> 8 >= 0 && location->id >> 8 <= 1;
  return domain ? sim_device(location->id & 0xff) : NULL;
}

struct CUctx_st *sim_context(void) { return context_count > 0 ? contexts[context_count - 1] : NULL; }

struct CUctx_st *sim_current(void) {
  struct CUctx_st *context = sim_context();
  return context != NULL && context->primary != NULL ? context->primary : context;
}

SIM_API CUresult cuInit(unsigned int flags) {
  CUresult result = sim_enter("cuInit", false);
  if (result == CUDA_SUCCESS && forked) result = CUDA_ERROR_NOT_INITIALIZED;
  if (result == CUDA_SUCCESS && flags != 0) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && settings.devices == 0) result = CUDA_ERROR_NO_DEVICE;
  if (result == CUDA_SUCCESS) initialised = true;
  return sim_leave("cuInit", result, "flags=%u", flags);
}

SIM_API CUresult cuDriverGetVersion(int *version) {
  CUresult result = sim_enter("cuDriverGetVersion", false);
  if (result == CUDA_SUCCESS && version == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *version = DRIVER_VERSION;
  return sim_leave("cuDriverGetVersion", result, "version=%d", DRIVER_VERSION);
}

SIM_API CUresult cuDeviceGetCount(int *count) {
  CUresult result = sim_enter("cuDeviceGetCount", true);
  if (result == CUDA_SUCCESS && count == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *count = settings.devices;
  return sim_leave("cuDeviceGetCount", result, "count=%d", settings.devices);
}

// The result of a call that takes a device by its number.
static CUresult device_call(const char *name, CUdevice device, const void *out) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && out == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && sim_device(device) == NULL) result = CUDA_ERROR_INVALID_DEVICE;
  return result;
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  CUresult result = device_call("cuDeviceGet", ordinal, device);
  if (result == CUDA_SUCCESS) *device = ordinal;
  return sim_leave("cuDeviceGet", result, "device=%d", ordinal);
}

SIM_API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  CUresult result = device_call("cuDeviceGetName", device, name);
  if (result == CUDA_SUCCESS && length <= 0) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) snprintf(name, (size_t)length, "Simulated GPU");
  return sim_leave("cuDeviceGetName", result, "device=%d", device);
}

SIM_API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) {
  CUresult result = device_call("cuDeviceGetUuid", device, uuid);
  if (result == CUDA_SUCCESS) {
    memcpy(uuid, "simulated GPU 00", 16);
    uuid[14] = (unsigned char)('0' + device / 10);
    uuid[15] = (unsigned char)('0' + device % 10);
  }
  return sim_leave("cuDeviceGetUuid", result, "device=%d", device);
}

SIM_API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  CUresult result = device_call("cuDeviceTotalMem", device, bytes);
  if (result == CUDA_SUCCESS) *bytes = settings.memory;
  return sim_leave("cuDeviceTotalMem", result, "device=%d bytes=%llu", device, (unsigned long long)settings.memory);
}

// CUDA 13 has about 150 attributes. Those not named here are 0.
static int attribute_value(int attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    default: return 0;
  }
}

SIM_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  CUresult result = device_call("cuDeviceGetAttribute", device, value);
  if (result == CUDA_SUCCESS && (attribute < 1 || attribute > 160)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *value = attribute_value(attribute);
  return sim_leave("cuDeviceGetAttribute", result, "device=%d attribute=%d", device, attribute);
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  CUresult result = device_call("cuDeviceCanAccessPeer", device, can);
  if (result == CUDA_SUCCESS && sim_device(peer) == NULL) result = CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS) *can = device != peer;
  return sim_leave("cuDeviceCanAccessPeer", result, "device=%d peer=%d", device, peer);
}

static CUresult retain(struct CUctx_st *context) {
  CUresult result = context->retained == 0 ? sim_charge(context, settings.context, &context->context) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) context->retained++;
  return result;
}

static void let_go(struct CUctx_st *context) {
  if (--context->retained == 0) sim_uncharge(&context->context);
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CUresult result = device_call("cuDevicePrimaryCtxRetain", device, context);
  if (result == CUDA_SUCCESS) result = retain(sim_device(device));
  if (result == CUDA_SUCCESS) *context = sim_device(device);
  return sim_leave("cuDevicePrimaryCtxRetain", result, "device=%d", device);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CUresult result = device_call("cuDevicePrimaryCtxRelease", device, &device);
  if (result == CUDA_SUCCESS && sim_device(device)->retained == 0) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) let_go(sim_device(device));
  return sim_leave("cuDevicePrimaryCtxRelease", result, "device=%d", device);
}

SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  CUresult result = device_call("cuDevicePrimaryCtxReset", device, &device);
  if (result == CUDA_SUCCESS) {
    sim_free_all(device);
    sim_uncharge(&sim_device(device)->context);
    sim_device(device)->retained = 0;
  }
  return sim_leave("cuDevicePrimaryCtxReset", result, "device=%d", device);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  CUresult result = device_call("cuDevicePrimaryCtxGetState", device, active);
  if (result == CUDA_SUCCESS) {
    if (flags != NULL) *flags = 0;
    *active = sim_device(device)->retained > 0;
  }
  return sim_leave("cuDevicePrimaryCtxGetState", result, "device=%d", device);
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *context) {
  CUresult result = sim_enter("cuCtxGetCurrent", true);
  if (result == CUDA_SUCCESS && context == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *context = sim_context();
  return sim_leave("cuCtxGetCurrent", result, "%s", "");
}

static bool is_context(CUcontext context) {
  return (context >= devices && context < devices + settings.devices) || (context >= made && context < made + SIM_MAX_DEVICES && context->primary != NULL);
}

SIM_API CUresult cuCtxSetCurrent(CUcontext context) {
  CUresult result = sim_enter("cuCtxSetCurrent", true);
  if (result == CUDA_SUCCESS && context != NULL && !is_context(context)) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) {
    // Replaces the top of the stack; NULL removes it.
    if (context_count > 0) context_count--;
    if (context != NULL) contexts[context_count++] = context;
  }
  return sim_leave("cuCtxSetCurrent", result, "device=%d", context != NULL && is_context(context) ? context->ordinal : -1);
}

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  CUresult result = sim_enter("cuCtxPushCurrent", true);
  if (result == CUDA_SUCCESS && (context == NULL || !is_context(context))) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && context_count == CONTEXT_DEPTH) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) contexts[context_count++] = context;
  return sim_leave("cuCtxPushCurrent", result, "%s", "");
}

SIM_API CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  CUresult result = sim_enter("cuCtxPopCurrent", true);
  if (result == CUDA_SUCCESS && context_count == 0) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) {
    context_count--;
    if (context != NULL) *context = contexts[context_count];
  }
  return sim_leave("cuCtxPopCurrent", result, "%s", "");
}

SIM_API CUresult cuCtxPopCurrent(CUcontext *context) { return cuCtxPopCurrent_v2(context); }

SIM_API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
  CUresult result = device_call("cuCtxCreate", device, context);
  int at = 0;
  while (at < SIM_MAX_DEVICES && made[at].primary != NULL) at++;
  if (result == CUDA_SUCCESS && (context_count == CONTEXT_DEPTH || at == SIM_MAX_DEVICES)) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) result = sim_charge(sim_device(device), settings.context, &made[at].context);
  if (result == CUDA_SUCCESS) {
    made[at].ordinal = device;
    made[at].primary = sim_device(device);
    *context = contexts[context_count++] = &made[at];
  }
  return sim_leave("cuCtxCreate", result, "device=%d flags=%u", device, flags);
}

SIM_API CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags, CUdevice device) {
  (void)parameters;
  return cuCtxCreate_v2(context, flags, device);
}

SIM_API CUresult cuCtxDestroy_v2(CUcontext context) {
  CUresult result = sim_enter("cuCtxDestroy", true);
  if (result == CUDA_SUCCESS && (context == NULL || !is_context(context) || context->primary == NULL)) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) {
    if (sim_context() == context) context_count--;
    sim_uncharge(&context->context);
    context->primary = NULL;
  }
  return sim_leave("cuCtxDestroy", result, "%s", "");
}

SIM_API CUresult cuCtxGetDevice(CUdevice *device) {
  CUresult result = sim_enter("cuCtxGetDevice", true);
  if (result == CUDA_SUCCESS && device == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) *device = sim_current()->ordinal;
  return sim_leave("cuCtxGetDevice", result, "%s", "");
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  CUresult result = sim_enter("cuCtxEnablePeerAccess", true);
  struct CUctx_st *self = sim_current();
  if (result == CUDA_SUCCESS && (self == NULL || !is_context(peer))) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && (flags != 0)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && peer == self) result = CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS && (self->peers >> peer->ordinal & 1) != 0) result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  if (result == CUDA_SUCCESS) self->peers |= (uint32_t)1 << peer->ordinal;
  return sim_leave("cuCtxEnablePeerAccess", result, "%s", "");
}

SIM_API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  CUresult result = sim_enter("cuMemGetInfo", true);
  struct CUctx_st *device = sim_current();
  if (result == CUDA_SUCCESS && device == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS) return sim_leave("cuMemGetInfo", result, "%s", "");
  uint64_t left = settings.memory - device->used;
  if (free_bytes != NULL) *free_bytes = left;
  if (total != NULL) *total = settings.memory;
  return sim_leave("cuMemGetInfo", result, "device=%d free=%llu", device->ordinal, (unsigned long long)left);
}

SIM_API CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) { return cuMemGetInfo_v2(free_bytes, total); }
