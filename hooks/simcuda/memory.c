// memory.c - plain device memory (cuMemAlloc and its kin), host memory, copies and fills.
//
// A plain allocation has a reservation, an extent and a mapping of its own, accessible to every
// device. Its size is rounded up to 64 KiB if it is below the granularity, else to the
// granularity. Copies and fills are done immediately, on any stream. As on a card, a copy from or
// to device memory that is not mapped, or not accessible, returns an error and does not crash.
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_UNIT = 65536 };

static uint64_t round_up(uint64_t size) {
  uint64_t unit = size < sim_settings()->granularity ? SMALL_UNIT : sim_settings()->granularity;
  return (size + unit - 1) / unit * unit;
}

// Addresses of plain allocations. cuMemFree refuses other mappings.
static uint64_t *plain;
static size_t plain_count, plain_capacity;

static bool room_for_plain(void) {
  if (plain_count < plain_capacity) return true;
  size_t capacity = plain_capacity == 0 ? 64 : 2 * plain_capacity;
  uint64_t *grown = realloc(plain, capacity * sizeof *grown);
  if (grown == NULL) return false;
  plain = grown;
  plain_capacity = capacity;
  return true;
}

static size_t find_plain(uint64_t addr) {
  size_t low = 0, high = plain_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (plain[middle] < addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static CUresult allocate(uint64_t size, uint64_t *addr) {
  struct CUctx_st *device = sim_current();
  struct sim_extent *extent = NULL;
  if (device == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > sim_settings()->memory || !room_for_plain()) return CUDA_ERROR_OUT_OF_MEMORY;
  size = round_up(size);
  CUresult result = sim_extent_create(device, size, &extent);
  if (result != CUDA_SUCCESS) return result;
  result = sim_reserve(size, SMALL_UNIT, 0, addr);
  if (result == CUDA_SUCCESS) {
    result = sim_map(*addr, extent);
    for (int i = 0; result == CUDA_SUCCESS && i < sim_settings()->devices; i++)
      result = sim_protect(*addr, size, i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) {
      sim_unmap(*addr, size);
      sim_unreserve(*addr, size);
    }
  }
  extent->handles = 0;  // only the mapping refers to it
  if (result != CUDA_SUCCESS) {
    sim_extent_release(extent);
    return result;
  }
  size_t at = find_plain(*addr);
  memmove(plain + at + 1, plain + at, (plain_count - at) * sizeof *plain);
  plain[at] = *addr;
  plain_count++;
  return CUDA_SUCCESS;
}

static CUresult deallocate(uint64_t addr) {
  uint64_t start, size;
  size_t at = find_plain(addr);
  if (addr == 0) return CUDA_SUCCESS;
  if (sim_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  if (at == plain_count || plain[at] != addr || sim_mapping(addr, &start, &size) == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = sim_unmap(start, size);
  if (result != CUDA_SUCCESS) return result;
  memmove(plain + at, plain + at + 1, (plain_count - at - 1) * sizeof *plain);
  plain_count--;
  sim_freed(start);
  return sim_unreserve(start, size);
}

// A reset of a device frees all its plain allocations.
void sim_free_all(int device) {
  for (size_t i = plain_count; i-- > 0;) {
    uint64_t start, size;
    const struct sim_extent *extent = sim_mapping(plain[i], &start, &size);
    if (extent == NULL || extent->device != device) continue;
    sim_unmap(start, size);
    memmove(plain + i, plain + i + 1, (plain_count - i - 1) * sizeof *plain);
    plain_count--;
    sim_freed(start);
    sim_unreserve(start, size);
  }
}

CUresult sim_allocate(uint64_t size, uint64_t *addr) { return allocate(size, addr); }

bool sim_plain(uint64_t addr) {
  size_t at = find_plain(addr);
  return at < plain_count && plain[at] == addr;
}

// Calls that are not in stream order are forbidden during a capture.
static CUresult allocate_call(const char *name, CUdeviceptr *addr, size_t size, bool ordered) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && !ordered) result = sim_forbidden();
  uint64_t start = 0;
  if (result == CUDA_SUCCESS && addr == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = ordered ? sim_allocate_pooled(size, &start) : allocate(size, &start);
  if (result == CUDA_SUCCESS) *addr = start;
  return sim_leave(name, result, "size=%zu addr=0x%llx", size, (unsigned long long)start);
}

static CUresult free_call(const char *name, CUdeviceptr addr, bool ordered) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && !ordered) result = sim_forbidden();
  if (result == CUDA_SUCCESS) result = deallocate(addr);
  return sim_leave(name, result, "addr=0x%llx", addr);
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *addr, size_t size) { return allocate_call("cuMemAlloc", addr, size, false); }
SIM_API CUresult cuMemAlloc(CUdeviceptr *addr, size_t size) { return cuMemAlloc_v2(addr, size); }
SIM_API CUresult cuMemFree_v2(CUdeviceptr addr) { return free_call("cuMemFree", addr, false); }
SIM_API CUresult cuMemFree(CUdeviceptr addr) { return cuMemFree_v2(addr); }

SIM_API CUresult cuMemAllocManaged(CUdeviceptr *addr, size_t size, unsigned int flags) {
  (void)flags;
  return allocate_call("cuMemAllocManaged", addr, size, false);
}

SIM_API CUresult cuMemAllocAsync(CUdeviceptr *addr, size_t size, CUstream stream) {
  (void)stream;
  return allocate_call("cuMemAllocAsync", addr, size, true);
}

SIM_API CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream) {
  (void)stream;
  return free_call("cuMemFreeAsync", addr, true);
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr *addr, size_t *pitch, size_t width, size_t height, unsigned int element) {
  (void)element;
  size_t row = (width + 511) / 512 * 512, size = 0;
  bool fits = pitch != NULL && row >= width && !__builtin_mul_overflow(row, height, &size);
  CUresult result = allocate_call("cuMemAllocPitch", addr, fits ? size : 0, false);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

SIM_API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *addr, size_t size, CUstream stream) { return cuMemAllocAsync(addr, size, stream); }
SIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr addr, CUstream stream) { return cuMemFreeAsync(addr, stream); }

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr addr) {
  CUresult result = sim_enter("cuMemGetAddressRange", true);
  uint64_t first = 0, length = 0;
  if (result == CUDA_SUCCESS && sim_mapping(addr, &first, &length) == NULL) result = CUDA_ERROR_NOT_FOUND;
  if (result == CUDA_SUCCESS && start != NULL) *start = first;
  if (result == CUDA_SUCCESS && size != NULL) *size = length;
  return sim_leave("cuMemGetAddressRange", result, "addr=0x%llx", addr);
}

static CUresult enter_of_host(const char *name, bool right) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  return result == CUDA_SUCCESS && !right ? CUDA_ERROR_INVALID_VALUE : result;
}

SIM_API CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags) {
  CUresult result = enter_of_host("cuMemHostAlloc", out != NULL && size != 0);
  if (result == CUDA_SUCCESS) {
    *out = size > (size_t)1 << 46 ? NULL : aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (*out == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return sim_leave("cuMemHostAlloc", result, "size=%zu flags=%u", size, flags);
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t size) { return cuMemHostAlloc(out, size, 0); }

SIM_API CUresult cuMemFreeHost(void *pointer) {
  CUresult result = enter_of_host("cuMemFreeHost", pointer != NULL);
  if (result == CUDA_SUCCESS) free(pointer);
  return sim_leave("cuMemFreeHost", result, "%s", "");
}

static void *registered[4096];  // what cuMemHostRegister has pinned

static bool replace_registered(const void *old, void *pointer) {
  for (size_t i = 0; i < sizeof registered / sizeof *registered; i++)
    if (registered[i] == old) return registered[i] = pointer, true;
  return false;
}

SIM_API CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags) {
  CUresult result = enter_of_host("cuMemHostRegister", pointer != NULL && size != 0);
  if (result == CUDA_SUCCESS && !replace_registered(NULL, pointer)) result = CUDA_ERROR_OUT_OF_MEMORY;
  return sim_leave("cuMemHostRegister", result, "size=%zu flags=%u", size, flags);
}

SIM_API CUresult cuMemHostUnregister(void *pointer) {
  CUresult result = enter_of_host("cuMemHostUnregister", pointer != NULL);
  if (result == CUDA_SUCCESS && !replace_registered(pointer, NULL)) result = CUDA_ERROR_INVALID_VALUE;
  return sim_leave("cuMemHostUnregister", result, "%s", "");
}

enum side { HOST, DEVICE, EITHER };

// EITHER is unified addressing: an address inside a reservation is of the device.
static bool usable(uint64_t addr, size_t size, enum side side, bool write) {
  if (side == HOST || (side == EITHER && !sim_reserved(addr))) return addr != 0 || size == 0;
  return sim_accessible(addr, size, write);
}

// A copy or fill that the host waits for is in no stream's order: SYNCHRONOUS stands for its stream.
#define SYNCHRONOUS ((CUstream)UINTPTR_MAX)

static void tell(CUstream stream, uint64_t addr, size_t size, bool writes) {
  if (stream != SYNCHRONOUS && sim_reserved(addr)) sim_work(stream, addr, size, writes);
}

static uint64_t host(const void *address) { return (uint64_t)(uintptr_t)address; }

static CUresult copy(const char *name, uint64_t to, enum side to_side, uint64_t from, enum side from_side, size_t size, CUstream stream) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && !(usable(to, size, to_side, true) && usable(from, size, from_side, false)))
    result = CUDA_ERROR_INVALID_VALUE;
  // The lock is held during the copy: another thread's unmap waits for it, as it would for the device.
  if (result == CUDA_SUCCESS) tell(stream, from, size, false), tell(stream, to, size, true);
  if (result == CUDA_SUCCESS && size > 0) memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
  return sim_leave(name, result, "to=0x%llx from=0x%llx size=%zu", (unsigned long long)to, (unsigned long long)from, size);
}

SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) { return copy("cuMemcpyHtoD", to, DEVICE, host(from), HOST, size, SYNCHRONOUS); }
SIM_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) { return copy("cuMemcpyDtoH", host(to), HOST, from, DEVICE, size, SYNCHRONOUS); }
SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) { return copy("cuMemcpyDtoD", to, DEVICE, from, DEVICE, size, SYNCHRONOUS); }
SIM_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) { return copy("cuMemcpy", to, EITHER, from, EITHER, size, SYNCHRONOUS); }
SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) { return copy("cuMemcpyHtoDAsync", to, DEVICE, host(from), HOST, size, stream); }
SIM_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) { return copy("cuMemcpyDtoHAsync", host(to), HOST, from, DEVICE, size, stream); }
SIM_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) { return copy("cuMemcpyAsync", to, EITHER, from, EITHER, size, stream); }

static CUresult fill(const char *name, CUdeviceptr addr, unsigned char value, size_t size, CUstream stream) {
  CUresult result = sim_enter(name, true);
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && !sim_accessible(addr, size, true)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) tell(stream, addr, size, true);
  if (result == CUDA_SUCCESS && size > 0) memset((void *)(uintptr_t)addr, value, size);
  return sim_leave(name, result, "addr=0x%llx value=%d size=%zu", addr, value, size);
}

SIM_API CUresult cuMemsetD8_v2(CUdeviceptr addr, unsigned char value, size_t size) { return fill("cuMemsetD8", addr, value, size, SYNCHRONOUS); }
SIM_API CUresult cuMemsetD8(CUdeviceptr addr, unsigned char value, size_t size) { return cuMemsetD8_v2(addr, value, size); }
SIM_API CUresult cuMemsetD8Async(CUdeviceptr addr, unsigned char value, size_t size, CUstream stream) { return fill("cuMemsetD8Async", addr, value, size, stream); }
