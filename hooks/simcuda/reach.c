// reach.c - the ways in which network cards, other processes and multicast groups come to know physical memory.
//
// What they do with it is not simulated: tests read who learned of which memory. A real driver refuses cuIpcGetMemHandle for
// memory that is mapped by handles; so does this one, unless MEMPROF_SIM_IPC is set.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DMA_BUF = 1, FIRST_GROUP = 0x7000, GROUPS = 16, BINDS = 64 };

static bool mapped(uint64_t addr, size_t size) { return size > 0 && sim_accessible(addr, size, true); }

SIM_API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr addr, size_t size, int type, unsigned long long flags) {
  CUresult result = sim_enter("cuMemGetHandleForAddressRange", true);
  if (result == CUDA_SUCCESS && (handle == NULL || type != DMA_BUF || flags != 0 || !mapped(addr, size))) result = CUDA_ERROR_INVALID_VALUE;
  const int file = result == CUDA_SUCCESS ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;  // stands for a dma-buf
  if (result == CUDA_SUCCESS && file < 0) result = CUDA_ERROR_OPERATING_SYSTEM;
  if (result == CUDA_SUCCESS) memcpy(handle, &file, sizeof file);
  return sim_leave("cuMemGetHandleForAddressRange", result, "addr=0x%llx size=%zu", addr, size);
}

SIM_API CUresult cuIpcGetMemHandle(void *handle, CUdeviceptr addr) {
  CUresult result = sim_enter("cuIpcGetMemHandle", true);
  const bool allowed = sim_plain(addr) || (getenv("MEMPROF_SIM_IPC") != NULL && mapped(addr, 1));
  if (result == CUDA_SUCCESS && (handle == NULL || !allowed)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) memset(handle, 1, 64);
  return sim_leave("cuIpcGetMemHandle", result, "addr=0x%llx", addr);
}

// Multicast groups, and what is bound to them: under the lock that sim_enter takes.
static struct {
  uint64_t group;  // 0: none
  int device;
  size_t offset, size;
} binds[BINDS];
static unsigned groups;

SIM_API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *group, const void *properties) {
  CUresult result = sim_enter("cuMulticastCreate", true);
  if (result == CUDA_SUCCESS && (group == NULL || properties == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && groups == GROUPS) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) *group = FIRST_GROUP + groups++;
  return sim_leave("cuMulticastCreate", result, "groups=%u", groups);
}

static CUresult bind(uint64_t group, int device, size_t offset, size_t size) {
  if (group < FIRST_GROUP || group >= FIRST_GROUP + groups || device < 0) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < BINDS; i++) {
    if (binds[i].group != 0) continue;
    binds[i].group = group, binds[i].device = device, binds[i].offset = offset, binds[i].size = size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle group, size_t offset, CUdeviceptr addr, size_t size, unsigned long long flags) {
  CUresult result = sim_enter("cuMulticastBindAddr", true);
  uint64_t start, bytes;
  const struct sim_extent *extent = sim_mapping(addr, &start, &bytes);
  if (result == CUDA_SUCCESS && (extent == NULL || !mapped(addr, size) || flags != 0)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = bind(group, extent->device, offset, size);
  return sim_leave("cuMulticastBindAddr", result, "group=%llu addr=0x%llx size=%zu", group, addr, size);
}

SIM_API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle group, size_t offset, CUmemGenericAllocationHandle handle, size_t from, size_t size, unsigned long long flags) {
  CUresult result = sim_enter("cuMulticastBindMem", true);
  const struct sim_extent *extent = sim_extent_of(handle);
  if (result == CUDA_SUCCESS && (extent == NULL || from > extent->size || size > extent->size - from || flags != 0)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = bind(group, extent->device, offset, size);
  return sim_leave("cuMulticastBindMem", result, "group=%llu handle=%llu size=%zu", group, handle, size);
}

SIM_API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle group, int device, size_t offset, size_t size) {
  CUresult result = sim_enter("cuMulticastUnbind", true);
  int at = 0;
  while (at < BINDS && (binds[at].group != group || binds[at].device != device || binds[at].offset != offset || binds[at].size != size)) at++;
  if (result == CUDA_SUCCESS && at == BINDS) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) binds[at].group = 0;
  return sim_leave("cuMulticastUnbind", result, "group=%llu device=%d", group, device);
}
