// pointers.c - questions about served pointers, and access from other devices.
//
// A served block is a part of mapped memory. To the driver, an address range is the whole mapping, and mapped
// memory belongs to no context. The job, which allocated the block by cudaMalloc, expects the block's address
// and size, and a context. So the wrappers answer for served blocks. Communication libraries get the driver's
// own answer: they map memory into other processes, and need to know where the mapping starts. Peer access
// has to be set for each mapping, so it is passed on to the arenas.
#include "api.h"
#include "base/hook.h"
#include "base/options.h"
#include "device/driver.h"
#include "interpose/interpose.h"
#include "interpose/serve.h"
#include "memprof.h"

// CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_DEVICE and cudaMemoryTypeDevice
enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12, MAPPED = 13 };
enum { TYPE_DEVICE = 2 };

// Whether the call is about a served block, and the wrapper answers it.
static bool corrected(const struct call *call, uint64_t addr, struct served_block *block) {
  return call->outermost && serve_block(addr, block) && !call_from_communication(call);
}

WRAPPER(cuMemGetAddressRange_v2, (uint64_t *start, size_t *bytes, uint64_t addr), DRIVER(cuMemGetAddressRange, 3020)) {
  struct call *call = CALL(cuMemGetAddressRange_v2);
  cuda_error (*real)(uint64_t *, size_t *, uint64_t) = call_enter(call);
  struct served_block block;
  cuda_error error = CUDA_NOT_FOUND;
  if (corrected(call, addr, &block)) {
    if (start != NULL) *start = block.start;
    if (bytes != NULL) *bytes = block.bytes;
    error = CUDA_OK;
  } else if (real != NULL) {
    error = real(start, bytes, addr);
  }
  call_leave();
  return error;
}

static void *context_of(int device) {
  struct driver_scope scope;
  void *context = NULL;
  if (!driver_enter(device, &scope)) return NULL;
  driver_get()->context_get(&context);
  driver_leave(&scope);
  return context;
}

// Answers an attribute of a served block. False: the driver's answer is right.
static bool answer(const struct served_block *block, uint64_t addr, int attribute, void *out) {
  switch (attribute) {
    case CONTEXT: *(void **)out = context_of(block->device); return true;
    case MEMORY_TYPE: *(unsigned *)out = TYPE_DEVICE; return true;
    case DEVICE_POINTER: *(uint64_t *)out = addr; return true;
    case IS_MANAGED: *(unsigned *)out = 0; return true;
    case DEVICE_ORDINAL: *(int *)out = block->device; return true;
    case RANGE_START: *(uint64_t *)out = block->start; return true;
    case RANGE_SIZE: *(size_t *)out = block->bytes; return true;
    case MAPPED: *(unsigned char *)out = 1; return true;
    default: return false;
  }
}

WRAPPER(cuPointerGetAttribute, (void *out, int attribute, uint64_t addr), DRIVER(cuPointerGetAttribute, 4000)) {
  struct call *call = CALL(cuPointerGetAttribute);
  cuda_error (*real)(void *, int, uint64_t) = call_enter(call);
  struct served_block block;
  cuda_error error = CUDA_OK;
  if (out == NULL || !corrected(call, addr, &block) || !answer(&block, addr, attribute, out)) {
    error = real == NULL ? CUDA_NOT_FOUND : real(out, attribute, addr);
  }
  call_leave();
  return error;
}

WRAPPER(cuPointerGetAttributes, (unsigned count, const int *attributes, void **out, uint64_t addr), DRIVER(cuPointerGetAttributes, 7000)) {
  struct call *call = CALL(cuPointerGetAttributes);
  cuda_error (*real)(unsigned, const int *, void **, uint64_t) = call_enter(call);
  struct served_block block;
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(count, attributes, out, addr);
  if (error == CUDA_OK && corrected(call, addr, &block)) {
    for (unsigned i = 0; i < count; i++) answer(&block, addr, attributes[i], out[i]);
  }
  call_leave();
  return error;
}

// cudaPointerAttributes as of CUDA 11; later members are left as the runtime has set them.
struct pointer_attributes {
  int type, device;
  void *device_pointer, *host_pointer;
};

WRAPPER(cudaPointerGetAttributes, (struct pointer_attributes *out, const void *ptr), RUNTIME) {
  struct call *call = CALL(cudaPointerGetAttributes);
  cuda_error (*real)(struct pointer_attributes *, const void *) = call_enter(call);
  struct served_block block;
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(out, ptr);
  if (error == CUDA_OK && corrected(call, (uintptr_t)ptr, &block)) {
    *out = (struct pointer_attributes){TYPE_DEVICE, block.device, (void *)(uintptr_t)ptr, NULL};
  }
  call_leave();
  return error;
}

// The shim opens torch's memory itself; torch's plug-in allocator relies on this call.
static void open_to_current(const struct call *call, cuda_error error, int peer) {
  const bool ours = hook_on() && (options_get()->serve || plugin_prepared());
  if (error == CUDA_OK && call->outermost && ours) memprof_enable_peer(peer, call_device());
  call_leave();
}

WRAPPER(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), RUNTIME) {
  struct call *call = CALL(cudaDeviceEnablePeerAccess);
  cuda_error (*real)(int, unsigned) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(peer, flags);
  open_to_current(call, error, peer);
  return error;
}

WRAPPER(cuCtxEnablePeerAccess, (void *context, unsigned flags), DRIVER(cuCtxEnablePeerAccess, 4000)) {
  struct call *call = CALL(cuCtxEnablePeerAccess);
  cuda_error (*real)(void *, unsigned) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(context, flags);
  const struct driver *driver = error == CUDA_OK ? driver_get() : NULL;
  int peer = -1;
  if (driver != NULL && driver->context_push(context) == DRIVER_OK) {
    driver->context_device(&peer);
    driver->context_pop(&context);
  }
  open_to_current(call, error, peer);
  return error;
}
