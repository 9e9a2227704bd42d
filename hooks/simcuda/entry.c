// entry.c - names: of errors, and of the driver's own functions (cuGetProcAddress).
//
// The library is linked with -Bsymbolic-functions, so the addresses below are those of this
// library even when a preloaded hook defines the same names. A hook that asks for the driver's
// function must not get its own.
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>

struct error_text {
  CUresult result;
  const char *name, *text;
};

static const struct error_text error_texts[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_UNMAP_FAILED, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {CUDA_ERROR_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct error_text *text_of(CUresult result) {
  for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
    if (error_texts[i].result == result) return &error_texts[i];
  return NULL;
}

SIM_API CUresult cuGetErrorName(CUresult error, const char **out) {
  const struct error_text *found = text_of(error);
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = found != NULL ? found->name : NULL;
  return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **out) {
  const struct error_text *found = text_of(error);
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = found != NULL ? found->text : NULL;
  return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Only their addresses are needed here, so all have the same declaration; the linker ignores
// types.
typedef void entry(void);
SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);
SIM_API CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);

// The driver's functions: the name, which callers of cuGetProcAddress give, and the ABI's version.
#define FUNCTIONS(_) \
  _(cuArray3DCreate, _v2) _(cuArrayCreate, _v2) _(cuArrayDestroy, ) _(cuCtxCreate, _v4) _(cuCtxDestroy, _v2) _(cuCtxEnablePeerAccess, ) \
  _(cuCtxGetCurrent, ) _(cuCtxGetDevice, ) _(cuCtxPopCurrent, _v2) _(cuCtxPushCurrent, _v2) _(cuCtxRecordEvent, ) _(cuCtxSetCurrent, ) \
  _(cuCtxSetLimit, ) _(cuCtxSynchronize, ) _(cuDeviceCanAccessPeer, ) _(cuDeviceGet, ) _(cuDeviceGetAttribute, ) _(cuDeviceGetCount, ) \
  _(cuDeviceGetDefaultMemPool, ) _(cuDeviceGetName, ) _(cuDeviceGetUuid, _v2) _(cuDevicePrimaryCtxGetState, ) _(cuDevicePrimaryCtxRelease, _v2) \
  _(cuDevicePrimaryCtxReset, _v2) _(cuDevicePrimaryCtxRetain, ) _(cuDeviceTotalMem, _v2) _(cuDriverGetVersion, ) _(cuEventCreate, ) \
  _(cuEventDestroy, _v2) _(cuEventQuery, ) _(cuEventRecord, ) _(cuEventSynchronize, ) _(cuFuncLoad, ) \
  _(cuGraphDestroy, ) _(cuGraphExecDestroy, ) _(cuGraphInstantiate, WithFlags) _(cuGraphLaunch, ) _(cuInit, ) _(cuKernelGetFunction, ) \
  _(cuLaunchHostFunc, ) _(cuLaunchKernel, ) _(cuLibraryGetKernel, ) _(cuLibraryGetModule, ) _(cuLibraryLoadData, ) _(cuLibraryUnload, ) \
  _(cuMemAddressFree, ) _(cuMemAddressReserve, ) _(cuMemAlloc, _v2) _(cuMemAllocAsync, ) _(cuMemAllocFromPoolAsync, ) _(cuMemAllocHost, _v2) \
  _(cuMemAllocManaged, ) _(cuMemAllocPitch, _v2) _(cuMemCreate, ) _(cuMemExportToShareableHandle, ) _(cuMemFree, _v2) _(cuMemFreeAsync, ) \
  _(cuMemFreeHost, ) _(cuMemGetAccess, ) _(cuMemGetAddressRange, _v2) _(cuMemGetAllocationGranularity, ) \
  _(cuMemGetAllocationPropertiesFromHandle, ) _(cuMemGetDefaultMemPool, ) _(cuMemGetInfo, _v2) _(cuMemGetMemPool, ) _(cuMemHostAlloc, ) \
  _(cuMemMap, ) _(cuMemPoolCreate, ) _(cuMemPoolDestroy, ) _(cuMemPoolGetAttribute, ) _(cuMemPoolSetAccess, ) _(cuMemPoolSetAttribute, ) \
  _(cuMemRelease, ) _(cuMemRetainAllocationHandle, ) _(cuMemGetHandleForAddressRange, ) _(cuIpcGetMemHandle, ) _(cuMulticastBindAddr, ) \
  _(cuMulticastBindMem, ) _(cuMulticastCreate, ) _(cuMulticastUnbind, ) _(cuMemSetAccess, ) _(cuMemUnmap, ) _(cuMemcpy, ) _(cuMemcpyAsync, ) \
  _(cuMemcpyDtoD, _v2) _(cuMemcpyDtoH, _v2) _(cuMemcpyDtoHAsync, _v2) _(cuMemcpyHtoD, _v2) _(cuMemcpyHtoDAsync, _v2) \
  _(cuMemsetD8, _v2) _(cuMemsetD8Async, ) _(cuModuleGetFunction, ) _(cuModuleLoadData, ) _(cuModuleLoadDataEx, ) _(cuModuleLoadFatBinary, ) \
  _(cuModuleUnload, ) _(cuPointerGetAttribute, ) _(cuPointerGetAttributes, ) _(cuStreamBeginCapture, _v2) _(cuStreamBeginCaptureToGraph, ) \
  _(cuStreamCreate, ) _(cuStreamDestroy, _v2) _(cuStreamEndCapture, ) _(cuStreamGetCtx, ) \
  _(cuStreamIsCapturing, ) _(cuStreamQuery, ) _(cuStreamSynchronize, ) _(cuStreamWaitEvent, ) _(cuThreadExchangeStreamCaptureMode, )

#define DECLARE(name, version) extern entry name##version;
FUNCTIONS(DECLARE)
extern entry cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz, cuStreamBeginCapture_v2_ptsz, cuStreamEndCapture_ptsz;

struct named {
  const char *name;
  entry *function;
};

#define ROW(name, version) {#name, name##version},
static const struct named entries[] = {
    FUNCTIONS(ROW) {"cuGetErrorName", (entry *)cuGetErrorName}, {"cuGetErrorString", (entry *)cuGetErrorString},
};

// Variants for which stream 0 is the calling thread's default stream.
static const struct named of_threads[] = {
    {"cuMemAllocAsync", cuMemAllocAsync_ptsz},
    {"cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync_ptsz},
    {"cuMemFreeAsync", cuMemFreeAsync_ptsz},
    {"cuStreamBeginCapture", cuStreamBeginCapture_v2_ptsz},
    {"cuStreamEndCapture", cuStreamEndCapture_ptsz},
};

static entry *find(const struct named *names, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(names[i].name, name) == 0) return names[i].function;
  return NULL;
}

// The driver may answer with an address that it does not export.
static CUresult unexported_free_host(void *ptr) {
  CUresult (*release)(void *);
  memcpy(&release, &(entry *){cuMemFreeHost}, sizeof release);
  return release(ptr);
}

// A variant that programs for CUDA 99 get, with other arguments.
static CUresult of_the_future(int flags, CUdeviceptr *out) {
  (void)out;
  return flags == 99 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The second version of cuGetProcAddress itself has one argument more; programs for CUDA 12 ask for it.
static entry *find_for(const char *name, int version, uint64_t flags) {
  entry *found = NULL;
  if (strcmp(name, "cuGetProcAddress") == 0) return version < 12000 ? (entry *)cuGetProcAddress : (entry *)cuGetProcAddress_v2;
  if (strcmp(name, "cuMemFreeHost") == 0) return (entry *)unexported_free_host;
  if (strcmp(name, "cuMemAlloc") == 0 && version >= 99000) return (entry *)of_the_future;
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) found = find(of_threads, sizeof of_threads / sizeof *of_threads, name);
  return found != NULL ? found : find(entries, sizeof entries / sizeof *entries, name);
}

SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
  CUresult result = sim_enter("cuGetProcAddress", false);
  if (result == CUDA_SUCCESS && (symbol == NULL || out == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    entry *found = find_for(symbol, version, flags);
    memcpy(out, &found, sizeof found);
    if (status != NULL) *status = found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return sim_leave("cuGetProcAddress", result, "symbol=%s version=%d flags=%llu", symbol != NULL ? symbol : "", version,
                   (unsigned long long)flags);
}

SIM_API CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}
