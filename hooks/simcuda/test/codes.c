// codes.c - the result codes of driver calls, good and bad.
//
// Run without arguments it checks whatever libcuda.so.1 the loader finds, so that the same
// table can be held against a real driver: the values below were read off one (see the
// version it prints).
#define _GNU_SOURCE
#include "../simcuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static void *driver;

static void *symbol(const char *name) {
  void *found = dlsym(driver, name);
  if (found == NULL) {
    fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    exit(2);
  }
  return found;
}

static void expect(const char *what, CUresult want, CUresult got) {
  int wrong = want != got;
  failures += wrong;
  printf("%s %s: want %d, got %d\n", wrong ? "FAIL" : "ok  ", what, (int)want, (int)got);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  CUresult (*init)(unsigned) = symbol("cuInit");
  CUresult (*version)(int *) = symbol("cuDriverGetVersion");
  CUresult (*device_get)(CUdevice *, int) = symbol("cuDeviceGet");
  CUresult (*retain)(CUcontext *, CUdevice) = symbol("cuDevicePrimaryCtxRetain");
  CUresult (*set_current)(CUcontext) = symbol("cuCtxSetCurrent");
  CUresult (*get_current)(CUcontext *) = symbol("cuCtxGetCurrent");
  CUresult (*pop)(CUcontext *) = symbol("cuCtxPopCurrent_v2");
  CUresult (*ctx_device)(CUdevice *) = symbol("cuCtxGetDevice");
  CUresult (*sync)(void) = symbol("cuCtxSynchronize");
  CUresult (*info)(size_t *, size_t *) = symbol("cuMemGetInfo_v2");
  CUresult (*attribute)(int *, int, CUdevice) = symbol("cuDeviceGetAttribute");
  CUresult (*granularity)(size_t *, const CUmemAllocationProp *, int) = symbol("cuMemGetAllocationGranularity");
  CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) = symbol("cuMemAddressReserve");
  CUresult (*address_free)(CUdeviceptr, size_t) = symbol("cuMemAddressFree");
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long) = symbol("cuMemCreate");
  CUresult (*release)(CUmemGenericAllocationHandle) = symbol("cuMemRelease");
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) = symbol("cuMemMap");
  CUresult (*unmap)(CUdeviceptr, size_t) = symbol("cuMemUnmap");
  CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) = symbol("cuMemSetAccess");
  CUresult (*properties)(CUmemAllocationProp *, CUmemGenericAllocationHandle) = symbol("cuMemGetAllocationPropertiesFromHandle");
  CUresult (*export)(void *, CUmemGenericAllocationHandle, int, unsigned long long) = symbol("cuMemExportToShareableHandle");
  CUresult (*alloc)(CUdeviceptr *, size_t) = symbol("cuMemAlloc_v2");
  CUresult (*free_)(CUdeviceptr) = symbol("cuMemFree_v2");
  CUresult (*memset8)(CUdeviceptr, unsigned char, size_t) = symbol("cuMemsetD8_v2");
  CUresult (*to_device)(CUdeviceptr, const void *, size_t) = symbol("cuMemcpyHtoD_v2");
  CUresult (*to_host)(void *, CUdeviceptr, size_t) = symbol("cuMemcpyDtoH_v2");
  CUresult (*stream_create)(CUstream *, unsigned) = symbol("cuStreamCreate");
  CUresult (*event_create)(CUevent *, unsigned) = symbol("cuEventCreate");
  CUresult (*event_query)(CUevent) = symbol("cuEventQuery");
  CUresult (*event_record)(CUevent, CUstream) = symbol("cuEventRecord");
  CUresult (*capturing)(CUstream, int *) = symbol("cuStreamIsCapturing");
  CUresult (*exchange)(int *) = symbol("cuThreadExchangeStreamCaptureMode");
  CUresult (*error_name)(CUresult, const char **) = symbol("cuGetErrorName");
  CUresult (*proc)(const char *, void **, int, uint64_t, int *) = symbol("cuGetProcAddress_v2");

  int driver_version = 0, mode = CU_STREAM_CAPTURE_MODE_RELAXED, status = -1, value = -1;
  CUdevice device = -1;
  CUcontext context = NULL;
  CUmemGenericAllocationHandle handle = 0, second = 0;
  CUdeviceptr base = 0, other = 0;
  CUevent event = NULL;
  CUstream stream = NULL;
  size_t unit = 0, free_bytes, total;
  char host[4096] = {0};
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

  // Before cuInit.
  expect("version before init", CUDA_SUCCESS, version(&driver_version));
  printf("driver version %d\n", driver_version);
  expect("device before init", CUDA_ERROR_NOT_INITIALIZED, device_get(&device, 0));
  expect("create before init", CUDA_ERROR_NOT_INITIALIZED, create(&handle, 2 << 20, &prop, 0));
  expect("current before init", CUDA_ERROR_NOT_INITIALIZED, get_current(&context));
  expect("exchange before init", CUDA_ERROR_NOT_INITIALIZED, exchange(&mode));
  expect("init flags", CUDA_ERROR_INVALID_VALUE, init(1));
  expect("init", CUDA_SUCCESS, init(0));

  // Devices and contexts.
  expect("device", CUDA_SUCCESS, device_get(&device, 0));
  expect("device 99", CUDA_ERROR_INVALID_DEVICE, device_get(&device, 99));
  device = 0;
  expect("attribute of device 99", CUDA_ERROR_INVALID_DEVICE, attribute(&value, 102, 99));
  expect("attribute vmm", CUDA_SUCCESS, attribute(&value, 102, 0));
  expect("attribute 100000", CUDA_ERROR_INVALID_VALUE, attribute(&value, 100000, 0));
  expect("info without context", CUDA_ERROR_INVALID_CONTEXT, info(&free_bytes, &total));
  expect("alloc without context", CUDA_ERROR_INVALID_CONTEXT, alloc(&base, 1 << 20));
  expect("sync without context", CUDA_ERROR_INVALID_CONTEXT, sync());
  expect("ctx device without context", CUDA_ERROR_INVALID_CONTEXT, ctx_device(&device));
  expect("event without context", CUDA_ERROR_INVALID_CONTEXT, event_create(&event, CU_EVENT_DISABLE_TIMING));
  expect("stream without context", CUDA_ERROR_INVALID_CONTEXT, stream_create(&stream, 1));
  expect("current without context", CUDA_SUCCESS, get_current(&context));
  expect("pop without context", CUDA_ERROR_INVALID_CONTEXT, pop(&context));
  expect("retain 99", CUDA_ERROR_INVALID_DEVICE, retain(&context, 99));
  expect("granularity without context", CUDA_SUCCESS, granularity(&unit, &prop, 0));
  expect("reserve without context", CUDA_SUCCESS, reserve(&base, 64 * unit, 0, 0, 0));
  expect("create without context", CUDA_SUCCESS, create(&handle, unit, &prop, 0));
  expect("map without context", CUDA_SUCCESS, map(base, unit, 0, handle, 0));
  expect("access without context", CUDA_SUCCESS, set_access(base, unit, &access, 1));
  expect("unmap without context", CUDA_SUCCESS, unmap(base, unit));
  expect("release without context", CUDA_SUCCESS, release(handle));
  expect("retain", CUDA_SUCCESS, retain(&context, 0));
  expect("set current", CUDA_SUCCESS, set_current(context));
  expect("info", CUDA_SUCCESS, info(&free_bytes, &total));
  expect("info of total alone", CUDA_SUCCESS, info(NULL, &total));

  // Reservations.
  expect("reserve 0", CUDA_ERROR_INVALID_VALUE, reserve(&other, 0, 0, 0, 0));
  expect("reserve 4096", CUDA_ERROR_INVALID_VALUE, reserve(&other, 4096, 0, 0, 0));
  expect("reserve odd", CUDA_ERROR_INVALID_VALUE, reserve(&other, unit + 1, 0, 0, 0));
  expect("reserve alignment 3", CUDA_ERROR_INVALID_VALUE, reserve(&other, unit, 3, 0, 0));
  expect("reserve flags", CUDA_ERROR_INVALID_VALUE, reserve(&other, unit, 0, 0, 1));
  expect("reserve null", CUDA_ERROR_INVALID_VALUE, reserve(NULL, unit, 0, 0, 0));
  expect("reserve 2^52", CUDA_ERROR_OUT_OF_MEMORY, reserve(&other, (size_t)1 << 52, 0, 0, 0));
  expect("reserve alignment 64 KiB", CUDA_SUCCESS, reserve(&other, unit, 65536, 0, 0));
  expect("address free part", CUDA_ERROR_INVALID_VALUE, address_free(other, unit / 2));
  expect("address free", CUDA_SUCCESS, address_free(other, unit));
  expect("address free again", CUDA_ERROR_INVALID_VALUE, address_free(other, unit));
  expect("address free inside", CUDA_ERROR_INVALID_VALUE, address_free(base + unit, unit));

  // Handles.
  expect("create 0", CUDA_ERROR_INVALID_VALUE, create(&handle, 0, &prop, 0));
  expect("create odd", CUDA_ERROR_INVALID_VALUE, create(&handle, unit / 2, &prop, 0));
  expect("create flags", CUDA_ERROR_INVALID_VALUE, create(&handle, unit, &prop, 1));
  expect("create null", CUDA_ERROR_INVALID_VALUE, create(NULL, unit, &prop, 0));
  expect("create null prop", CUDA_ERROR_INVALID_VALUE, create(&handle, unit, NULL, 0));
  expect("create 2^45", CUDA_ERROR_OUT_OF_MEMORY, create(&handle, (size_t)1 << 45, &prop, 0));
  prop.location.id = 99;
  expect("create on device 99", CUDA_ERROR_INVALID_DEVICE, create(&handle, unit, &prop, 0));
  expect("granularity of device 99", CUDA_SUCCESS, granularity(&unit, &prop, 0));
  prop.location.id = 0;
  prop.type = 0;
  expect("create of no type", CUDA_ERROR_INVALID_VALUE, create(&handle, unit, &prop, 0));
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = 0;
  expect("create nowhere", CUDA_ERROR_INVALID_VALUE, create(&handle, unit, &prop, 0));
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  expect("granularity of kind 7", CUDA_ERROR_INVALID_VALUE, granularity(&unit, &prop, 7));
  expect("create 2", CUDA_SUCCESS, create(&handle, 2 * unit, &prop, 0));
  expect("create 1", CUDA_SUCCESS, create(&second, unit, &prop, 0));
  expect("release of nothing", CUDA_ERROR_INVALID_VALUE, release(0));
  CUmemAllocationProp seen;
  memset(&seen, 0xff, sizeof seen);
  expect("properties", CUDA_SUCCESS, properties(&seen, handle));
  printf("properties: type %d handles %d location %d %d\n", seen.type, seen.requestedHandleTypes, seen.location.type, seen.location.id);
  int descriptor = -1;
  expect("export", CUDA_SUCCESS, export(&descriptor, handle, 1, 0));
  expect("export as fabric", CUDA_ERROR_INVALID_VALUE, export(&descriptor, handle, 8, 0));

  // Mappings.
  expect("map odd", CUDA_ERROR_INVALID_VALUE, map(base + 4096, unit, 0, second, 0));
  expect("map half", CUDA_ERROR_NOT_SUPPORTED, map(base, unit / 2, 0, second, 0));
  expect("map 0", CUDA_ERROR_INVALID_VALUE, map(base, 0, 0, second, 0));
  expect("map too much", CUDA_ERROR_NOT_SUPPORTED, map(base, 2 * unit, 0, second, 0));
  expect("map offset past end", CUDA_ERROR_NOT_SUPPORTED, map(base, unit, unit, second, 0));
  expect("map flags", CUDA_ERROR_INVALID_VALUE, map(base, unit, 0, second, 1));
  expect("map no handle", CUDA_ERROR_INVALID_VALUE, map(base, unit, 0, 0, 0));
  expect("map past the reservation", CUDA_ERROR_INVALID_VALUE, map(base + 64 * unit, unit, 0, second, 0));
  expect("map at 0", CUDA_ERROR_INVALID_VALUE, map(0, unit, 0, second, 0));
  expect("map", CUDA_SUCCESS, map(base, 2 * unit, 0, handle, 0));
  expect("map again there", CUDA_ERROR_INVALID_VALUE, map(base, unit, 0, second, 0));
  expect("map overlapping", CUDA_ERROR_INVALID_VALUE, map(base + unit, unit, 0, second, 0));
  expect("map behind", CUDA_SUCCESS, map(base + 2 * unit, unit, 0, second, 0));
  expect("map first part of a handle", CUDA_ERROR_NOT_SUPPORTED, map(base + 8 * unit, unit, 0, handle, 0));
  expect("map second part of a handle", CUDA_ERROR_NOT_SUPPORTED, map(base + 9 * unit, unit, unit, handle, 0));
  expect("map alias", CUDA_SUCCESS, map(base + 8 * unit, 2 * unit, 0, handle, 0));
  expect("memset without access", CUDA_ERROR_INVALID_VALUE, memset8(base, 1, 256));
  expect("copy without access", CUDA_ERROR_INVALID_VALUE, to_device(base, host, 256));
  expect("access of nothing mapped", CUDA_ERROR_INVALID_VALUE, set_access(base + 16 * unit, unit, &access, 1));
  expect("access over a hole", CUDA_ERROR_INVALID_VALUE, set_access(base, 4 * unit, &access, 1));
  expect("access of part", CUDA_ERROR_INVALID_VALUE, set_access(base, unit, &access, 1));
  expect("access 0", CUDA_ERROR_INVALID_VALUE, set_access(base, 0, &access, 1));
  expect("access count 0", CUDA_ERROR_INVALID_VALUE, set_access(base, 2 * unit, &access, 0));
  expect("access null", CUDA_ERROR_INVALID_VALUE, set_access(base, 2 * unit, NULL, 1));
  access.location.id = 99;
  expect("access for device 99", CUDA_ERROR_INVALID_VALUE, set_access(base, 2 * unit, &access, 1));
  access.location.id = 0;
  access.flags = 2;
  expect("access flags 2", CUDA_ERROR_INVALID_VALUE, set_access(base, 2 * unit, &access, 1));
  access.flags = 3;
  expect("access over two", CUDA_SUCCESS, set_access(base, 3 * unit, &access, 1));
  expect("access again", CUDA_SUCCESS, set_access(base, 2 * unit, &access, 1));
  expect("memset", CUDA_SUCCESS, memset8(base + 3 * unit - 256, 7, 256));
  expect("memset past the end", CUDA_ERROR_INVALID_VALUE, memset8(base + 3 * unit - 256, 7, 512));
  expect("copy back", CUDA_SUCCESS, to_host(host, base + 3 * unit - 256, 256));
  printf("read back %d\n", host[255]);
  expect("unmap part", CUDA_ERROR_INVALID_VALUE, unmap(base, unit));
  expect("unmap 0", CUDA_ERROR_INVALID_VALUE, unmap(base, 0));
  expect("unmap one and a half", CUDA_ERROR_INVALID_VALUE, unmap(base + unit, 2 * unit));
  expect("unmap odd", CUDA_ERROR_INVALID_VALUE, unmap(base + 4096, unit));
  expect("unmap a hole", CUDA_SUCCESS, unmap(base + 16 * unit, unit));
  expect("unmap past the reservation", CUDA_SUCCESS, unmap(base + 63 * unit, 2 * unit));
  expect("unmap outside", CUDA_ERROR_INVALID_VALUE, unmap(base + 64 * unit, unit));
  expect("free a mapping", CUDA_ERROR_INVALID_VALUE, free_(base));
  expect("address free while mapped", CUDA_ERROR_INVALID_VALUE, address_free(base, 64 * unit));
  expect("release mapped", CUDA_SUCCESS, release(handle));
  expect("unmap two", CUDA_SUCCESS, unmap(base, 3 * unit));
  expect("unmap again", CUDA_SUCCESS, unmap(base, 3 * unit));
  expect("map second again", CUDA_SUCCESS, map(base, unit, 0, second, 0));
  expect("access second again", CUDA_SUCCESS, set_access(base, unit, &access, 1));
  expect("unmap over a hole", CUDA_SUCCESS, unmap(base, 4 * unit));
  expect("unmap alias", CUDA_SUCCESS, unmap(base + 8 * unit, 2 * unit));
  expect("release", CUDA_SUCCESS, release(second));
  expect("address free all", CUDA_SUCCESS, address_free(base, 64 * unit));

  // Plain memory, streams, events.
  expect("alloc 0", CUDA_ERROR_INVALID_VALUE, alloc(&base, 0));
  expect("alloc 2^45", CUDA_ERROR_OUT_OF_MEMORY, alloc(&base, (size_t)1 << 45));
  expect("alloc", CUDA_SUCCESS, alloc(&base, 1000));
  printf("alloc 1000: address mod 512 = %llu\n", base % 512);
  expect("free inside", CUDA_ERROR_INVALID_VALUE, free_(base + 256));
  expect("free", CUDA_SUCCESS, free_(base));
  expect("free again", CUDA_ERROR_INVALID_VALUE, free_(base));
  expect("free null", CUDA_SUCCESS, free_(0));
  expect("event", CUDA_SUCCESS, event_create(&event, CU_EVENT_DISABLE_TIMING));
  expect("event not recorded", CUDA_SUCCESS, event_query(event));
  expect("record on null stream", CUDA_SUCCESS, event_record(event, NULL));
  expect("capturing", CUDA_SUCCESS, capturing(NULL, &status));
  expect("capturing null", CUDA_ERROR_INVALID_VALUE, capturing(NULL, NULL));
  expect("exchange", CUDA_SUCCESS, exchange(&mode));
  printf("old mode %d\n", mode);
  const char *text = NULL;
  expect("error name", CUDA_SUCCESS, error_name(CUDA_ERROR_OUT_OF_MEMORY, &text));
  failures += text == NULL || strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") != 0;
  expect("error name 12345", CUDA_ERROR_INVALID_VALUE, error_name((CUresult)12345, &text));
  void *found = NULL;
  expect("proc address", CUDA_SUCCESS, proc("cuMemAlloc", &found, 12000, 0, &status));
  printf("proc address status %d is v2 %d\n", status, found == (void *)alloc);
  expect("proc address of nothing", CUDA_SUCCESS, proc("cuNothing", &found, 12000, 0, &status));
  printf("proc address status %d found %d\n", status, found != NULL);

  printf("%d wrong\n", failures);
  return failures != 0;
}
