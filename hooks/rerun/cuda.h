// cuda.h - the few CUDA calls that memprof makes itself, found at run time.
//
// Nothing is linked: the machine may have no CUDA, or the simulated driver under the same
// file name. Every pointer may be NULL; the callers in cuda.c say what is missing.
#ifndef MEMPROF_RERUN_CUDA_H
#define MEMPROF_RERUN_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum { RERUN_DEVICES = 64 };

// The driver's functions: symbol, member of the table, and parameters.
#define RERUN_DRIVER(CALL)                                                                      \
  CALL(cuInit, init, (unsigned flags))                                                          \
  CALL(cuDriverGetVersion, driver_version, (int *version))                                      \
  CALL(cuDeviceGetCount, device_count, (int *count))                                            \
  CALL(cuDeviceGet, device_get, (int *device, int ordinal))                                     \
  CALL(cuDeviceGetName, device_name, (char *name, int length, int device))                      \
  CALL(cuDeviceTotalMem_v2, device_total, (size_t *bytes, int device))                          \
  CALL(cuDeviceGetAttribute, device_attribute, (int *value, int attribute, int device))         \
  CALL(cuMemGetAllocationGranularity, granularity, (size_t *bytes, const void *properties, int option)) \
  CALL(cuDevicePrimaryCtxRetain, retain, (void **context, int device))                          \
  CALL(cuCtxSetCurrent, set_current, (void *context))                                           \
  CALL(cuStreamCreate, stream_create, (void **stream, unsigned flags))                          \
  CALL(cuMemAlloc_v2, mem_alloc, (uintptr_t *address, size_t bytes))                            \
  CALL(cuMemFree_v2, mem_free, (uintptr_t address))                                             \
  CALL(cuGetErrorName, error_name, (int error, const char **name))                              \
  CALL(cuMemAllocManaged, mem_alloc_managed, (uintptr_t *address, size_t bytes, unsigned flags)) \
  CALL(cuMemAllocAsync, mem_alloc_async, (uintptr_t *address, size_t bytes, void *stream))      \
  CALL(cuMemFreeAsync, mem_free_async, (uintptr_t address, void *stream))                       \
  CALL(cuMemHostAlloc, host_alloc, (void **address, size_t bytes, unsigned flags))              \
  CALL(cuMemFreeHost, host_free, (void *address))                                               \
  CALL(cuStreamBeginCapture_v2, begin_capture, (void *stream, int mode))                        \
  CALL(cuStreamEndCapture, end_capture, (void *stream, void **graph))                           \
  CALL(cuGraphDestroy, graph_destroy, (void *graph))

#define RERUN_DRIVER_MEMBER(symbol, name, PARAMETERS) int(*name) PARAMETERS;
struct rerun_cuda {
  void *driver;
  RERUN_DRIVER(RERUN_DRIVER_MEMBER)
  void *contexts[RERUN_DEVICES]; // primary contexts, retained on first use
  int current;                   // device whose context is current on the calling thread; -1: none
};

// What a driver says of one device. A negative number: the driver would not say.
struct rerun_device {
  char name[128];
  int64_t total;       // bytes
  int64_t granularity; // bytes, of physical handles
  int vmm;             // 1: has the virtual memory management calls
  int rdma;            // 1: GPUDirect RDMA works with them
};

// Opens a driver by name or path and initialises it. 0, or the driver's error; -1 with
// text in `why` (size bytes) when there is no usable driver.
int rerun_open_driver(struct rerun_cuda *cuda, const char *path, char *why, size_t size);

// CUDA's version, 1000*major + 10*minor, and the number of devices. 0 or a CUDA error.
int rerun_count(const struct rerun_cuda *cuda, int *version, int *devices);
void rerun_describe(const struct rerun_cuda *cuda, int ordinal, struct rerun_device *device);
const char *rerun_error_name(const struct rerun_cuda *cuda, int error);

// Each returns 0 or a CUDA error. `stream` is a handle from rerun_stream, or one of CUDA's own: 0, 1, 2.
int rerun_enter(struct rerun_cuda *cuda, int device); // makes its primary context current
int rerun_stream(struct rerun_cuda *cuda, int device, uintptr_t *stream);

// Memory as a library takes it from the driver.
enum rerun_memory { RERUN_DEVICE, RERUN_MANAGED, RERUN_HOST, RERUN_POOL };
int rerun_take(struct rerun_cuda *cuda, int device, enum rerun_memory memory, uintptr_t stream, size_t bytes, uintptr_t *address);
int rerun_give(struct rerun_cuda *cuda, int device, enum rerun_memory memory, uintptr_t stream, uintptr_t address);

// A capture of nothing, into a graph that is dropped.
int rerun_capture_begin(struct rerun_cuda *cuda, int device, uintptr_t stream);
int rerun_capture_end(struct rerun_cuda *cuda, int device, uintptr_t stream);

#endif
