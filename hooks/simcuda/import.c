// import.c - imports memory that was exported as a file descriptor.
//
// The position of a descriptor names an extent of a device's memfd. Only memory of this process
// can be imported. Another process has memfds of its own; its descriptors are refused, as a
// driver refuses memory of a peer that it cannot reach.
#define _GNU_SOURCE
#include "internal.h"

#include <sys/stat.h>
#include <unistd.h>

static bool same_file(int a, int b) {
  struct stat one, two;
  return fstat(a, &one) == 0 && fstat(b, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

static struct sim_extent *extent_behind(int descriptor) {
  const off_t offset = lseek(descriptor, 0, SEEK_CUR);
  for (int i = 0; i < sim_settings()->devices; i++) {
    struct CUctx_st *device = sim_device(i);
    if (device->memfd < 0 || offset < 0 || !same_file(sim_memfd(device), descriptor)) continue;
    return sim_extent_at(i, (uint64_t)offset);
  }
  return NULL;
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
  CUresult result = sim_enter("cuMemImportFromShareableHandle", true);
  struct sim_extent *extent = NULL;
  if (result == CUDA_SUCCESS && (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (extent = extent_behind((int)(intptr_t)shareable)) == NULL) result = CUDA_ERROR_NOT_PERMITTED;
  if (result == CUDA_SUCCESS) {
    extent->handles++;
    *handle = sim_handle(extent);
  }
  return sim_leave("cuMemImportFromShareableHandle", result, "type=%d", type);
}
