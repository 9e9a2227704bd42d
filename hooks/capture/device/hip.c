// hip.c - AMD's runtime: struct driver over HIP's virtual memory calls.
//
// HIP has CUDA's calls under other names, and its structures have the same layout (hip_runtime_api.h), so most functions
// are taken as they are. ROCm differs in what its calls do, and the functions below hide that:
//
// - Physical memory that was unmapped and released returns to the device only when the *addresses* are freed. So each
//   mapping has a reservation of its own, which unmapping frees. Meanwhile the addresses of the arena are held by a mapping
//   of the host without access, which makes place for the reservation at the moment when memory is mapped.
// - One call cannot unmap several mappings. The caller unmaps one by one.
// - hipMemSetAccess refuses some sizes. Then it is asked for the halves.
// - Memory that can be exported has a file descriptor from its creation, which is not closed with it. None is asked for, so
//   blocks are not shared with other processes.
// - Sizes are multiples of the recommended granularity, as smaller multiples are refused by some versions.
// - Contexts are deprecated: a context is the number of a device, and a stack of them is kept for each thread.
//
// Nothing of ROCm is needed to compile this. It was run on a simulation only: hooks/simhip/.
#define _GNU_SOURCE
#include "device/vendor.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/real_dlsym.h"
#include "device/devices.h"

enum {
  INVALID_VALUE = 1,            // hipErrorInvalidValue
  RECOMMENDED = 1,              // hipMemAllocationGranularityRecommended
  VMM_SUPPORTED = 89,           // hipDeviceAttributeVirtualMemoryManagementSupported
  MOST_NESTED = 16,             // contexts pushed by a thread
  LEAST_GRANULARITY = 2 << 20,  // bytes
  MOST_LOST = 64,
};

// HIP's own functions where those of struct driver do more than call them: symbol, name here, and parameters.
#define OWN(CALL)                                                                                                                        \
  CALL(hipDeviceGetAttribute, attribute, (int *value, int attribute, int device))                                                        \
  CALL(hipGetDevice, get_device, (int *device))                                                                                          \
  CALL(hipSetDevice, set_device, (int device))                                                                                           \
  CALL(hipStreamGetDevice, stream_device, (void *stream, int *device))                                                                   \
  CALL(hipMemAddressReserve, reserve, (void **at, size_t bytes, size_t alignment, void *hint, unsigned long long flags))                 \
  CALL(hipMemAddressFree, unreserve, (void *at, size_t bytes))                                                                           \
  CALL(hipMemMap, map, (void *at, size_t bytes, size_t offset, driver_handle handle, unsigned long long flags))                          \
  CALL(hipMemUnmap, unmap, (void *at, size_t bytes))                                                                                     \
  CALL(hipMemSetAccess, set_access, (void *at, size_t bytes, const struct driver_access *access, size_t count))                          \
  CALL(hipMemGetAllocationGranularity, granularity, (size_t *bytes, const struct driver_properties *properties, int option))

#define MEMBER(symbol, name, PARAMETERS) driver_result(*name) PARAMETERS;
static struct {
  OWN(MEMBER)
} hip;

#define ROW(symbol, name, PARAMETERS) {#symbol, &hip.name},
static const struct {
  const char *symbol;
  void *function;
} own[] = {OWN(ROW)};

// Attribute 0 stands in this file for those that HIP does not have: their value is 0.
static driver_result device_attribute(int *value, int attribute, int device) {
  *value = 0;
  return attribute == 0 ? DRIVER_OK : hip.attribute(value, attribute, device);
}

// A context is 1 + the number of its device, so that none is NULL.
static void *context_of(int device) { return (void *)(uintptr_t)(device + 1); }

static _Thread_local int before[MOST_NESTED];  // the devices that were current before each push
static _Thread_local int nested;

static driver_result primary_retain(void **context, int device) {
  *context = context_of(device);
  return DRIVER_OK;
}

static driver_result context_get(void **context) {
  int device = 0;
  const driver_result result = hip.get_device(&device);
  *context = result == DRIVER_OK ? context_of(device) : NULL;
  return result;
}

static driver_result context_push(void *context) {
  if (nested == MOST_NESTED) return INVALID_VALUE;
  driver_result result = hip.get_device(&before[nested]);
  if (result == DRIVER_OK) result = hip.set_device((int)(uintptr_t)context - 1);
  if (result == DRIVER_OK) nested++;
  return result;
}

static driver_result context_pop(void **context) {
  if (nested == 0) return INVALID_VALUE;
  const driver_result result = context_get(context);
  nested--;
  const driver_result back = hip.set_device(before[nested]);
  return result == DRIVER_OK ? back : result;
}

static driver_result stream_context(void *stream, void **context) {
  int device = 0;
  const driver_result result = hip.stream_device(stream, &device);
  *context = result == DRIVER_OK ? context_of(device) : NULL;
  return result;
}

// Held addresses that something else in the process took while they were neither held nor reserved. They stay as they are:
// they are no longer the hook's.
static struct range {
  uint64_t addr, bytes;
} lost[MOST_LOST];
static int lost_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_lost(uint64_t addr, size_t bytes) {
  for (int i = 0; i < lost_count; i++) {
    if (lost[i].addr < addr + bytes && addr < lost[i].addr + lost[i].bytes) return true;
  }
  return false;
}

// Holds free addresses. False: they are not free.
static bool hold(uint64_t addr, size_t bytes) {
  void *at = (void *)(uintptr_t)addr;
  void *got = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == at) return true;
  if (got != MAP_FAILED) munmap(got, bytes);  // a kernel before 4.17, which takes the address as a hint
  return false;
}

static void hold_again(uint64_t addr, size_t bytes) {
  if (hold(addr, bytes)) return;
  pthread_mutex_lock(&lock);
  if (lost_count < MOST_LOST) lost[lost_count++] = (struct range){addr, bytes};
  pthread_mutex_unlock(&lock);
}

static driver_result reserve(uint64_t *addr, size_t bytes, size_t alignment, uint64_t at, unsigned long long flags) {
  (void)alignment, (void)at, (void)flags;
  uint8_t *found = mmap(NULL, bytes + LEAST_GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return DRIVER_OUT_OF_MEMORY;
  const size_t skipped = -(uintptr_t)found & (LEAST_GRANULARITY - 1);
  if (skipped > 0) munmap(found, skipped);
  munmap(found + skipped + bytes, LEAST_GRANULARITY - skipped);
  *addr = (uintptr_t)found + skipped;
  return DRIVER_OK;
}

// Everything in the range has been unmapped, so all of it is held, but for what was lost.
static driver_result unreserve(uint64_t addr, size_t bytes) {
  pthread_mutex_lock(&lock);
  const bool whole = !is_lost(addr, bytes);
  pthread_mutex_unlock(&lock);
  if (whole) munmap((void *)(uintptr_t)addr, bytes);
  return DRIVER_OK;
}

// A reservation at exactly these addresses.
static driver_result reserve_at(void *at, size_t bytes) {
  void *got = NULL;
  driver_result result = hip.reserve(&got, bytes, 0, at, 0);
  if (result != DRIVER_OK || got == at) return result;
  hip.unreserve(got, bytes);
  return INVALID_VALUE;
}

static driver_result map(uint64_t addr, size_t bytes, size_t offset, driver_handle handle, unsigned long long flags) {
  void *at = (void *)(uintptr_t)addr;
  pthread_mutex_lock(&lock);
  const bool ours = !is_lost(addr, bytes);
  pthread_mutex_unlock(&lock);
  if (!ours) return INVALID_VALUE;
  munmap(at, bytes);
  driver_result result = reserve_at(at, bytes);
  if (result == DRIVER_OK && (result = hip.map(at, bytes, offset, handle, flags)) != DRIVER_OK) hip.unreserve(at, bytes);
  if (result != DRIVER_OK) hold_again(addr, bytes);
  return result;
}

static driver_result unmap(uint64_t addr, size_t bytes) {
  void *at = (void *)(uintptr_t)addr;
  driver_result result = hip.unmap(at, bytes);
  if (result == DRIVER_OK) result = hip.unreserve(at, bytes);
  if (result == DRIVER_OK) hold_again(addr, bytes);
  return result;
}

static driver_result set_access(uint64_t addr, size_t bytes, const struct driver_access *access, size_t count) {
  const driver_result result = hip.set_access((void *)(uintptr_t)addr, bytes, access, count);
  if (result == DRIVER_OK || bytes <= LEAST_GRANULARITY) return result;
  const size_t half = bytes / 2 & ~(size_t)(LEAST_GRANULARITY - 1);
  const driver_result first = set_access(addr, half, access, count);
  return first == DRIVER_OK ? set_access(addr + half, bytes - half, access, count) : first;
}

static driver_result granularity(size_t *bytes, const struct driver_properties *properties, int option) {
  (void)option;
  const driver_result result = hip.granularity(bytes, properties, RECOMMENDED);
  if (result == DRIVER_OK && *bytes < LEAST_GRANULARITY) *bytes = LEAST_GRANULARITY;
  return result;
}

static const char *adapt(struct driver *table, void *library) {
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    void *function = real_dlsym(library, own[i].symbol);
    if (function == NULL) return own[i].symbol;
    memcpy(own[i].function, &function, sizeof function);
  }
  table->device_attribute = device_attribute;
  table->primary_retain = primary_retain;
  table->context_get = context_get;
  table->context_device = hip.get_device;
  table->context_push = context_push;
  table->context_pop = context_pop;
  table->stream_context = stream_context;
  table->reserve = reserve;
  table->unreserve = unreserve;
  table->map = map;
  table->unmap = unmap;
  table->set_access = set_access;
  table->granularity = granularity;
  return NULL;
}

static const struct vendor_symbol needed[] = {
    VENDOR_SYMBOL("hipInit", init),
    VENDOR_SYMBOL("hipDeviceGet", device_get),
    VENDOR_SYMBOL("hipGetDeviceCount", device_count),
    VENDOR_SYMBOL("hipDeviceTotalMem", device_total),
    VENDOR_SYMBOL("hipDeviceCanAccessPeer", can_access),
    VENDOR_SYMBOL("hipDeviceSynchronize", synchronize),
    VENDOR_SYMBOL("hipMemGetInfo", memory_info),
    VENDOR_SYMBOL("hipMemCreate", create),
    VENDOR_SYMBOL("hipMemRelease", release),
    VENDOR_SYMBOL("hipEventCreateWithFlags", event_create),
    VENDOR_SYMBOL("hipEventRecord", event_record),
    VENDOR_SYMBOL("hipEventQuery", event_query),
    VENDOR_SYMBOL("hipEventDestroy", event_destroy),
    VENDOR_SYMBOL("hipStreamIsCapturing", stream_capturing),
    {0},
};

static const struct vendor_symbol optional[] = {
    VENDOR_SYMBOL("hipDeviceGetUuid", device_uuid),
    VENDOR_SYMBOL("hipDevicePrimaryCtxGetState", primary_state),
    VENDOR_SYMBOL("hipHostMalloc", host_alloc),
    VENDOR_SYMBOL("hipHostFree", host_free),
    VENDOR_SYMBOL("hipHostRegister", host_register),
    VENDOR_SYMBOL("hipHostUnregister", host_unregister),
    VENDOR_SYMBOL("hipMemcpyDtoHAsync", copy_out),
    VENDOR_SYMBOL("hipMemcpyHtoDAsync", copy_in),
    VENDOR_SYMBOL("hipStreamCreateWithFlags", stream_create),
    VENDOR_SYMBOL("hipStreamSynchronize", stream_synchronize),
    VENDOR_SYMBOL("hipStreamDestroy", stream_destroy),
    VENDOR_SYMBOL("hipEventSynchronize", event_synchronize),
    VENDOR_SYMBOL("hipDeviceGetDefaultMemPool", default_pool),
    VENDOR_SYMBOL("hipMemPoolGetAttribute", pool_attribute),
    {0},
};

const struct vendor vendor_hip = {
    .name = "HIP",
    .libraries = {"libamdhip64.so.7", "libamdhip64.so.6"},
    .needed = needed,
    .optional = optional,
    .adapt = adapt,
    .attributes = {.vmm = VMM_SUPPORTED},
};
