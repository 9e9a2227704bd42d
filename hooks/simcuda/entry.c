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

extern entry cuArray3DCreate_v2, cuArrayCreate_v2, cuArrayDestroy, cuCtxCreate_v4, cuCtxDestroy_v2,
    cuCtxEnablePeerAccess, cuCtxGetCurrent, cuCtxGetDevice, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuCtxRecordEvent,
    cuCtxSetCurrent, cuCtxSetLimit, cuCtxSynchronize, cuDeviceCanAccessPeer, cuDeviceGet, cuDeviceGetAttribute,
    cuDeviceGetCount, cuDeviceGetDefaultMemPool, cuDeviceGetName, cuDeviceGetUuid_v2, cuDevicePrimaryCtxGetState,
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain, cuDeviceTotalMem_v2,
    cuDriverGetVersion, cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime_v2, cuEventQuery, cuEventRecord,
    cuEventSynchronize, cuFuncLoad, cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch,
    cuInit, cuIpcGetMemHandle, cuKernelGetFunction, cuLaunchHostFunc, cuLaunchKernel, cuLibraryGetKernel, cuLibraryGetModule, cuLibraryLoadData,
    cuLibraryUnload, cuMemAddressFree, cuMemAddressReserve, cuMemAllocAsync, cuMemAllocAsync_ptsz,
    cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz, cuMemAllocHost_v2, cuMemAllocManaged, cuMemAllocPitch_v2,
    cuMemAlloc_v2, cuMemCreate, cuMemExportToShareableHandle, cuMemFreeAsync, cuMemFreeAsync_ptsz, cuMemFreeHost,
    cuMemFree_v2, cuMemGetAccess, cuMemGetAddressRange_v2, cuMemGetAllocationGranularity,
    cuMemGetAllocationPropertiesFromHandle, cuMemGetDefaultMemPool, cuMemGetHandleForAddressRange, cuMemGetInfo_v2, cuMemGetMemPool, cuMemHostAlloc, cuMemMap, cuMemPoolCreate,
    cuMemPoolDestroy, cuMemPoolGetAttribute, cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemRelease,
    cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap, cuMemcpy, cuMemcpyAsync, cuMemcpyDtoDAsync_v2,
    cuMulticastBindAddr, cuMulticastBindMem, cuMulticastCreate, cuMulticastUnbind,
    cuMemcpyDtoD_v2, cuMemcpyDtoHAsync_v2, cuMemcpyDtoH_v2, cuMemcpyHtoDAsync_v2, cuMemcpyHtoD_v2, cuMemsetD8Async,
    cuMemsetD8_v2, cuModuleGetFunction, cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary, cuModuleUnload,
    cuPointerGetAttribute, cuPointerGetAttributes, cuStreamBeginCaptureToGraph, cuStreamBeginCapture_v2,
    cuStreamBeginCapture_v2_ptsz, cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2,
    cuStreamEndCapture, cuStreamEndCapture_ptsz, cuStreamGetCtx, cuStreamIsCapturing, cuStreamQuery,
    cuStreamSynchronize, cuStreamWaitEvent, cuThreadExchangeStreamCaptureMode;

struct named {
  const char *name;
  entry *function;
};

// Names are without the ABI's version, as callers of cuGetProcAddress give them.
static const struct named entries[] = {
    {"cuArray3DCreate", cuArray3DCreate_v2},
    {"cuArrayCreate", cuArrayCreate_v2},
    {"cuArrayDestroy", cuArrayDestroy},
    {"cuCtxCreate", cuCtxCreate_v4},
    {"cuCtxDestroy", cuCtxDestroy_v2},
    {"cuCtxEnablePeerAccess", cuCtxEnablePeerAccess},
    {"cuCtxGetCurrent", cuCtxGetCurrent},
    {"cuCtxGetDevice", cuCtxGetDevice},
    {"cuCtxPopCurrent", cuCtxPopCurrent_v2},
    {"cuCtxPushCurrent", cuCtxPushCurrent_v2},
    {"cuCtxRecordEvent", cuCtxRecordEvent},
    {"cuCtxSetCurrent", cuCtxSetCurrent},
    {"cuCtxSetLimit", cuCtxSetLimit},
    {"cuCtxSynchronize", cuCtxSynchronize},
    {"cuDeviceCanAccessPeer", cuDeviceCanAccessPeer},
    {"cuDeviceGet", cuDeviceGet},
    {"cuDeviceGetAttribute", cuDeviceGetAttribute},
    {"cuDeviceGetCount", cuDeviceGetCount},
    {"cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool},
    {"cuDeviceGetName", cuDeviceGetName},
    {"cuDeviceGetUuid", cuDeviceGetUuid_v2},
    {"cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState},
    {"cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2},
    {"cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2},
    {"cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain},
    {"cuDeviceTotalMem", cuDeviceTotalMem_v2},
    {"cuDriverGetVersion", cuDriverGetVersion},
    {"cuEventCreate", cuEventCreate},
    {"cuEventDestroy", cuEventDestroy_v2},
    {"cuEventElapsedTime", cuEventElapsedTime_v2},
    {"cuEventQuery", cuEventQuery},
    {"cuEventRecord", cuEventRecord},
    {"cuEventSynchronize", cuEventSynchronize},
    {"cuFuncLoad", cuFuncLoad},
    {"cuGetErrorName", (entry *)cuGetErrorName},
    {"cuGetErrorString", (entry *)cuGetErrorString},
    {"cuGraphDestroy", cuGraphDestroy},
    {"cuGraphExecDestroy", cuGraphExecDestroy},
    {"cuGraphInstantiate", cuGraphInstantiateWithFlags},
    {"cuGraphLaunch", cuGraphLaunch},
    {"cuInit", cuInit},
    {"cuKernelGetFunction", cuKernelGetFunction},
    {"cuLaunchHostFunc", cuLaunchHostFunc},
    {"cuLaunchKernel", cuLaunchKernel},
    {"cuLibraryGetKernel", cuLibraryGetKernel},
    {"cuLibraryGetModule", cuLibraryGetModule},
    {"cuLibraryLoadData", cuLibraryLoadData},
    {"cuLibraryUnload", cuLibraryUnload},
    {"cuMemAddressFree", cuMemAddressFree},
    {"cuMemAddressReserve", cuMemAddressReserve},
    {"cuMemAlloc", cuMemAlloc_v2},
    {"cuMemAllocAsync", cuMemAllocAsync},
    {"cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync},
    {"cuMemAllocHost", cuMemAllocHost_v2},
    {"cuMemAllocManaged", cuMemAllocManaged},
    {"cuMemAllocPitch", cuMemAllocPitch_v2},
    {"cuMemCreate", cuMemCreate},
    {"cuMemExportToShareableHandle", cuMemExportToShareableHandle},
    {"cuMemFree", cuMemFree_v2},
    {"cuMemFreeAsync", cuMemFreeAsync},
    {"cuMemFreeHost", cuMemFreeHost},
    {"cuMemGetAccess", cuMemGetAccess},
    {"cuMemGetAddressRange", cuMemGetAddressRange_v2},
    {"cuMemGetAllocationGranularity", cuMemGetAllocationGranularity},
    {"cuMemGetAllocationPropertiesFromHandle", cuMemGetAllocationPropertiesFromHandle},
    {"cuMemGetDefaultMemPool", cuMemGetDefaultMemPool},
    {"cuMemGetInfo", cuMemGetInfo_v2},
    {"cuMemGetMemPool", cuMemGetMemPool},
    {"cuMemHostAlloc", cuMemHostAlloc},
    {"cuMemMap", cuMemMap},
    {"cuMemPoolCreate", cuMemPoolCreate},
    {"cuMemPoolDestroy", cuMemPoolDestroy},
    {"cuMemPoolGetAttribute", cuMemPoolGetAttribute},
    {"cuMemPoolSetAccess", cuMemPoolSetAccess},
    {"cuMemPoolSetAttribute", cuMemPoolSetAttribute},
    {"cuMemRelease", cuMemRelease},
    {"cuMemRetainAllocationHandle", cuMemRetainAllocationHandle},
    {"cuMemGetHandleForAddressRange", cuMemGetHandleForAddressRange},
    {"cuIpcGetMemHandle", cuIpcGetMemHandle},
    {"cuMulticastBindAddr", cuMulticastBindAddr},
    {"cuMulticastBindMem", cuMulticastBindMem},
    {"cuMulticastCreate", cuMulticastCreate},
    {"cuMulticastUnbind", cuMulticastUnbind},
    {"cuMemSetAccess", cuMemSetAccess},
    {"cuMemUnmap", cuMemUnmap},
    {"cuMemcpy", cuMemcpy},
    {"cuMemcpyAsync", cuMemcpyAsync},
    {"cuMemcpyDtoD", cuMemcpyDtoD_v2},
    {"cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2},
    {"cuMemcpyDtoH", cuMemcpyDtoH_v2},
    {"cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2},
    {"cuMemcpyHtoD", cuMemcpyHtoD_v2},
    {"cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2},
    {"cuMemsetD8", cuMemsetD8_v2},
    {"cuMemsetD8Async", cuMemsetD8Async},
    {"cuModuleGetFunction", cuModuleGetFunction},
    {"cuModuleLoadData", cuModuleLoadData},
    {"cuModuleLoadDataEx", cuModuleLoadDataEx},
    {"cuModuleLoadFatBinary", cuModuleLoadFatBinary},
    {"cuModuleUnload", cuModuleUnload},
    {"cuPointerGetAttribute", cuPointerGetAttribute},
    {"cuPointerGetAttributes", cuPointerGetAttributes},
    {"cuStreamBeginCapture", cuStreamBeginCapture_v2},
    {"cuStreamBeginCaptureToGraph", cuStreamBeginCaptureToGraph},
    {"cuStreamCreate", cuStreamCreate},
    {"cuStreamCreateWithPriority", cuStreamCreateWithPriority},
    {"cuStreamDestroy", cuStreamDestroy_v2},
    {"cuStreamEndCapture", cuStreamEndCapture},
    {"cuStreamGetCtx", cuStreamGetCtx},
    {"cuStreamIsCapturing", cuStreamIsCapturing},
    {"cuStreamQuery", cuStreamQuery},
    {"cuStreamSynchronize", cuStreamSynchronize},
    {"cuStreamWaitEvent", cuStreamWaitEvent},
    {"cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode},
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

// The second version of cuGetProcAddress itself has one argument more; programs for CUDA 12 ask for it.
static entry *find_for(const char *name, int version, uint64_t flags) {
  entry *found = NULL;
  if (strcmp(name, "cuGetProcAddress") == 0) return version < 12000 ? (entry *)cuGetProcAddress : (entry *)cuGetProcAddress_v2;
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
