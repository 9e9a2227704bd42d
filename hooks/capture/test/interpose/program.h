// program.h - a program that uses CUDA and knows nothing of the hook, which is preloaded.
//
// Its tests run in processes of their own (check.h) and read what the hook has spooled of
// them. HOOK names the library, and BESIDE others to preload with it, before or after it.
#ifndef MEMPROF_TEST_PROGRAM_H
#define MEMPROF_TEST_PROGRAM_H

#define _GNU_SOURCE
#include <dlfcn.h>

#include "trail.h"

typedef unsigned long long device_address;

static const uint64_t KiB = (uint64_t)1 << 10, MiB = (uint64_t)1 << 20, GiB = (uint64_t)1 << 30;

struct location {
  int type, id;
};
struct allocation {
  int type, handle_types;
  struct location location;
  void *win32;
  unsigned char flags[8];
};
struct pool {
  int type, handle_types;
  struct location location;
  char rest[72];
};
struct channels {
  int bits[4], kind;
};
struct extent {
  size_t width, height, depth;
};
struct pitched {
  void *ptr;
  size_t pitch, width, height;
};
struct array {
  size_t width, height;
  int format;
  unsigned channels;
};

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocAsync(void **, size_t, void *);
int cudaMallocAsync_ptsz(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaFreeAsync_ptsz(void *, void *);
int cudaMemPoolCreate(void **, const struct pool *);
struct access {
  struct location location;
  int flags;
};
int cudaMemPoolSetAccess(void *, const struct access *, size_t);
int cudaMemGetDefaultMemPool(void **, struct location *, int);
int cudaMemGetMemPool(void **, struct location *, int);
int cudaMallocFromPoolAsync(void **, size_t, void *, void *);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMalloc3D(struct pitched *, struct extent);
int cudaMallocArray(void **, const struct channels *, size_t, size_t, unsigned);
int cudaFreeArray(void *);
int cudaMallocHost(void **, size_t);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaGetLastError(void);
int cudaSetDevice(int);
int cudaDeviceSynchronize(void);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaPointerGetAttributes(void *, const void *);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamDestroy(void *);
int cudaStreamBeginCapture(void *, int);
int cudaStreamBeginCaptureToGraph(void *, void *, const void *, const void *, size_t, int);
int cudaStreamEndCapture(void *, void **);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
int cuInit(unsigned);
int cuGetProcAddress(const char *, void **, int, uint64_t);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxReset_v2(int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(void *);
int cuCtxSetLimit(int, size_t);
int cuCtxCreate_v2(void **, unsigned, int);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuMemAlloc_v2(device_address *, size_t);
int cuMemFree_v2(device_address);
int cuMemAllocManaged(device_address *, size_t, unsigned);
int cuMemAllocAsync(device_address *, size_t, void *);
int cuMemFreeAsync(device_address, void *);
int cuMemPoolCreate(void **, const struct pool *);
int cuMemGetDefaultMemPool(void **, struct location *, int);
int cuMemGetMemPool(void **, struct location *, int);
int cuMemPoolSetAttribute(void *, int, const void *);
int cuMemAllocFromPoolAsync(device_address *, size_t, void *, void *);
int cuMemAllocPitch_v2(device_address *, size_t *, size_t, size_t, unsigned);
int cuArrayCreate_v2(void **, const struct array *);
int cuArrayDestroy(void *);
int cuMemHostAlloc(void **, size_t, unsigned);
int cuMemAllocHost_v2(void **, size_t);
int cuMemFreeHost(void *);
int cuMemAddressReserve(device_address *, size_t, size_t, device_address, unsigned long long);
int cuMemCreate(unsigned long long *, size_t, const struct allocation *, unsigned long long);
int cuMemRelease(unsigned long long);
int cuMemRetainAllocationHandle(unsigned long long *, void *);
int cuMemMap(device_address, size_t, size_t, unsigned long long, unsigned long long);
int cuMemUnmap(device_address, size_t);
int cuMemGetAddressRange_v2(device_address *, size_t *, device_address);
int cuPointerGetAttribute(void *, int, device_address);
int cuPointerGetAttributes(unsigned, const int *, void **, device_address);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
int cuGraphExecDestroy(void *);
int cuModuleLoadData(void **, const void *);
int cuModuleUnload(void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLibraryLoadData(void **, const void *, void *, void **, unsigned, void *, void **, unsigned);
int cuLibraryGetKernel(void **, void *, const char *);
int cuLibraryGetModule(void **, void *);
int cuKernelGetFunction(void **, void *);
int cuFuncLoad(void *);
int cuLibraryUnload(void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int simcuda_hold_stream(void *);
int simcuda_release_stream(void *);
int simcuda_waiting(void);
int library_malloc(void **, size_t);  // of libnccl.so.2, which calls cudaMalloc
int library_free(void *);
int library_range(device_address *, size_t *, device_address);

// What has been spooled by now.
static inline struct trail so_far(void) { return trail_read(getpid(), 0); }

static inline const char *context_of(const struct trail *trail, const struct memprof_record *event) {
  static char text[4097];
  trail_text(trail, event->context, (uint64_t)(event - trail->records), text);
  return text;
}

static inline void check_context(const struct trail *trail, const struct memprof_record *event, const char *want, const char *file, int line) {
  const char *got = context_of(trail, event);
  if (strcmp(got, want) == 0) return;
  fprintf(stderr, "%s:%d: the context is \"%s\", want \"%s\"\n", file, line, got, want);
  _exit(1);
}
#define CHECK_CONTEXT(trail, event, want) check_context(trail, event, want, __FILE__, __LINE__)

static inline size_t free_now(void) {
  size_t bytes = 0, total;
  CHECK(cuMemGetInfo_v2(&bytes, &total) == 0);
  return bytes;
}

// A device whose accounting is tested.
#define CARD "MEMPROF_SIM_MEMORY", "1g", "MEMPROF_SIM_CONTEXT", "300m"

// The n-th overhead event, whose bytes are signed.
static inline int64_t overhead(uint64_t n, const char *want) {
  const struct trail trail = so_far();
  const struct memprof_record *event = trail_event(&trail, MEMPROF_OVERHEAD, n);
  CHECK(event != NULL);
  CHECK_EQUAL(event->device, 0);
  CHECK_EQUAL(event->arena, MEMPROF_NO_ARENA);
  CHECK_CONTEXT(&trail, event, want);
  return (int64_t)event->provided;
}

static inline uint64_t overheads(void) {
  const struct trail trail = so_far();
  return trail_number(&trail, MEMPROF_OVERHEAD);
}

// The context of code that this program has loaded.
static inline const char *named(const char *what) {
  static char text[600];
  char path[512];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0);
  path[length] = '\0';
  snprintf(text, sizeof text, "what=%s\tname=%s", what, strrchr(path, '/') + 1);
  return text;
}

// The first use of the driver, as a program on the driver's API makes it.
static inline void start(void) {
  void *context;
  CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
}

static inline void *new_stream(void) {
  void *stream;
  CHECK(cudaStreamCreateWithFlags(&stream, 1) == 0);
  return stream;
}

// Runs each test as this program again, with the hook preloaded.
static inline int run_preloaded(int argc, char **argv) {
  const char *before = getenv("BEFORE"), *after = getenv("AFTER");
  char list[2048];
  snprintf(list, sizeof list, "%s %s %s", before != NULL ? before : "", getenv("HOOK"), after != NULL ? after : "");
  if (argc == 1) setenv("LD_PRELOAD", list, 1);
  return run_tests(argc, argv);
}

#endif
