// launches.c - first launches of kernels and graphs, at which the driver takes memory.
//
// A kernel that is loaded lazily takes memory when it is first launched; so does the stack of a kernel that
// needs more than any before it. Only first launches are measured: launches are frequent, and asking the
// driver how much is in use takes microseconds; what a graph's took is read later.
#include "base/hook.h"
#include "device/captures.h"
#include "device/driver.h"
#include "device/overhead.h"
#include "interpose/interpose.h"
#include "spool/spool.h"
#include "watch/code.h"

// Whether a handle is launched for the first time. Each device loads a kernel for itself, so with several
// devices the current one matters; with one device it is not asked for, which saves time.
static bool first(const void *handle, struct code_use *use) {
  if (!hook_on() || capturing()) return false;
  *use = (struct code_use){handle, -1, NULL};
  if (!overhead_of_several()) return code_first(use);
  const struct driver *driver = driver_get();
  use->name = "launch";
  return driver != NULL && driver->context_device(&use->device) == DRIVER_OK && code_first(use);
}

// Ends a first launch. If it failed, for want of memory say, the next launch is the first again.
static cuda_error launched(const struct overhead *window, const struct code_use *use, cuda_error error, uint32_t context) {
  if (error != CUDA_OK) code_undo(use);
  overhead_end(window, context);
  return error;
}

static uint32_t context_of(const void *function) {
  const uint32_t known = code_of(function);
  return known != 0 ? known : spool_string("what=library");
}

// LAUNCHES wraps a function that launches `function`. PARAMETERS and ARGUMENTS are those of the wrapped one, in parentheses.
#define LAUNCHES(name, kind, PARAMETERS, ARGUMENTS)                       \
  WRAPPER(name, PARAMETERS, kind) {                                       \
    cuda_error(*real) PARAMETERS = entry_real(&name##_entry);             \
    struct code_use use;                                                  \
    struct overhead window;                                               \
    if (real == NULL) return CUDA_NOT_FOUND;                              \
    if (!first(function, &use)) return real ARGUMENTS;                    \
    overhead_begin(&window);                                              \
    return launched(&window, &use, real ARGUMENTS, context_of(function)); \
  }

#define SHAPE_PARAMETERS unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, void *stream
#define SHAPE grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream
LAUNCHES(cuLaunchKernel, DRIVER(cuLaunchKernel, 4000), (void *function, SHAPE_PARAMETERS, void **parameters, void **extra), (function, SHAPE, parameters, extra))
LAUNCHES(cuLaunchKernel_ptsz, DRIVER_PER_THREAD(cuLaunchKernel, 7000), (void *function, SHAPE_PARAMETERS, void **parameters, void **extra), (function, SHAPE, parameters, extra))
LAUNCHES(cuLaunchKernelEx, DRIVER(cuLaunchKernelEx, 11060), (const void *configuration, void *function, void **parameters, void **extra), (configuration, function, parameters, extra))
LAUNCHES(cuLaunchKernelEx_ptsz, DRIVER_PER_THREAD(cuLaunchKernelEx, 11060), (const void *configuration, void *function, void **parameters, void **extra), (configuration, function, parameters, extra))
LAUNCHES(cuLaunchCooperativeKernel, DRIVER(cuLaunchCooperativeKernel, 9000), (void *function, SHAPE_PARAMETERS, void **parameters), (function, SHAPE, parameters))
LAUNCHES(cuLaunchCooperativeKernel_ptsz, DRIVER_PER_THREAD(cuLaunchCooperativeKernel, 9000), (void *function, SHAPE_PARAMETERS, void **parameters), (function, SHAPE, parameters))

// An executable graph was made. It may have the handle of one that was launched and destroyed.
static cuda_error made_graph(const struct overhead *window, cuda_error error, void *const *made) {
  const uint32_t context = spool_string("what=graph");
  overhead_end(window, context);
  if (error == CUDA_OK && hook_on()) code_remember(*made, context);
  return error;
}

WRAPPER(cuGraphInstantiateWithFlags, (void **made, void *graph, unsigned long long flags), DRIVER(cuGraphInstantiate, 12000)) {
  cuda_error (*real)(void **, void *, unsigned long long) = entry_real(&cuGraphInstantiateWithFlags_entry);
  struct overhead window;
  if (real == NULL) return CUDA_NOT_FOUND;
  overhead_begin(&window);
  return made_graph(&window, real(made, graph, flags), made);
}

static cuda_error instantiate(struct entry *entry, void **made, void *graph, void *parameters) {
  cuda_error (*real)(void **, void *, void *) = entry_real(entry);
  struct overhead window;
  if (real == NULL) return CUDA_NOT_FOUND;
  overhead_begin(&window);
  return made_graph(&window, real(made, graph, parameters), made);
}

WRAPPER(cuGraphInstantiateWithParams, (void **made, void *graph, void *parameters), DRIVER(cuGraphInstantiateWithParams, 12000)) {
  return instantiate(&cuGraphInstantiateWithParams_entry, made, graph, parameters);
}
WRAPPER(cuGraphInstantiateWithParams_ptsz, (void **made, void *graph, void *parameters), DRIVER_PER_THREAD(cuGraphInstantiateWithParams, 12000)) {
  return instantiate(&cuGraphInstantiateWithParams_ptsz_entry, made, graph, parameters);
}

// To the device, for the first time. A job may launch several graphs that have to start together, so that
// nothing is read in between if it can be avoided.
static cuda_error send_graph(struct entry *entry, void *executable, void *stream) {
  cuda_error (*real)(void *, void *) = entry_real(entry);
  if (real == NULL) return CUDA_NOT_FOUND;
  struct code_use use;
  if (!first(executable, &use)) {
    overhead_read_later();
    return real(executable, stream);
  }
  const uint32_t context = spool_string("what=graph");
  struct overhead window = {.device = -1};
  if (!overhead_later(context)) overhead_begin(&window);
  return launched(&window, &use, real(executable, stream), context);
}

WRAPPER(cuGraphUpload, (void *executable, void *stream), DRIVER(cuGraphUpload, 11010)) { return send_graph(&cuGraphUpload_entry, executable, stream); }
WRAPPER(cuGraphUpload_ptsz, (void *executable, void *stream), DRIVER_PER_THREAD(cuGraphUpload, 11010)) { return send_graph(&cuGraphUpload_ptsz_entry, executable, stream); }
WRAPPER(cuGraphLaunch, (void *executable, void *stream), DRIVER(cuGraphLaunch, 10000)) { return send_graph(&cuGraphLaunch_entry, executable, stream); }
WRAPPER(cuGraphLaunch_ptsz, (void *executable, void *stream), DRIVER_PER_THREAD(cuGraphLaunch, 10000)) { return send_graph(&cuGraphLaunch_ptsz_entry, executable, stream); }

WRAPPER(cuGraphExecDestroy, (void *executable), DRIVER(cuGraphExecDestroy, 10000)) {
  cuda_error (*real)(void *) = entry_real(&cuGraphExecDestroy_entry);
  struct overhead window;
  if (real == NULL) return CUDA_NOT_FOUND;
  overhead_begin(&window);
  const cuda_error error = real(executable);
  overhead_end(&window, spool_string("what=graph"));
  return error;
}

