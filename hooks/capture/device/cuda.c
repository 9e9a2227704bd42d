// cuda.c - NVIDIA's driver: where the functions of struct driver are found. The types of driver.h
// are those of cuda.h, so nothing has to be converted.
#include "device/vendor.h"

static const struct vendor_symbol needed[] = {
    VENDOR_SYMBOL("cuInit", init),
    VENDOR_SYMBOL("cuDeviceGet", device_get),
    VENDOR_SYMBOL("cuDeviceGetCount", device_count),
    VENDOR_SYMBOL("cuDeviceGetAttribute", device_attribute),
    VENDOR_SYMBOL("cuDeviceTotalMem_v2", device_total),
    VENDOR_SYMBOL("cuDeviceCanAccessPeer", can_access),
    VENDOR_SYMBOL("cuDevicePrimaryCtxRetain", primary_retain),
    VENDOR_SYMBOL("cuCtxGetCurrent", context_get),
    VENDOR_SYMBOL("cuCtxGetDevice", context_device),
    VENDOR_SYMBOL("cuCtxPushCurrent_v2", context_push),
    VENDOR_SYMBOL("cuCtxPopCurrent_v2", context_pop),
    VENDOR_SYMBOL("cuCtxSynchronize", synchronize),
    VENDOR_SYMBOL("cuMemGetInfo_v2", memory_info),
    VENDOR_SYMBOL("cuMemAddressReserve", reserve),
    VENDOR_SYMBOL("cuMemAddressFree", unreserve),
    VENDOR_SYMBOL("cuMemCreate", create),
    VENDOR_SYMBOL("cuMemRelease", release),
    VENDOR_SYMBOL("cuMemMap", map),
    VENDOR_SYMBOL("cuMemUnmap", unmap),
    VENDOR_SYMBOL("cuMemSetAccess", set_access),
    VENDOR_SYMBOL("cuMemGetAllocationGranularity", granularity),
    VENDOR_SYMBOL("cuEventCreate", event_create),
    VENDOR_SYMBOL("cuEventRecord", event_record),
    VENDOR_SYMBOL("cuEventQuery", event_query),
    VENDOR_SYMBOL("cuEventDestroy_v2", event_destroy),
    VENDOR_SYMBOL("cuStreamIsCapturing", stream_capturing),
    VENDOR_SYMBOL("cuStreamGetCtx", stream_context),
    {0},
};

// What the hook does without where the driver is too old for it.
static const struct vendor_symbol optional[] = {
    VENDOR_SYMBOL("cuDeviceGetUuid_v2", device_uuid),
    VENDOR_SYMBOL("cuDevicePrimaryCtxGetState", primary_state),
    VENDOR_SYMBOL("cuMemExportToShareableHandle", export_handle),
    VENDOR_SYMBOL("cuMemImportFromShareableHandle", import_handle),
    VENDOR_SYMBOL("cuMemHostAlloc", host_alloc),
    VENDOR_SYMBOL("cuMemFreeHost", host_free),
    VENDOR_SYMBOL("cuMemHostRegister_v2", host_register),
    VENDOR_SYMBOL("cuMemHostUnregister", host_unregister),
    VENDOR_SYMBOL("cuMemcpyDtoHAsync_v2", copy_out),
    VENDOR_SYMBOL("cuMemcpyHtoDAsync_v2", copy_in),
    VENDOR_SYMBOL("cuStreamCreate", stream_create),
    VENDOR_SYMBOL("cuStreamSynchronize", stream_synchronize),
    VENDOR_SYMBOL("cuStreamDestroy_v2", stream_destroy),
    VENDOR_SYMBOL("cuEventSynchronize", event_synchronize),
    VENDOR_SYMBOL("cuCtxRecordEvent", context_record),
    VENDOR_SYMBOL("cuThreadExchangeStreamCaptureMode", capture_mode),
    VENDOR_SYMBOL("cuDeviceGetDefaultMemPool", default_pool),
    VENDOR_SYMBOL("cuMemPoolGetAttribute", pool_attribute),
    {0},
};

const struct vendor vendor_cuda = {
    .name = "CUDA",
    .libraries = {"libcuda.so.1"},
    .needed = needed,
    .optional = optional,
    .attributes = {.vmm = 102, .posix_fd = 103, .rdma_with_vmm = 110},  // CU_DEVICE_ATTRIBUTE_*
    .unmaps_ranges = true,
    .aliases = true,
};
