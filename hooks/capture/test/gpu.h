// gpu.h - the simulated GPU as the tests see it: its calls by name, and its free memory.
#ifndef MEMPROF_TEST_GPU_H
#define MEMPROF_TEST_GPU_H

#include <dlfcn.h>
#include <stdint.h>

#include "check.h"

static const uint64_t KiB = (uint64_t)1 << 10, MiB = (uint64_t)1 << 20, GiB = (uint64_t)1 << 30;

// Captures are begun and ended by name, as a program that is linked with the driver does: the hook sees them.
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);

static inline void *gpu_symbol(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
  void *found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}

// Looked up once: the name is a constant. dlsym's result goes through memory: ISO C has no conversion to a function pointer.
#define GPU_CALL(pointer, name)                          \
  do {                                                   \
    static void *_Atomic known_symbol;                   \
    void *found_symbol = known_symbol;                   \
    if (found_symbol == NULL) known_symbol = found_symbol = gpu_symbol("" name); \
    memcpy(&(pointer), &found_symbol, sizeof(pointer));  \
  } while (0)

// Makes the context of device 0 current, as a framework does before it allocates.
static inline void gpu_start(void) {
  int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
  void *context;
  GPU_CALL(init, "cuInit");
  GPU_CALL(retain, "cuDevicePrimaryCtxRetain");
  GPU_CALL(set, "cuCtxSetCurrent");
  CHECK(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0);
}

// Whether the test's environment makes calls fail whose name begins so.
static inline bool gpu_fails(const char *call) {
  const char *rule = getenv("MEMPROF_SIM_FAIL");
  return rule != NULL && strncmp(rule, call, strlen(call)) == 0;
}

// How far apart marks are in a block. A fault for every page is slow; what is mapped or copied wrongly is 2 MiB at least, of which each has four marks.
static inline uint64_t gpu_step(uint64_t bytes) { return bytes < 2 * MiB ? 64 * KiB : 512 * KiB; }

// Writes to memory, as a kernel does: marks, and the last byte.
static inline void gpu_write(void *start, int value, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += gpu_step(bytes)) ((char *)start)[i] = (char)value;
  ((char *)start)[bytes - 1] = (char)value;
}

static inline uint64_t gpu_free(void) {
  int (*info)(size_t *, size_t *);
  size_t bytes = 0, total = 0;
  GPU_CALL(info, "cuMemGetInfo_v2");
  CHECK(info(&bytes, &total) == 0);
  return bytes;
}

// How a device may use the memory at an address: CU_MEM_ACCESS_FLAGS_PROT_*, -1 where nothing is mapped.
static inline int gpu_access(const void *address, int device) {
  int (*get)(unsigned long long *, const int *, unsigned long long);
  unsigned long long flags = 0;
  const int location[2] = {1, device};
  GPU_CALL(get, "cuMemGetAccess");
  return get(&flags, location, (uintptr_t)address) == 0 ? (int)flags : -1;
}

static inline void *gpu_stream(void) {
  int (*create)(void **, unsigned);
  void *stream = NULL;
  GPU_CALL(create, "cuStreamCreate");
  CHECK(create(&stream, 1) == 0);
  return stream;
}

// Waits until a thread waits in a call of the driver for work that does not finish, a minute at most.
static inline void gpu_await_waiter(void) {
  int (*waiting)(void);
  GPU_CALL(waiting, "simcuda_waiting");
  for (int i = 0; i < 600000 && waiting() == 0; i++) usleep(100);
  CHECK(waiting() > 0);
}

// Work queued on the stream from now on does not finish before gpu_let_go.
static inline void gpu_hold(void *stream) {
  int (*hold)(void *);
  GPU_CALL(hold, "simcuda_hold_stream");
  CHECK(hold(stream) == 0);
}

static inline void gpu_let_go(void *stream) {
  int (*release)(void *);
  GPU_CALL(release, "simcuda_release_stream");
  CHECK(release(stream) == 0);
}

static _Atomic bool was_let_go;  // by let_go_later

// A thread's: it lets a stream go once another thread waits for its work.
static inline void *let_go_later(void *stream) {
  gpu_await_waiter();
  was_let_go = true;
  gpu_let_go(stream);
  return NULL;
}

// Queues work on the stream that reads, or writes, memory: if that changes before the work has finished, the test fails.
static inline void gpu_reads(void *stream, const void *start, uint64_t bytes) {
  int (*reads)(void *, unsigned long long, uint64_t);
  GPU_CALL(reads, "simcuda_reads");
  CHECK(reads(stream, (uintptr_t)start, bytes) == 0);
}

static inline void gpu_writes(void *stream, const void *start, uint64_t bytes) {
  int (*writes)(void *, unsigned long long, uint64_t);
  GPU_CALL(writes, "simcuda_writes");
  CHECK(writes(stream, (uintptr_t)start, bytes) == 0);
}

// Work on the GPU has failed with that CUresult: the driver answers with it from now on.
static inline void gpu_fault(int error) {
  void (*fault)(int);
  GPU_CALL(fault, "simcuda_fault");
  fault(error);
}

// How many calls of the driver had to wait for work so far.
static inline uint64_t gpu_waits(void) {
  uint64_t (*waits)(void);
  GPU_CALL(waits, "simcuda_waits");
  return waits();
}

// What a stream has queued so far comes before what another one queues next.
static inline void gpu_order(void *first, void *then) {
  int (*create)(void **, unsigned), (*record)(void *, void *), (*wait)(void *, void *, unsigned), (*destroy)(void *);
  void *event;
  GPU_CALL(create, "cuEventCreate");
  GPU_CALL(record, "cuEventRecord");
  GPU_CALL(wait, "cuStreamWaitEvent");
  GPU_CALL(destroy, "cuEventDestroy_v2");
  CHECK(create(&event, 2) == 0 && record(event, first) == 0 && wait(then, event, 0) == 0 && destroy(event) == 0);
}

#endif
