// driver.h - declarations of the driver calls that the tests make.
#ifndef SIMCUDA_TEST_DRIVER_H
#define SIMCUDA_TEST_DRIVER_H

#include "../simcuda.h"

CUresult cuInit(unsigned int flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuStreamGetCtx(CUstream, CUcontext *);
CUresult cuCtxSynchronize(void);
CUresult cuCtxRecordEvent(CUcontext context, CUevent event);
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option);
CUresult cuMemAddressReserve(CUdeviceptr *addr, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr addr, size_t size);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemMap(CUdeviceptr addr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr addr, size_t size);
CUresult cuMemSetAccess(CUdeviceptr addr, size_t size, const CUmemAccessDesc *access, size_t count);
CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr);
CUresult cuMemAlloc_v2(CUdeviceptr *addr, size_t size);
CUresult cuMemFree_v2(CUdeviceptr addr);
CUresult cuMemsetD8_v2(CUdeviceptr addr, unsigned char value, size_t size);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size);
CUresult cuMemsetD8Async(CUdeviceptr addr, unsigned char value, size_t size, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuLaunchHostFunc(CUstream stream, void (*run)(void *data), void *data);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);

CUresult cudaGetDeviceCount(int *count);
CUresult cudaSetDevice(int device);
CUresult cudaGetDevice(int *device);
CUresult cudaMalloc(void **out, size_t size);
CUresult cudaFree(void *pointer);
CUresult cudaMemset(void *pointer, int value, size_t size);
CUresult cudaMemcpy(void *to, const void *from, size_t size, int kind);
CUresult cudaGetLastError(void);
CUresult cudaDeviceEnablePeerAccess(int peer, unsigned int flags);
const char *cudaGetErrorName(CUresult error);

static const size_t MiB = (size_t)1 << 20;

static inline CUmemAllocationProp on_device(int device) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static inline CUmemAccessDesc open_to(int device) {
  return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

// Initialises the driver and makes device 0 current; returns its free bytes.
static inline size_t start(void) {
  CUcontext context = NULL;
  size_t free_bytes = 0;
  if (cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS) cuCtxSetCurrent(context);
  cuMemGetInfo_v2(&free_bytes, NULL);
  return free_bytes;
}

static inline size_t free_now(void) {
  size_t free_bytes = 0;
  cuMemGetInfo_v2(&free_bytes, NULL);
  return free_bytes;
}

#endif
