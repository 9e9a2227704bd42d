// interpose.h - what the files of the interposition share.
//
// Every wrapped CUDA function is an exported function of ours with the same name and an
// `entry` in the table of its file. A program comes to it in one of three ways: it is
// linked against the name, it asks dlsym, or it asks cuGetProcAddress. The entry knows the
// real function, which is whichever was found first:
//
//   program ──linked──────────────▶ cudaMalloc (ours) ──entry──▶ cudaMalloc (libcudart)
//           ──dlsym───────────────▶       ▲  the answer is exchanged
//           ──cuGetProcAddress────▶       │
//
// Calls nest: the runtime's cudaMalloc calls the driver's cuMemAlloc, which is wrapped, too.
// Only the outermost call of a thread is recorded, served or tried again.
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

// Stream handles with a meaning of their own.
enum { STREAM_LEGACY = 1, STREAM_PER_THREAD = 2 };

struct entry {
  const char *name;   // of the exported symbol
  void *ours;
  const char *asked;  // the name that cuGetProcAddress is asked for; NULL: a runtime function
  int since;          // the CUDA version whose program means this variant, 1000 * major + 10 * minor
  bool per_thread;    // stream 0 is the calling thread's own
  bool exact;         // a wrong guess at the variant would pass wrong arguments
  void *_Atomic real;       // for all callers
  void *_Atomic looked_up;  // where there is none for all: what a dlsym was answered
};

// The tables, one a file; each ends with an entry without a name.
extern struct entry interpose_lookups[], interpose_memory[], interpose_arrays[], interpose_host[], interpose_vmm[],
    interpose_captures[], interpose_pools[], interpose_pointers[], interpose_loads[],
    interpose_launches[], interpose_contexts[];

// The real function behind an entry; NULL when no loaded library has it.
void *entry_real(struct entry *entry);

// What dlsym should answer for `name` when the answer was `found`: ours, or `found` itself.
void *entry_exchange(const char *name, void *found);

// The same for cuGetProcAddress with its version and flags.
void *entry_exchange_asked(const char *asked, int version, uint64_t flags, void *found);

// A call on its way through a wrapper.
struct call {
  struct entry *entry;
  const void *from;  // return address into the caller
  bool outermost;
};

// The real function for this caller, and another of the same library.
void *call_real(const struct call *call);
void *call_sibling(const struct call *call, const char *name);

// The first and the last thing a wrapper does; returns the real function.
void *call_enter(struct call *call);
void call_leave(void);

// What kind of memory an event is about: the fields after call= and library=.
enum call_memory { MEMORY_DEVICE, MEMORY_MANAGED, MEMORY_HOST, MEMORY_POOL };

// Writes an event of the outermost call, if the process is recorded. A device of -1 is that
// of the stream.
void call_allocated(const struct call *call, enum call_memory memory, const void *ptr, size_t bytes, int device, const void *stream);
void call_freed(const struct call *call, enum call_memory memory, const void *ptr, int device, const void *stream);

// The same for memory that went with its context.
void call_ended(const struct call *call, const void *ptr, int device);

// Whether the call comes from a library whose memory is never served.
bool call_from_communication(const struct call *call);

// The call ran out of memory: true when memory was given back and it should be made again.
bool call_again(const struct call *call, cuda_error error, size_t bytes);

// The device that the call would use: that of the current context, or else the one chosen
// for a context to come.
int call_device(void);
// The device of a stream.
int call_stream_device(const void *stream);

#endif
