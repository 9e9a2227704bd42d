// interpose.h - interposition: the hook's wrappers around CUDA functions, and what they share.
//
// For every CUDA function that is wrapped, the hook exports a function with the same name, which has an
// `entry` in the table of its file. A program reaches it in one of three ways: it is linked against the
// name, it asks dlsym, or it asks cuGetProcAddress. The entry has the real function:
//
//   program ──linked──────────────▶ cudaMalloc (hook) ──entry──▶ cudaMalloc (libcudart)
//           ──dlsym───────────────▶       ▲  the hook replaces the answer
//           ──cuGetProcAddress────▶       │
//
// Calls nest: the runtime's cudaMalloc calls the driver's cuMemAlloc, which is wrapped, too. Only the
// outermost call of a thread is recorded, served or repeated.
#ifndef MEMPROF_INTERPOSE_H
#define MEMPROF_INTERPOSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int cuda_error;  // cudaError_t and CUresult share the numbers used here
enum {
  CUDA_OK = 0,
  CUDA_INVALID_VALUE = 1,
  CUDA_OUT_OF_MEMORY = 2,
  CUDA_NOT_FOUND = 500,
  CUDA_CAPTURE_UNSUPPORTED = 900,
};

// Stream handles that CUDA defines: the legacy default stream, and the default stream of each thread.
enum { STREAM_LEGACY = 1, STREAM_PER_THREAD = 2 };

// A wrapped function. `real` and `looked_up` are set once.
struct entry {
  const char *name;   // of the exported symbol
  void *ours;         // the wrapper
  const char *asked;  // the name by which cuGetProcAddress finds it; NULL: a function of the runtime
  int since;          // the first CUDA version whose programs get this variant, 1000 * major + 10 * minor; 0: not known
  bool per_thread;    // stream 0 means the calling thread's default stream
  void *_Atomic real;       // the real function for all callers; NULL: not known, or callers differ
  void *_Atomic looked_up;  // if callers differ: the answer of the first dlsym
};

// WRAPPER(function, (parameters), kind) { ... } defines the wrapper of a function that returns an error, and its entry, function_entry;
// WRAPPER_OF that of a function with another result. The linker collects the entries in a section, as those of HOOK_PART
// (base/hook.h): so they are there before any code runs, and table.c, which all files need, needs none of them.
#define WRAPPER_OF(result, function, PARAMETERS, ...)                                                            \
  EXPORT result function PARAMETERS;                                                                             \
  static struct entry function##_entry = {.name = #function, .ours = function, __VA_ARGS__};                     \
  static struct entry *const function##_listed __attribute__((used, section("interposed"))) = &function##_entry; \
  EXPORT result function PARAMETERS
#define WRAPPER(function, PARAMETERS, ...) WRAPPER_OF(cuda_error, function, PARAMETERS, __VA_ARGS__)

// The kinds: of the runtime or another library; of the driver, by the name and the version that cuGetProcAddress finds it by.
#define RUNTIME .asked = NULL
#define RUNTIME_PER_THREAD .per_thread = true
#define DRIVER(name, version) .asked = #name, .since = version
#define DRIVER_PER_THREAD(name, version) .asked = #name, .since = version, .per_thread = true

// The real function of an entry, searched at the first call; NULL: no loaded library has it.
void *entry_real(struct entry *entry);

// What dlsym returns for `name` if the C library's dlsym returned `found`: the wrapper, or `found`.
void *entry_exchange(const char *name, void *found);

// The same for cuGetProcAddress. A variant that no table has stays what the driver answered: its arguments are not known.
void *entry_exchange_asked(const char *asked, void *found);

// A call of a wrapper, on its stack.
struct call {
  struct entry *entry;
  const void *from;  // return address: where the caller is
  bool outermost;    // no other wrapper of the thread is under way, nor is it a call of the hook
};
#define CALL(function) (&(struct call){.entry = &function##_entry, .from = __builtin_return_address(0)})

// The real function for this caller, which may have a runtime of its own; and another function, by name,
// of the library that has it. NULL: there is none.
void *call_real(const struct call *call);
void *call_sibling(const struct call *call, const char *name);

// Every wrapper calls call_enter first, which returns the real function, and call_leave last.
void *call_enter(struct call *call);
void call_leave(void);

// The kind of memory, which decides the fields of the event behind call= and library=.
enum call_memory { MEMORY_DEVICE, MEMORY_MANAGED, MEMORY_HOST, MEMORY_POOL };

// Writes the event of an allocation, or of a free, if the process is recorded and the call is the outermost.
// `device` -1: the stream's.
void call_allocated(const struct call *call, enum call_memory memory, const void *ptr, size_t bytes, int device, const void *stream);
void call_freed(const struct call *call, enum call_memory memory, const void *ptr, int device, const void *stream);

// Whole wrappers of calls that take the same arguments for several kinds of memory: they call the real
// function and write the event. CUDA_NOT_FOUND: there is no real function.
cuda_error call_allocate_flags(struct call *call, enum call_memory memory, void **ptr, size_t bytes, unsigned flags);
cuda_error call_release(struct call *call, enum call_memory memory, void *ptr);

// Writes the event of a free for memory that a reset of its device has freed.
void call_ended(const struct call *call, const void *ptr, int device);

// Whether the caller is a communication library (NCCL, NVSHMEM, UCX), whose memory is never served.
bool call_from_communication(const struct call *call);

// Releases free memory of the arenas if the call's error is out of memory. True: the wrapper makes the real
// call once more.
bool call_again(const struct call *call, cuda_error error, size_t bytes);

// The ordinal of the device that a call uses: of the current context, or if there is none, the one chosen by
// cudaSetDevice.
int call_device(void);
// The ordinal of the device of a stream.
int call_stream_device(const void *stream);

#endif
