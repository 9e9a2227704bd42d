// contexts.c - the job makes and resets contexts.
//
// A context takes memory of the device, which overhead.c measures. Runtimes make the primary context; few
// programs make others. A reset frees all memory of the device without a call for each block. The release
// of the last reference would do so, too, but programs do that only when they exit.
#include "arena/fence.h"
#include "base/hook.h"
#include "device/driver.h"
#include "device/otherlib.h"
#include "device/overhead.h"
#include "interpose/interpose.h"
#include "watch/code.h"

WRAPPER(cuDevicePrimaryCtxRetain, (void **context, int device), DRIVER(cuDevicePrimaryCtxRetain, 7000)) {
  struct overhead_context making;
  cuda_error (*real)(void **, int) = entry_real(&cuDevicePrimaryCtxRetain_entry);
  overhead_context_begin(&making, device, true);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(context, device);
  overhead_context_end(&making, error == CUDA_OK);
  return error;
}

// A context that the job makes: its work counts, too, before memory changes hands (arena/fence.h).
static cuda_error made(void **context, int device, cuda_error error) {
  if (error == CUDA_OK && hook_on()) driver_context_made(device, *context);
  return error;
}

// CREATES wraps a function that makes a context. PARAMETERS and ARGUMENTS are those of the function, in parentheses.
#define CREATES(function, kind, PARAMETERS, ARGUMENTS)                       \
  WRAPPER(function, PARAMETERS, kind) {                                      \
    struct overhead_context making;                                          \
    cuda_error(*real) PARAMETERS = entry_real(&function##_entry);            \
    overhead_context_begin(&making, device, false);                          \
    const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real ARGUMENTS; \
    overhead_context_end(&making, error == CUDA_OK);                         \
    return made(context, device, error);                                     \
  }

CREATES(cuCtxCreate_v2, DRIVER(cuCtxCreate, 3020), (void **context, unsigned flags, int device), (context, flags, device))
CREATES(cuCtxCreate_v3, DRIVER(cuCtxCreate, 11040), (void **context, void *affinity, int count, unsigned flags, int device), (context, affinity, count, flags, device))
CREATES(cuCtxCreate_v4, DRIVER(cuCtxCreate, 12050), (void **context, void *parameters, unsigned flags, int device), (context, parameters, flags, device))

WRAPPER(cuCtxDestroy_v2, (void *context), DRIVER(cuCtxDestroy, 4000)) {
  cuda_error (*real)(void *) = entry_real(&cuCtxDestroy_v2_entry);
  if (hook_on()) fence_context_gone(context);
  return real == NULL ? CUDA_NOT_FOUND : real(context);
}

static void ended(void *self, uint64_t addr, int device) { call_ended(self, (void *)(uintptr_t)addr, device); }

static cuda_error reset(struct call *call, int device) {
  cuda_error (*real)(int) = call_enter(call);
  const bool before = hook_on() && driver_get() != NULL && driver_primary_active(device);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(device);
  if (before && error == CUDA_OK && !driver_primary_active(device)) {
    fence_device_reset(device);
    otherlib_end_all(device, call, ended);
    overhead_gone(device);
    code_lost();
  }
  call_leave();
  return error;
}

WRAPPER(cuDevicePrimaryCtxReset, (int device), DRIVER(cuDevicePrimaryCtxReset, 7000)) { return reset(CALL(cuDevicePrimaryCtxReset), device); }
WRAPPER(cuDevicePrimaryCtxReset_v2, (int device), DRIVER(cuDevicePrimaryCtxReset, 11000)) { return reset(CALL(cuDevicePrimaryCtxReset_v2), device); }

