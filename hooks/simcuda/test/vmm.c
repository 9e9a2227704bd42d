// vmm.c - pages, mappings and the device's memory.
#define _GNU_SOURCE
#include "check.h"
#include "driver.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static CUmemGenericAllocationHandle create(size_t size) {
  CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, size, &prop, 0) == CUDA_SUCCESS);
  return handle;
}

static void map_open(CUdeviceptr addr, size_t size, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access = open_to(0);
  CHECK(cuMemMap(addr, size, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemSetAccess(addr, size, &access, 1) == CUDA_SUCCESS);
}

TEST(two_mappings_show_the_same_bytes) {
  CUdeviceptr base;
  start();
  CHECK(cuMemAddressReserve(&base, 16 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  CUmemGenericAllocationHandle one = create(2 * MiB), other = create(2 * MiB);
  map_open(base, 2 * MiB, one);
  map_open(base + 2 * MiB, 2 * MiB, other);
  map_open(base + 8 * MiB, 2 * MiB, one);
  unsigned char *pages = (unsigned char *)(uintptr_t)base;
  pages[12345] = 42;
  CHECK(pages[8 * MiB + 12345] == 42);
  CHECK(pages[2 * MiB + 12345] == 0);
  CHECK(cuMemsetD8_v2(base + 8 * MiB, 7, 2 * MiB) == CUDA_SUCCESS);
  CHECK(pages[12345] == 7 && pages[2 * MiB - 1] == 7);
  // What is written stays when the handle is mapped elsewhere.
  CHECK(cuMemUnmap(base, 2 * MiB) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(base + 8 * MiB, 2 * MiB) == CUDA_SUCCESS);
  map_open(base + 12 * MiB, 2 * MiB, one);
  CHECK(pages[12 * MiB + 5] == 7);
}

TEST(the_limit_is_the_limit, "MEMPROF_SIM_MEMORY", "10m") {
  CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(start() == 10 * MiB);
  CUmemGenericAllocationHandle first = create(6 * MiB);
  CHECK(cuMemCreate(&handle, 6 * MiB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  create(4 * MiB);
  CHECK(free_now() == 0);
  CHECK(cuMemCreate(&handle, 2 * MiB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemRelease(first) == CUDA_SUCCESS);
  CHECK(free_now() == 6 * MiB);
  CHECK(cuMemRelease(first) == CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr plain;
  CHECK(cuMemAlloc_v2(&plain, 6 * MiB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc_v2(&plain, 5 * MiB) == CUDA_SUCCESS);
  CHECK(free_now() == 0);
  CHECK(cuMemFree_v2(plain) == CUDA_SUCCESS);
  CHECK(free_now() == 6 * MiB);
}

TEST(granularity_follows_the_setting, "MEMPROF_SIM_GRANULARITY", "131072") {
  CUmemAllocationProp prop = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  size_t granularity = 0;
  start();
  CHECK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
  CHECK(granularity == 131072);
  CHECK(cuMemCreate(&handle, 65536, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemCreate(&handle, 131072, &prop, 0) == CUDA_SUCCESS);
}

// Bytes of host memory behind the memfd, seen through a handle exported while alive.
static size_t host_bytes(int descriptor) {
  struct stat status;
  CHECK(fstat(descriptor, &status) == 0);
  return (size_t)status.st_blocks * 512;
}

TEST(memory_goes_back_when_handle_and_mappings_are_gone) {
  CUdeviceptr base;
  int descriptor = -1;
  size_t all = start();
  CHECK(cuMemAddressReserve(&base, 64 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = create(8 * MiB);
  CHECK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
  map_open(base, 8 * MiB, handle);
  map_open(base + 16 * MiB, 8 * MiB, handle);
  CHECK(cuMemsetD8_v2(base, 1, 8 * MiB) == CUDA_SUCCESS);
  CHECK(host_bytes(descriptor) == 8 * MiB);
  CHECK(free_now() == all - 8 * MiB);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(free_now() == all - 8 * MiB);
  CHECK(cuMemUnmap(base, 8 * MiB) == CUDA_SUCCESS);
  CHECK(free_now() == all - 8 * MiB);
  CHECK(cuMemUnmap(base + 16 * MiB, 8 * MiB) == CUDA_SUCCESS);
  CHECK(free_now() == all);
  CHECK(host_bytes(descriptor) == 0);
  // The other order: unmapped, the handle still holds it.
  handle = create(8 * MiB);
  map_open(base, 8 * MiB, handle);
  CUmemGenericAllocationHandle again = 0;
  CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)base) == CUDA_SUCCESS && again == handle);
  CHECK(cuMemUnmap(base, 8 * MiB) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(free_now() == all - 8 * MiB);
  CHECK(cuMemRelease(again) == CUDA_SUCCESS);
  CHECK(free_now() == all);
}

// Whether touching addr faults, tried in a child.
static bool faults(CUdeviceptr addr) {
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(*(volatile unsigned char *)(uintptr_t)addr == 0 ? 0 : 2);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST(memory_without_access_faults) {
  CUdeviceptr base;
  start();
  CHECK(cuMemAddressReserve(&base, 8 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(faults(base));
  CUmemGenericAllocationHandle handle = create(2 * MiB);
  CHECK(cuMemMap(base, 2 * MiB, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(faults(base));
  CUmemAccessDesc access = open_to(0);
  CHECK(cuMemSetAccess(base, 2 * MiB, &access, 1) == CUDA_SUCCESS);
  CHECK(!faults(base) && !faults(base + 2 * MiB - 1) && faults(base + 2 * MiB));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CHECK(cuMemSetAccess(base, 2 * MiB, &access, 1) == CUDA_SUCCESS);
  CHECK(faults(base));
  CHECK(cuMemUnmap(base, 2 * MiB) == CUDA_SUCCESS);
  CHECK(faults(base));
}

TEST(thousands_of_handles_need_no_descriptors) {
  enum { MANY = 5000 };
  static CUmemGenericAllocationHandle handles[MANY];
  struct rlimit files = {64, 64};
  CUdeviceptr base;
  CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
  size_t all = start();
  CHECK(cuMemAddressReserve(&base, MANY * 2 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  for (size_t i = 0; i < MANY; i++) {
    handles[i] = create(2 * MiB);
    map_open(base + i * 2 * MiB, 2 * MiB, handles[i]);
  }
  CHECK(free_now() == all - MANY * 2 * MiB);
  *(volatile int *)(uintptr_t)(base + 4321 * 2 * MiB) = 4321;
  for (size_t i = 1; i < MANY; i += 2) CHECK(cuMemUnmap(base + i * 2 * MiB, 2 * MiB) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(base, MANY * 2 * MiB) == CUDA_SUCCESS);
  map_open(base, 2 * MiB, handles[4321]);
  CHECK(*(volatile int *)(uintptr_t)base == 4321);
  CHECK(cuMemUnmap(base, 2 * MiB) == CUDA_SUCCESS);
  for (size_t i = 0; i < MANY; i++) CHECK(cuMemRelease(handles[i]) == CUDA_SUCCESS);
  CHECK(free_now() == all);
}

TEST(exported_pages_are_the_handle_s) {
  CUdeviceptr base;
  int descriptor = -1;
  char text[6] = {0};
  start();
  create(4 * MiB);
  CUmemGenericAllocationHandle handle = create(2 * MiB);
  CHECK(cuMemAddressReserve(&base, 2 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  map_open(base, 2 * MiB, handle);
  memcpy((void *)(uintptr_t)base, "hello", 6);
  CHECK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
  CHECK(read(descriptor, text, 6) == 6 && strcmp(text, "hello") == 0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
