// cuda.h - the few CUDA calls that memprof makes itself, found at run time.
//
// Nothing is linked: the machine may have no CUDA, or the simulated driver under the same
// file name. Every pointer may be NULL; the callers in cuda.c say what is missing.
#ifndef MEMPROF_RERUN_CUDA_H
#define MEMPROF_RERUN_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum { RERUN_DEVICES = 64 };

struct rerun_cuda {
  void *driver;
  int (*init)(unsigned flags);
  int (*driver_version)(int *version);
  int (*device_count)(int *count);
  int (*device_get)(int *device, int ordinal);
  int (*device_name)(char *name, int length, int device);
  int (*device_total)(size_t *bytes, int device);
  int (*device_attribute)(int *value, int attribute, int device);
  int (*granularity)(size_t *bytes, const void *properties, int option);
  int (*retain)(void **context, int device);
  int (*set_current)(void *context);
  int (*stream_create)(void **stream, unsigned flags);
  int (*mem_alloc)(uintptr_t *address, size_t bytes);
  int (*mem_free)(uintptr_t address);
  int (*error_name)(int error, const char **name);

  const char *runtime; // name it was opened by; NULL: none found
  int (*cuda_malloc)(void **address, size_t bytes);
  int (*cuda_free)(void *address);

  int hooked; // the capture hook serves this process
  int (*hook_active)(void);
  void *(*hook_malloc)(size_t bytes, int device, void *stream);
  void (*hook_free)(void *address, size_t bytes, int device, void *stream);
  const char *(*hook_oom_message)(void);
  void (*hook_iteration)(const char *label);
  void (*hook_phase_begin)(const char *name);
  void (*hook_phase_end)(const char *name);
  void (*hook_set_context)(const char *context);

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

// Finds the runtime (the first of `names`, a NULL-terminated list, that opens) and the hook.
void rerun_open_allocators(struct rerun_cuda *cuda, const char *const *names);

// CUDA's version, 1000*major + 10*minor, and the number of devices. 0 or a CUDA error.
int rerun_count(const struct rerun_cuda *cuda, int *version, int *devices);
void rerun_describe(const struct rerun_cuda *cuda, int ordinal, struct rerun_device *device);
const char *rerun_error_name(const struct rerun_cuda *cuda, int error);

// Each returns 0 or a CUDA error. `stream` is a handle from rerun_stream, or NULL.
int rerun_stream(struct rerun_cuda *cuda, int device, void **stream);
int rerun_malloc(struct rerun_cuda *cuda, int device, void *stream, size_t bytes, uintptr_t *address);
int rerun_free(struct rerun_cuda *cuda, int device, void *stream, uintptr_t address);

// Why the hook refused the last request of this thread.
const char *rerun_oom_message(const struct rerun_cuda *cuda);

// Marks; nothing happens without the hook.
void rerun_iteration(const struct rerun_cuda *cuda, const char *label);
void rerun_phase(const struct rerun_cuda *cuda, const char *name, int begin);
void rerun_context(const struct rerun_cuda *cuda, const char *context);

#endif
