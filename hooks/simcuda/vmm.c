// vmm.c - virtual memory management: reserve, create, map, set access, and their opposites.
//
// The rules and result codes are the driver's (test/codes.c compares both): a handle is mapped as
// a whole, at offset 0; an unmap or a change of access never cuts a mapping; a range to unmap may
// have gaps; memory is freed when the handle is released and the last mapping is gone.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool aligned(uint64_t value) { return value % sim_settings()->granularity == 0; }

SIM_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option) {
  CUresult result = sim_enter("cuMemGetAllocationGranularity", true);
  if (result == CUDA_SUCCESS && (granularity == NULL || prop == NULL || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
                                 option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *granularity = sim_settings()->granularity;
  return sim_leave("cuMemGetAllocationGranularity", result, "granularity=%llu",
                   (unsigned long long)sim_settings()->granularity);
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *addr, size_t size, size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags) {
  CUresult result = sim_enter("cuMemAddressReserve", true);
  uint64_t granularity = sim_settings()->granularity, start = 0;
  if (result == CUDA_SUCCESS && (addr == NULL || size == 0 || !aligned(size) || flags != 0 || (alignment & (alignment - 1)) != 0))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = sim_reserve(size, alignment > granularity ? alignment : granularity, hint, &start);
  if (result == CUDA_SUCCESS) *addr = start;
  return sim_leave("cuMemAddressReserve", result, "size=%zu alignment=%zu addr=0x%llx", size, alignment,
                   (unsigned long long)start);
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr addr, size_t size) {
  CUresult result = sim_enter("cuMemAddressFree", true);
  if (result == CUDA_SUCCESS) result = sim_unreserve(addr, size);
  return sim_leave("cuMemAddressFree", result, "addr=0x%llx size=%zu", addr, size);
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
  if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const int where = prop->location.type;
  if (where != CU_MEM_LOCATION_TYPE_DEVICE && where != CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN) return CUDA_ERROR_INVALID_VALUE;
  if ((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return sim_located(&prop->location) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags) {
  CUresult result = sim_enter("cuMemCreate", true);
  struct sim_extent *extent = NULL;
  if (result == CUDA_SUCCESS && (handle == NULL || size == 0 || !aligned(size) || flags != 0)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = check_prop(prop);
  if (result == CUDA_SUCCESS) result = sim_extent_create(sim_located(&prop->location), size, &extent);
  if (result == CUDA_SUCCESS) {
    extent->handle_types = prop->requestedHandleTypes;
    extent->gpu_direct = prop->allocFlags.gpuDirectRDMACapable != 0;
    *handle = sim_handle(extent);
  }
  return sim_leave("cuMemCreate", result, "size=%zu device=%d handle=%llu", size, prop != NULL ? prop->location.id : -1,
                   extent != NULL ? sim_handle(extent) : 0);
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUresult result = sim_enter("cuMemRelease", true);
  struct sim_extent *extent = sim_extent_of(handle);
  if (result == CUDA_SUCCESS && extent == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    extent->handles--;
    sim_extent_release(extent);
  }
  return sim_leave("cuMemRelease", result, "handle=%llu", handle);
}

static CUresult map_handle(CUdeviceptr addr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags) {
  struct sim_extent *extent = sim_extent_of(handle);
  if (extent == NULL || size == 0 || flags != 0 || !aligned(addr)) return CUDA_ERROR_INVALID_VALUE;
  if (extent->foreign && extent->size == 0) extent->size = size;
  if (offset != 0 || size != extent->size) return CUDA_ERROR_NOT_SUPPORTED;
  return sim_map(addr, extent);
}

SIM_API CUresult cuMemMap(CUdeviceptr addr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  CUresult result = sim_enter("cuMemMap", true);
  if (result == CUDA_SUCCESS) result = map_handle(addr, size, offset, handle, flags);
  return sim_leave("cuMemMap", result, "addr=0x%llx size=%zu offset=%zu handle=%llu", addr, size, offset, handle);
}

SIM_API CUresult cuMemUnmap(CUdeviceptr addr, size_t size) {
  CUresult result = sim_enter("cuMemUnmap", true);
  if (result == CUDA_SUCCESS && (size == 0 || !aligned(addr) || !aligned(size))) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) sim_work_unmaps(addr, size);
  if (result == CUDA_SUCCESS) result = sim_unmap(addr, size);
  return sim_leave("cuMemUnmap", result, "addr=0x%llx size=%zu", addr, size);
}

static CUresult check_access(const CUmemAccessDesc *access, size_t count) {
  if (access == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || sim_device(access[i].location.id) == NULL)
      return CUDA_ERROR_INVALID_VALUE;
    if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr addr, size_t size, const CUmemAccessDesc *access, size_t count) {
  CUresult result = sim_enter("cuMemSetAccess", true);
  if (result == CUDA_SUCCESS) result = check_access(access, count);
  if (result == CUDA_SUCCESS && (size == 0 || !aligned(addr) || !aligned(size))) result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = sim_protect(addr, size, access[i].location.id, access[i].flags);
  return sim_leave("cuMemSetAccess", result, "addr=0x%llx size=%zu device=%d flags=%d count=%zu", addr, size,
                   access != NULL && count > 0 ? access[0].location.id : -1,
                   access != NULL && count > 0 ? access[0].flags : -1, count);
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr addr) {
  CUresult result = sim_enter("cuMemGetAccess", true);
  if (result == CUDA_SUCCESS && (flags == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
                                 sim_device(location->id) == NULL || sim_access_of(addr, location->id) < 0))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *flags = (unsigned long long)sim_access_of(addr, location->id);
  return sim_leave("cuMemGetAccess", result, "addr=0x%llx", addr);
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  CUresult result = sim_enter("cuMemGetAllocationPropertiesFromHandle", true);
  struct sim_extent *extent = sim_extent_of(handle);
  if (result == CUDA_SUCCESS && (prop == NULL || extent == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = extent->handle_types,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, extent->device},
                                  .allocFlags = {.gpuDirectRDMACapable = extent->gpu_direct}};
  return sim_leave("cuMemGetAllocationPropertiesFromHandle", result, "handle=%llu", handle);
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  CUresult result = sim_enter("cuMemRetainAllocationHandle", true);
  uint64_t start, size;
  struct sim_extent *extent = sim_mapping((uint64_t)(uintptr_t)addr, &start, &size);
  if (result == CUDA_SUCCESS && (handle == NULL || extent == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    extent->handles++;
    *handle = sim_handle(extent);
  }
  return sim_leave("cuMemRetainAllocationHandle", result, "addr=0x%llx", (unsigned long long)(uintptr_t)addr);
}

// A new descriptor of the memfd, positioned at the extent: its receiver can map `size` bytes from
// lseek(fd, 0, SEEK_CUR). It does not keep the extent alive: a process that frees it takes its pages from those
// that have imported it, unless it is killed, as then the memfd lasts with them.
static CUresult export_extent(const struct sim_extent *extent, int *descriptor) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", sim_extent_file(extent));
  *descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (*descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  return lseek(*descriptor, (off_t)extent->offset, SEEK_SET) >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

SIM_API CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
                                              unsigned long long flags) {
  CUresult result = sim_enter("cuMemExportToShareableHandle", true);
  struct sim_extent *extent = sim_extent_of(handle);
  if (result == CUDA_SUCCESS &&
      (shareable == NULL || extent == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
       (extent->handle_types & type) == 0))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = export_extent(extent, shareable);
  return sim_leave("cuMemExportToShareableHandle", result, "handle=%llu type=%d", handle, type);
}
