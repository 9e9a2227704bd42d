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

enum {
  LAUNCH,
  LAUNCH_PTSZ,
  LAUNCH_EX,
  LAUNCH_EX_PTSZ,
  COOPERATIVE,
  COOPERATIVE_PTSZ,
  INSTANTIATE,
  INSTANTIATE_WITH,
  INSTANTIATE_WITH_PTSZ,
  UPLOAD,
  UPLOAD_PTSZ,
  GRAPH_LAUNCH,
  GRAPH_LAUNCH_PTSZ,
  EXEC_DESTROY,
};
#define ENTRY(which) (&interpose_launches[which])

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

typedef cuda_error launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                          unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);

static cuda_error launch_by(struct entry *entry, void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
  launch *real = entry_real(entry);
  if (real == NULL) return CUDA_NOT_FOUND;
  struct code_use use;
  if (!first(function, &use)) return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
  struct overhead window;
  overhead_begin(&window);
  return launched(&window, &use, real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra), context_of(function));
}

EXPORT cuda_error cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
  return launch_by(ENTRY(LAUNCH), function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
}

EXPORT cuda_error cuLaunchKernel_ptsz(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                                      unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra) {
  return launch_by(ENTRY(LAUNCH_PTSZ), function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
}

static cuda_error launch_ex(struct entry *entry, const void *configuration, void *function, void **parameters, void **extra) {
  cuda_error (*real)(const void *, void *, void **, void **) = entry_real(entry);
  if (real == NULL) return CUDA_NOT_FOUND;
  struct code_use use;
  if (!first(function, &use)) return real(configuration, function, parameters, extra);
  struct overhead window;
  overhead_begin(&window);
  return launched(&window, &use, real(configuration, function, parameters, extra), context_of(function));
}

EXPORT cuda_error cuLaunchKernelEx(const void *configuration, void *function, void **parameters, void **extra) {
  return launch_ex(ENTRY(LAUNCH_EX), configuration, function, parameters, extra);
}
EXPORT cuda_error cuLaunchKernelEx_ptsz(const void *configuration, void *function, void **parameters, void **extra) {
  return launch_ex(ENTRY(LAUNCH_EX_PTSZ), configuration, function, parameters, extra);
}

typedef cuda_error cooperative(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared, void *stream, void **parameters);

static cuda_error cooperate(struct entry *entry, void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters) {
  cooperative *real = entry_real(entry);
  if (real == NULL) return CUDA_NOT_FOUND;
  struct code_use use;
  if (!first(function, &use)) return real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters);
  struct overhead window;
  overhead_begin(&window);
  return launched(&window, &use, real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters), context_of(function));
}

EXPORT cuda_error cuLaunchCooperativeKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                            unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters) {
  return cooperate(ENTRY(COOPERATIVE), function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters);
}
EXPORT cuda_error cuLaunchCooperativeKernel_ptsz(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                                 unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters) {
  return cooperate(ENTRY(COOPERATIVE_PTSZ), function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters);
}

// An executable graph was made. It may have the handle of one that was launched and destroyed.
static cuda_error made_graph(const struct overhead *window, cuda_error error, void *const *made) {
  const uint32_t context = spool_string("what=graph");
  overhead_end(window, context);
  if (error == CUDA_OK && hook_on()) code_remember(*made, context);
  return error;
}

EXPORT cuda_error cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  cuda_error (*real)(void **, void *, unsigned long long) = entry_real(ENTRY(INSTANTIATE));
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

EXPORT cuda_error cuGraphInstantiateWithParams(void **made, void *graph, void *parameters) {
  return instantiate(ENTRY(INSTANTIATE_WITH), made, graph, parameters);
}
EXPORT cuda_error cuGraphInstantiateWithParams_ptsz(void **made, void *graph, void *parameters) {
  return instantiate(ENTRY(INSTANTIATE_WITH_PTSZ), made, graph, parameters);
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

EXPORT cuda_error cuGraphUpload(void *executable, void *stream) { return send_graph(ENTRY(UPLOAD), executable, stream); }
EXPORT cuda_error cuGraphUpload_ptsz(void *executable, void *stream) { return send_graph(ENTRY(UPLOAD_PTSZ), executable, stream); }
EXPORT cuda_error cuGraphLaunch(void *executable, void *stream) { return send_graph(ENTRY(GRAPH_LAUNCH), executable, stream); }
EXPORT cuda_error cuGraphLaunch_ptsz(void *executable, void *stream) { return send_graph(ENTRY(GRAPH_LAUNCH_PTSZ), executable, stream); }

EXPORT cuda_error cuGraphExecDestroy(void *executable) {
  cuda_error (*real)(void *) = entry_real(ENTRY(EXEC_DESTROY));
  struct overhead window;
  if (real == NULL) return CUDA_NOT_FOUND;
  overhead_begin(&window);
  const cuda_error error = real(executable);
  overhead_end(&window, spool_string("what=graph"));
  return error;
}

#define DRIVER(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version}
#define PER_THREAD(function, base, version) {.name = #function, .ours = function, .asked = #base, .since = version, .per_thread = true}
struct entry interpose_launches[] = {
    [LAUNCH] = DRIVER(cuLaunchKernel, cuLaunchKernel, 4000),
    [LAUNCH_PTSZ] = PER_THREAD(cuLaunchKernel_ptsz, cuLaunchKernel, 7000),
    [LAUNCH_EX] = DRIVER(cuLaunchKernelEx, cuLaunchKernelEx, 11060),
    [LAUNCH_EX_PTSZ] = PER_THREAD(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060),
    [COOPERATIVE] = DRIVER(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000),
    [COOPERATIVE_PTSZ] = PER_THREAD(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000),
    [INSTANTIATE] = DRIVER(cuGraphInstantiateWithFlags, cuGraphInstantiate, 12000),
    [INSTANTIATE_WITH] = DRIVER(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000),
    [INSTANTIATE_WITH_PTSZ] = PER_THREAD(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000),
    [UPLOAD] = DRIVER(cuGraphUpload, cuGraphUpload, 11010),
    [UPLOAD_PTSZ] = PER_THREAD(cuGraphUpload_ptsz, cuGraphUpload, 11010),
    [GRAPH_LAUNCH] = DRIVER(cuGraphLaunch, cuGraphLaunch, 10000),
    [GRAPH_LAUNCH_PTSZ] = PER_THREAD(cuGraphLaunch_ptsz, cuGraphLaunch, 10000),
    [EXEC_DESTROY] = DRIVER(cuGraphExecDestroy, cuGraphExecDestroy, 10000),
    {0},
};

INTERPOSED(interpose_launches);
