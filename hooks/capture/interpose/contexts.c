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

enum { RETAIN, RESET, RESET_V2, CREATE_V2, CREATE_V3, CREATE_V4, DESTROY_V2 };
#define CALL(which) (&(struct call){.entry = &interpose_contexts[which], .from = __builtin_return_address(0)})

EXPORT cuda_error cuDevicePrimaryCtxRetain(void **context, int device) {
  struct overhead_context making;
  cuda_error (*real)(void **, int) = entry_real(&interpose_contexts[RETAIN]);
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

EXPORT cuda_error cuCtxCreate_v2(void **context, unsigned flags, int device) {
  struct overhead_context making;
  cuda_error (*real)(void **, unsigned, int) = entry_real(&interpose_contexts[CREATE_V2]);
  overhead_context_begin(&making, device, false);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(context, flags, device);
  overhead_context_end(&making, error == CUDA_OK);
  return made(context, device, error);
}

EXPORT cuda_error cuCtxCreate_v3(void **context, void *affinity, int count, unsigned flags, int device) {
  struct overhead_context making;
  cuda_error (*real)(void **, void *, int, unsigned, int) = entry_real(&interpose_contexts[CREATE_V3]);
  overhead_context_begin(&making, device, false);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(context, affinity, count, flags, device);
  overhead_context_end(&making, error == CUDA_OK);
  return made(context, device, error);
}

EXPORT cuda_error cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int device) {
  struct overhead_context making;
  cuda_error (*real)(void **, void *, unsigned, int) = entry_real(&interpose_contexts[CREATE_V4]);
  overhead_context_begin(&making, device, false);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(context, parameters, flags, device);
  overhead_context_end(&making, error == CUDA_OK);
  return made(context, device, error);
}

EXPORT cuda_error cuCtxDestroy_v2(void *context) {
  cuda_error (*real)(void *) = entry_real(&interpose_contexts[DESTROY_V2]);
  if (hook_on()) fence_context_gone(context);
  return real == NULL ? CUDA_NOT_FOUND : real(context);
}

static bool active(int device) {
  static struct entry entry = {.name = "cuDevicePrimaryCtxGetState"};
  cuda_error (*get)(int, unsigned *, int *) = entry_real(&entry);
  unsigned flags;
  int yes = 0;
  return get != NULL && get(device, &flags, &yes) == CUDA_OK && yes;
}

static void ended(void *self, uint64_t addr, int device) { call_ended(self, (void *)(uintptr_t)addr, device); }

static cuda_error reset(struct call *call, int device) {
  cuda_error (*real)(int) = call_enter(call);
  const bool before = hook_on() && active(device);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(device);
  if (before && error == CUDA_OK && !active(device)) {
    fence_device_reset(device);
    otherlib_end_all(device, call, ended);
    overhead_gone(device);
    code_lost();
  }
  call_leave();
  return error;
}

EXPORT cuda_error cuDevicePrimaryCtxReset(int device) { return reset(CALL(RESET), device); }
EXPORT cuda_error cuDevicePrimaryCtxReset_v2(int device) { return reset(CALL(RESET_V2), device); }

#define DRIVER(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version}
#define EXACT(function, base) {.name = #function, .ours = function, .asked = #base, .exact = true}
struct entry interpose_contexts[] = {
    [RETAIN] = DRIVER(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000),
    [RESET] = DRIVER(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000),
    [RESET_V2] = DRIVER(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000),
    [CREATE_V2] = EXACT(cuCtxCreate_v2, cuCtxCreate),
    [CREATE_V3] = EXACT(cuCtxCreate_v3, cuCtxCreate),
    [CREATE_V4] = EXACT(cuCtxCreate_v4, cuCtxCreate),
    [DESTROY_V2] = DRIVER(cuCtxDestroy_v2, cuCtxDestroy, 4000),
    {0},
};

INTERPOSED(interpose_contexts);
