// import.c - imports memory that was exported as a file descriptor.
//
// The position of a descriptor names an extent of a device's memfd: one of this process, or of another. Which device
// another process's memory is on is not known, so it is taken for the current one's.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool same_file(int a, int b) {
  struct stat one, two;
  return fstat(a, &one) == 0 && fstat(b, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

// The device whose memfd it is, or -1.
static int own_device(int descriptor) {
  for (int i = 0; i < sim_settings()->devices; i++) {
    struct CUctx_st *device = sim_device(i);
    if (device->memfd >= 0 && same_file(sim_memfd(device), descriptor)) return i;
  }
  return -1;
}

static CUresult import_own(int device, int descriptor, struct sim_extent **out) {
  const off_t offset = lseek(descriptor, 0, SEEK_CUR);
  struct sim_extent *extent = offset < 0 ? NULL : sim_extent_at(device, (uint64_t)offset);
  if (extent == NULL) return CUDA_ERROR_NOT_PERMITTED;
  extent->handles++;
  *out = extent;
  return CUDA_SUCCESS;
}

// A memfd of another process: what is no memfd has no seals.
static CUresult import_foreign(int descriptor, struct sim_extent **out) {
  const off_t offset = lseek(descriptor, 0, SEEK_CUR);
  const struct CUctx_st *device = sim_current();
  struct stat file;
  if (offset < 0 || fcntl(descriptor, F_GET_SEALS) < 0 || fstat(descriptor, &file) != 0 || offset >= file.st_size) return CUDA_ERROR_NOT_PERMITTED;
  return sim_extent_import(device != NULL ? device->ordinal : 0, descriptor, (uint64_t)offset, out);
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
  CUresult result = sim_enter("cuMemImportFromShareableHandle", true);
  struct sim_extent *extent = NULL;
  if (result == CUDA_SUCCESS && (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    const int descriptor = (int)(intptr_t)shareable, device = own_device(descriptor);
    result = device >= 0 ? import_own(device, descriptor, &extent) : import_foreign(descriptor, &extent);
  }
  if (result == CUDA_SUCCESS) *handle = sim_handle(extent);
  return sim_leave("cuMemImportFromShareableHandle", result, "type=%d", type);
}
