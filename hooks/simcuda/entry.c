// entry.c - names: of errors, and of the driver's own functions (cuGetProcAddress).
//
// The library is linked with -Bsymbolic-functions, so the addresses below are this
// library's even when a preloaded hook defines the same names; a hook that asks for the
// real function must not be given itself.
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

// Only the address of these matters here, so they are all declared alike; the linker does
// not look at types.
typedef void entry(void);
SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status);

extern entry cuCtxEnablePeerAccess, cuCtxGetCurrent, cuCtxGetDevice, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2,
    cuCtxSetCurrent, cuCtxSynchronize, cuDeviceCanAccessPeer, cuDeviceGet, cuDeviceGetAttribute,
    cuDeviceGetCount, cuDeviceGetName, cuDeviceGetUuid_v2, cuDevicePrimaryCtxGetState,
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain, cuDeviceTotalMem_v2, cuDriverGetVersion,
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime_v2, cuEventQuery, cuEventRecord, cuEventSynchronize,
    cuInit, cuMemAddressFree, cuMemAddressReserve, cuMemAlloc_v2, cuMemAllocAsync, cuMemAllocManaged,
    cuMemAllocPitch_v2, cuMemCreate, cuMemExportToShareableHandle, cuMemFree_v2, cuMemFreeAsync,
    cuMemFreeHost, cuMemGetAccess, cuMemGetAddressRange_v2, cuMemGetAllocationGranularity,
    cuMemGetAllocationPropertiesFromHandle, cuMemGetInfo_v2, cuMemHostAlloc, cuMemMap, cuMemRelease,
    cuMemRetainAllocationHandle, cuMemSetAccess, cuMemUnmap, cuMemcpy, cuMemcpyAsync, cuMemcpyDtoDAsync_v2,
    cuMemcpyDtoD_v2, cuMemcpyDtoHAsync_v2, cuMemcpyDtoH_v2, cuMemcpyHtoDAsync_v2, cuMemcpyHtoD_v2,
    cuMemsetD8_v2, cuMemsetD8Async, cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2,
    cuStreamGetCtx, cuStreamIsCapturing, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
    cuThreadExchangeStreamCaptureMode;

struct named {
  const char *name;
  entry *function;
};

// By the name without the ABI's version, which is how cuGetProcAddress is asked.
static const struct named entries[] = {
    {"cuCtxEnablePeerAccess", cuCtxEnablePeerAccess},
    {"cuCtxGetCurrent", cuCtxGetCurrent},
    {"cuCtxGetDevice", cuCtxGetDevice},
    {"cuCtxPopCurrent", cuCtxPopCurrent_v2},
    {"cuCtxPushCurrent", cuCtxPushCurrent_v2},
    {"cuCtxSetCurrent", cuCtxSetCurrent},
    {"cuCtxSynchronize", cuCtxSynchronize},
    {"cuDeviceCanAccessPeer", cuDeviceCanAccessPeer},
    {"cuDeviceGet", cuDeviceGet},
    {"cuDeviceGetAttribute", cuDeviceGetAttribute},
    {"cuDeviceGetCount", cuDeviceGetCount},
    {"cuDeviceGetName", cuDeviceGetName},
    {"cuDeviceGetUuid", cuDeviceGetUuid_v2},
    {"cuDevicePrimaryCtxGetState", cuDevicePrimaryCtxGetState},
    {"cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2},
    {"cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain},
    {"cuDeviceTotalMem", cuDeviceTotalMem_v2},
    {"cuDriverGetVersion", cuDriverGetVersion},
    {"cuEventCreate", cuEventCreate},
    {"cuEventDestroy", cuEventDestroy_v2},
    {"cuEventElapsedTime", cuEventElapsedTime_v2},
    {"cuEventQuery", cuEventQuery},
    {"cuEventRecord", cuEventRecord},
    {"cuEventSynchronize", cuEventSynchronize},
    {"cuGetErrorName", (entry *)cuGetErrorName},
    {"cuGetErrorString", (entry *)cuGetErrorString},
    {"cuInit", cuInit},
    {"cuMemAddressFree", cuMemAddressFree},
    {"cuMemAddressReserve", cuMemAddressReserve},
    {"cuMemAlloc", cuMemAlloc_v2},
    {"cuMemAllocAsync", cuMemAllocAsync},
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
    {"cuMemGetInfo", cuMemGetInfo_v2},
    {"cuMemHostAlloc", cuMemHostAlloc},
    {"cuMemMap", cuMemMap},
    {"cuMemRelease", cuMemRelease},
    {"cuMemRetainAllocationHandle", cuMemRetainAllocationHandle},
    {"cuMemSetAccess", cuMemSetAccess},
    {"cuMemUnmap", cuMemUnmap},
    {"cuMemcpy", cuMemcpy},
    {"cuMemcpyAsync", cuMemcpyAsync},
    {"cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2},
    {"cuMemcpyDtoD", cuMemcpyDtoD_v2},
    {"cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2},
    {"cuMemcpyDtoH", cuMemcpyDtoH_v2},
    {"cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2},
    {"cuMemcpyHtoD", cuMemcpyHtoD_v2},
    {"cuMemsetD8", cuMemsetD8_v2},
    {"cuMemsetD8Async", cuMemsetD8Async},
    {"cuStreamCreate", cuStreamCreate},
    {"cuStreamCreateWithPriority", cuStreamCreateWithPriority},
    {"cuStreamDestroy", cuStreamDestroy_v2},
    {"cuStreamGetCtx", cuStreamGetCtx},
    {"cuStreamIsCapturing", cuStreamIsCapturing},
    {"cuStreamQuery", cuStreamQuery},
    {"cuStreamSynchronize", cuStreamSynchronize},
    {"cuStreamWaitEvent", cuStreamWaitEvent},
    {"cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode},
    {"cuGetProcAddress", (entry *)cuGetProcAddress_v2},
};

static entry *find(const char *name) {
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
    if (strcmp(entries[i].name, name) == 0) return entries[i].function;
  return NULL;
}

SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
  CUresult result = sim_enter("cuGetProcAddress", false);
  if (result == CUDA_SUCCESS && (symbol == NULL || out == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    entry *found = find(symbol);
    memcpy(out, &found, sizeof found);
    if (status != NULL) *status = found != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return sim_leave("cuGetProcAddress", result, "symbol=%s version=%d flags=%llu", symbol != NULL ? symbol : "", version,
                   (unsigned long long)flags);
}

SIM_API CUresult cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}
