// recorded.c - allocations of a program are recorded, however it comes to the functions.
#include "program.h"

#include <pthread.h>

// One pair of calls, and what the trace must say of them.
struct pair {
  const char *call, *end, *fields;  // fields after the library's
  uint64_t bytes;
  void *(*take)(void);
  void (*give)(void *);
};

static void *take_malloc(void) {
  void *ptr = NULL;
  CHECK(cudaMalloc(&ptr, 1000) == 0);
  return ptr;
}
static void give_free(void *ptr) { CHECK(cudaFree(ptr) == 0); }
static void *take_managed(void) {
  void *ptr = NULL;
  CHECK(cudaMallocManaged(&ptr, 1001, 1) == 0);
  return ptr;
}
static void *take_async(void) {
  void *ptr = NULL;
  CHECK(cudaMallocAsync(&ptr, 1002, NULL) == 0);
  return ptr;
}
static void give_async(void *ptr) { CHECK(cudaFreeAsync(ptr, NULL) == 0); }
static void *take_async_ptsz(void) {
  void *ptr = NULL;
  CHECK(cudaMallocAsync_ptsz(&ptr, 1003, NULL) == 0);
  return ptr;
}
static void give_async_ptsz(void *ptr) { CHECK(cudaFreeAsync_ptsz(ptr, NULL) == 0); }
static const struct pool plain_pool = {.type = 1, .location = {1, 0}};
static void *take_pool(void) {
  void *ptr = NULL, *pool = NULL;
  CHECK(cudaMemPoolCreate(&pool, &plain_pool) == 0 && cudaMallocFromPoolAsync(&ptr, 1004, pool, NULL) == 0);
  return ptr;
}
static void *take_pitch(void) {
  void *ptr = NULL;
  size_t pitch = 0;
  CHECK(cudaMallocPitch(&ptr, &pitch, 700, 3) == 0 && pitch == 1024);
  return ptr;
}
static void *take_3d(void) {
  struct pitched pitched;
  CHECK(cudaMalloc3D(&pitched, (struct extent){100, 5, 7}) == 0 && pitched.pitch == 512);
  return pitched.ptr;
}
static void *take_array(void) {
  void *array = NULL;
  CHECK(cudaMallocArray(&array, &(struct channels){{32, 32, 0, 0}, 2}, 100, 10, 0) == 0);
  return array;
}
static void give_array(void *array) { CHECK(cudaFreeArray(array) == 0); }
static void *take_host(void) {
  void *ptr = NULL;
  CHECK(cudaMallocHost(&ptr, 1005) == 0);
  return ptr;
}
static void *take_host_flags(void) {
  void *ptr = NULL;
  CHECK(cudaHostAlloc(&ptr, 1006, 1) == 0);
  return ptr;
}
static void give_host(void *ptr) { CHECK(cudaFreeHost(ptr) == 0); }

static void *cu_take_malloc(void) {
  device_address addr = 0;
  CHECK(cuMemAlloc_v2(&addr, 2000) == 0);
  return (void *)(uintptr_t)addr;
}
static void cu_give_free(void *ptr) { CHECK(cuMemFree_v2((uintptr_t)ptr) == 0); }
static void *cu_take_managed(void) {
  device_address addr = 0;
  CHECK(cuMemAllocManaged(&addr, 2001, 1) == 0);
  return (void *)(uintptr_t)addr;
}
static void *cu_take_async(void) {
  device_address addr = 0;
  CHECK(cuMemAllocAsync(&addr, 2002, NULL) == 0);
  return (void *)(uintptr_t)addr;
}
static void cu_give_async(void *ptr) { CHECK(cuMemFreeAsync((uintptr_t)ptr, NULL) == 0); }
static void *cu_take_pool(void) {
  device_address addr = 0;
  void *pool = NULL;
  CHECK(cuMemPoolCreate(&pool, &plain_pool) == 0 && cuMemAllocFromPoolAsync(&addr, 2004, pool, NULL) == 0);
  return (void *)(uintptr_t)addr;
}
static void *cu_take_pitch(void) {
  device_address addr = 0;
  size_t pitch = 0;
  CHECK(cuMemAllocPitch_v2(&addr, &pitch, 513, 4, 4) == 0);
  return (void *)(uintptr_t)addr;
}
static void *cu_take_array(void) {
  void *array = NULL;
  CHECK(cuArrayCreate_v2(&array, &(struct array){64, 0, 0x10, 4}) == 0);
  return array;
}
static void cu_give_array(void *array) { CHECK(cuArrayDestroy(array) == 0); }
static void *cu_take_host(void) {
  void *ptr = NULL;
  CHECK(cuMemAllocHost_v2(&ptr, 2005) == 0);
  return ptr;
}
static void *cu_take_host_flags(void) {
  void *ptr = NULL;
  CHECK(cuMemHostAlloc(&ptr, 2006, 1) == 0);
  return ptr;
}
static void cu_give_host(void *ptr) { CHECK(cuMemFreeHost(ptr) == 0); }

static const struct pair runtime_pairs[] = {
    {"cudaMalloc", "cudaFree", "", 1000, take_malloc, give_free},
    {"cudaMallocManaged", "cudaFree", "\tmanaged=1", 1001, take_managed, give_free},
    {"cudaMallocAsync", "cudaFreeAsync", "\tpool=1", 1002, take_async, give_async},
    {"cudaMallocAsync", "cudaFreeAsync", "\tpool=1", 1003, take_async_ptsz, give_async_ptsz},
    {"cudaMallocFromPoolAsync", "cudaFreeAsync", "\tpool=1", 1004, take_pool, give_async},
    {"cudaMallocPitch", "cudaFree", "", 3072, take_pitch, give_free},
    {"cudaMalloc3D", "cudaFree", "", 512 * 35, take_3d, give_free},
    {"cudaMallocArray", "cudaFreeArray", "", 8000, take_array, give_array},
    {"cudaMallocHost", "cudaFreeHost", "\thost=1", 1005, take_host, give_host},
    {"cudaHostAlloc", "cudaFreeHost", "\thost=1", 1006, take_host_flags, give_host},
};
static const struct pair driver_pairs[] = {
    {"cuMemAlloc", "cuMemFree", "", 2000, cu_take_malloc, cu_give_free},
    {"cuMemAllocManaged", "cuMemFree", "\tmanaged=1", 2001, cu_take_managed, cu_give_free},
    {"cuMemAllocAsync", "cuMemFreeAsync", "\tpool=1", 2002, cu_take_async, cu_give_async},
    {"cuMemAllocFromPoolAsync", "cuMemFreeAsync", "\tpool=1", 2004, cu_take_pool, cu_give_async},
    {"cuMemAllocPitch", "cuMemFree", "", 4096, cu_take_pitch, cu_give_free},
    {"cuArrayCreate", "cuArrayDestroy", "", 512, cu_take_array, cu_give_array},
    {"cuMemAllocHost", "cuMemFreeHost", "\thost=1", 2005, cu_take_host, cu_give_host},
    {"cuMemHostAlloc", "cuMemFreeHost", "\thost=1", 2006, cu_take_host_flags, cu_give_host},
};

static const char *program_name(void) {
  static char path[512];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0);
  path[length] = '\0';
  return strrchr(path, '/') + 1;
}

// Each pair is two events, with the right bytes, address, device, call and library.
static void check_pairs(const struct pair *pairs, size_t count) {
  void *ptrs[32];
  for (size_t i = 0; i < count; i++) {
    ptrs[i] = pairs[i].take();
    pairs[i].give(ptrs[i]);
  }
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), count);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_FREE), count);
  for (size_t i = 0; i < count; i++) {
    const struct memprof_record *alloc = trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, i), *end = trail_event(&trail, MEMPROF_EXTERNAL_FREE, i);
    char want[256];
    CHECK_EQUAL(alloc->requested, pairs[i].bytes);
    CHECK_EQUAL(alloc->provided, pairs[i].bytes);
    CHECK_EQUAL(alloc->addr, (uintptr_t)ptrs[i]);
    CHECK_EQUAL(end->addr, (uintptr_t)ptrs[i]);
    CHECK_EQUAL(alloc->device, 0);
    CHECK_EQUAL(alloc->arena, MEMPROF_NO_ARENA);
    snprintf(want, sizeof want, "call=%s\tlibrary=%s%s", pairs[i].call, program_name(), pairs[i].fields);
    CHECK_CONTEXT(&trail, alloc, want);
    CHECK(strncmp(context_of(&trail, end), "call=", 5) == 0 && strncmp(context_of(&trail, end) + 5, pairs[i].end, strlen(pairs[i].end)) == 0);
  }
}

TEST(runtime) { check_pairs(runtime_pairs, sizeof runtime_pairs / sizeof *runtime_pairs); }

TEST(driver) {
  start();
  check_pairs(driver_pairs, sizeof driver_pairs / sizeof *driver_pairs);
}

// One allocation and free through functions that were looked up.
static void check_looked_up(int (*allocate)(device_address *, size_t), int (*release)(device_address), const char *call) {
  static uint64_t before;
  device_address addr = 0;
  char want[256];
  CHECK(allocate != NULL && release != NULL);
  CHECK(allocate(&addr, 5000 + before) == 0);
  CHECK(release(addr) == 0);
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), before + 1);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_FREE), before + 1);
  const struct memprof_record *event = trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, before);
  CHECK_EQUAL(event->requested, 5000 + before);
  snprintf(want, sizeof want, "call=%s\tlibrary=%s", call, program_name());
  CHECK_CONTEXT(&trail, event, want);
  before++;
}

typedef int allocate_function(device_address *, size_t);
typedef int free_function(device_address);

static void *open_cuda(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
  return library;
}

TEST(dlsym) {
  void *library = open_cuda();
  start();
  CHECK(dlsym(library, "cuMemAlloc_v2") != NULL && dlerror() == NULL);
  CHECK(dlsym(library, "cuMemAlloc_v99") == NULL && dlerror() != NULL);
  check_looked_up((allocate_function *)dlsym(library, "cuMemAlloc_v2"), (free_function *)dlsym(library, "cuMemFree_v2"), "cuMemAlloc");
  check_looked_up((allocate_function *)dlsym(library, "cudaMalloc"), (free_function *)dlsym(library, "cudaFree"), "cudaMalloc");
  check_looked_up((allocate_function *)dlsym(RTLD_DEFAULT, "cudaMalloc"), (free_function *)dlsym(RTLD_DEFAULT, "cudaFree"), "cudaMalloc");
}

TEST(cuGetProcAddress) {
  void *allocate = NULL, *release = NULL, *get = NULL;
  int status = -1;
  start();
  CHECK(cuGetProcAddress("cuMemAlloc", &allocate, 12000, 0) == 0 && cuGetProcAddress("cuMemFree", &release, 12000, 0) == 0);
  check_looked_up((allocate_function *)allocate, (free_function *)release, "cuMemAlloc");
  CHECK(cuGetProcAddress_v2("cuMemAlloc", &allocate, 13000, 0, &status) == 0 && status == 0);
  CHECK(cuGetProcAddress_v2("cuMemFree", &release, 13000, 0, &status) == 0 && status == 0);
  check_looked_up((allocate_function *)allocate, (free_function *)release, "cuMemAlloc");
  CHECK(cudaGetDriverEntryPoint("cuMemAlloc", &allocate, 0, &status) == 0 && cudaGetDriverEntryPoint("cuMemFree", &release, 0, &status) == 0);
  check_looked_up((allocate_function *)allocate, (free_function *)release, "cuMemAlloc");
  CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &allocate, 12050, 0, &status) == 0);
  check_looked_up((allocate_function *)allocate, (free_function *)release, "cuMemAlloc");
  // As a static runtime does it: all from one function that it looks up first.
  CHECK((get = dlsym(open_cuda(), "cuGetProcAddress_v2")) != NULL);
  int (*first)(const char *, void **, int, uint64_t, int *) = (int (*)(const char *, void **, int, uint64_t, int *))get;
  CHECK(first("cuGetProcAddress", &get, 12000, 0, &status) == 0);
  int (*second)(const char *, void **, int, uint64_t, int *) = (int (*)(const char *, void **, int, uint64_t, int *))get;
  CHECK(second("cuMemAlloc", &allocate, 12000, 0, &status) == 0 && second("cuMemFree", &release, 12000, 0, &status) == 0);
  check_looked_up((allocate_function *)allocate, (free_function *)release, "cuMemAlloc");
  CHECK(second("cuNoSuchFunction", &allocate, 12000, 0, &status) == 0 && allocate == NULL && status == 1);
}

// A variant that no wrapper is of stays the driver's: its arguments are not known. A known one is found wherever the driver has it.
TEST(unknown_variant) {
  void *allocate = NULL, *release = NULL;
  start();
  CHECK(cuGetProcAddress("cuMemAlloc", &allocate, 99000, 0) == 0);
  CHECK(((int (*)(int, device_address *))allocate)(99, NULL) == 0);
  CHECK(cuGetProcAddress("cuMemFreeHost", &release, 12000, 0) == 0 && release == dlsym(RTLD_DEFAULT, "cuMemFreeHost"));
}

// The variant for a thread's own default stream is another function, and its stream another.
TEST(per_thread_stream) {
  void *allocate = NULL, *of_thread = NULL;
  device_address addr = 0;
  start();
  CHECK(cuGetProcAddress("cuMemAllocAsync", &allocate, 12000, 0) == 0 && cuGetProcAddress("cuMemAllocAsync", &of_thread, 12000, 2) == 0);
  CHECK(allocate != of_thread);
  CHECK(((int (*)(device_address *, size_t, void *))of_thread)(&addr, 4096, NULL) == 0);
  CHECK(((int (*)(device_address *, size_t, void *))allocate)(&addr, 4097, NULL) == 0);
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)->stream, 2);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 1)->stream, 0);
}

// Requests that depend on who asks reach the C library as if the program had asked it: the
// next definition after the program's own is the hook's, after the hook's the real one.
TEST(next_is_the_caller_s) {
  Dl_info info;
  void *next = dlsym(RTLD_NEXT, "dlsym");
  CHECK(next != NULL && dladdr(next, &info) != 0);
  CHECK(strstr(info.dli_fname, "libmemprof") != NULL);
  CHECK(dlsym(RTLD_NEXT, "no_such_function_anywhere") == NULL);
  CHECK(dlerror() != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "malloc") == dlsym(RTLD_NEXT, "malloc"));
}

TEST(caller_is_named) {
  void *ptr = NULL;
  CHECK(library_malloc(&ptr, 777) == 0 && library_free(ptr) == 0);
  const struct trail trail = so_far();
  CHECK_CONTEXT(&trail, trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0), "call=cudaMalloc\tlibrary=libnccl.so.2");
  CHECK_CONTEXT(&trail, trail_event(&trail, MEMPROF_EXTERNAL_FREE, 0), "call=cudaFree\tlibrary=libnccl.so.2");
}

static const struct allocation on_device = {.type = 1, .location = {1, 0}};

static uint64_t allocs(void) {
  const struct trail trail = so_far();
  return trail_number(&trail, MEMPROF_EXTERNAL_ALLOC);
}
static uint64_t frees(void) {
  const struct trail trail = so_far();
  return trail_number(&trail, MEMPROF_EXTERNAL_FREE);
}

// Memory lives until the last reference and the last mapping are gone.
TEST(vmm_of_others) {
  unsigned long long handle = 0, again = 0;
  device_address base = 0;
  start();
  CHECK(cuMemAddressReserve(&base, 16 * MiB, 0, 0, 0) == 0);
  CHECK(cuMemCreate(&handle, 4 * MiB, &on_device, 0) == 0);
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)->requested, 4 * MiB);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)->addr, handle);
  CHECK(cuMemMap(base, 4 * MiB, 0, handle, 0) == 0 && cuMemMap(base + 8 * MiB, 4 * MiB, 0, handle, 0) == 0);
  CHECK(cuMemRelease(handle) == 0);
  CHECK_EQUAL(frees(), 0);
  CHECK(cuMemUnmap(base, 4 * MiB) == 0);
  CHECK_EQUAL(frees(), 0);
  CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(base + 8 * MiB)) == 0);
  CHECK(cuMemUnmap(base, 16 * MiB) == 0);
  CHECK_EQUAL(frees(), 1);  // the retained handle was released before: it is not known any more
  CHECK(cuMemCreate(&handle, 2 * MiB, &on_device, 0) == 0 && cuMemMap(base, 2 * MiB, 0, handle, 0) == 0);
  CHECK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)base) == 0 && again == handle);
  CHECK(cuMemRelease(handle) == 0 && cuMemUnmap(base, 2 * MiB) == 0);
  CHECK_EQUAL(frees(), 1);
  CHECK(cuMemRelease(handle) == 0);
  CHECK_EQUAL(frees(), 2);
  CHECK_EQUAL(allocs(), 2);
}

// A location in a locality domain names the device in its lowest byte and the domain in the next.
TEST(locality_domain, "MEMPROF_SIM_DEVICES", "2") {
  static const struct allocation second_domain = {.type = 1, .location = {6, 1 | 1 << 8}};
  unsigned long long handle = 0;
  start();
  CHECK(cuMemCreate(&handle, 4 * MiB, &second_domain, 0) == 0);
  CHECK(cuMemRelease(handle) == 0);
  const struct trail trail = so_far();
  const struct memprof_record *made = trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0), *ended = trail_event(&trail, MEMPROF_EXTERNAL_FREE, 0);
  CHECK_EQUAL(made->device, 1);
  CHECK_EQUAL(made->requested, 4 * MiB);
  CHECK_EQUAL(ended->device, 1);
  CHECK(strstr(context_of(&trail, made), "host=1") == NULL);
}

static void check_captures(uint64_t begins, uint64_t ends, uint64_t now) {
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_CAPTURE_BEGIN), begins);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_CAPTURE_END), ends);
  const struct memprof_record *last = NULL;
  for (uint64_t i = 0; i < trail.count; i++)
    if (trail_kind(&trail.records[i]) == MEMPROF_CAPTURE_BEGIN || trail_kind(&trail.records[i]) == MEMPROF_CAPTURE_END) last = &trail.records[i];
  if (last != NULL) CHECK_EQUAL(last->requested, now);
}

static void *end_elsewhere(void *stream) {
  void *graph;
  CHECK(cudaSetDevice(0) == 0 && cudaStreamEndCapture(stream, &graph) != 0);
  return NULL;
}

// The runtime's call leads to the driver's, and both are wrapped: one capture.
TEST(captures) {
  void *one = new_stream(), *two = new_stream(), *graph = NULL;
  pthread_t thread;
  CHECK(cudaStreamBeginCapture(one, 0) == 0);
  check_captures(1, 0, 1);
  CHECK(cudaStreamBeginCapture(one, 0) != 0);
  check_captures(1, 0, 1);
  CHECK(cuStreamBeginCapture_v2(two, 1) == 0);
  check_captures(2, 0, 2);
  CHECK(cudaStreamEndCapture(one, &graph) == 0);
  check_captures(2, 1, 1);
  CHECK(cudaStreamEndCapture(one, &graph) != 0);
  check_captures(2, 1, 1);
  CHECK(pthread_create(&thread, NULL, end_elsewhere, two) == 0 && pthread_join(thread, NULL) == 0);
  check_captures(2, 1, 1);
  CHECK(cuStreamEndCapture(two, &graph) == 0);
  check_captures(2, 2, 0);
  // One that was spoiled has ended all the same, and so has one whose stream is gone.
  void *ptr;
  CHECK(cudaStreamBeginCaptureToGraph(one, graph, NULL, NULL, 0, 0) == 0);
  CHECK(cudaMalloc(&ptr, 1) != 0);
  CHECK(cudaStreamEndCapture(one, &graph) != 0);
  check_captures(3, 3, 0);
  CHECK(cudaStreamBeginCapture(one, 0) == 0 && cudaStreamDestroy(one) == 0);
  check_captures(4, 4, 0);
}

// The simulation has no pools of host memory; the event's kind of memory follows from the pool.
TEST(pool_of_the_host) {
  static const struct pool of_host = {.type = 1, .location = {2, 0}};
  void *pool = NULL, *ptr = NULL;
  CHECK(cudaMemPoolCreate(&pool, &of_host) == 0 && cudaMallocFromPoolAsync(&ptr, 4000, pool, NULL) == 0);
  const struct trail trail = so_far();
  CHECK(strstr(context_of(&trail, trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)), "\thost=1") != NULL);
}

// Managed memory is the device's or the host's, whichever uses it.
TEST(pool_of_managed_memory) {
  static const struct pool managed = {.type = 2, .location = {1, 0}};
  void *pool = NULL, *ptr = NULL;
  CHECK(cudaMemPoolCreate(&pool, &managed) == 0 && cudaMallocFromPoolAsync(&ptr, 4000, pool, NULL) == 0);
  const struct trail trail = so_far();
  CHECK(strstr(context_of(&trail, trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0)), "\tmanaged=1") != NULL);
}

// Pools that the driver made, by CUDA 13: each is asked for twice.
static void check_made_by_the_driver(int get(void **, struct location *, int)) {
  static const struct {
    int type;
    struct location location;
    const char *kind;
  } cases[] = {{1, {1, 0}, "\tpool=1"}, {1, {6, 1 << 8}, "\tpool=1"}, {1, {2, 0}, "\thost=1"}, {2, {1, 0}, "\tmanaged=1"}};
  void *pool = NULL, *ptr = NULL;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct location location = cases[i].location;
    const uint64_t before = allocs();
    CHECK(get(&pool, &location, cases[i].type) == 0 && get(&pool, &location, cases[i].type) == 0);
    CHECK(cudaMallocFromPoolAsync(&ptr, 4000, pool, NULL) == 0);
    const struct trail trail = so_far();
    CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), before + 1);
    CHECK(strstr(context_of(&trail, trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, before)), cases[i].kind) != NULL);
  }
}

TEST(pools_of_the_driver) {
  void *ptr = NULL;
  CHECK(cudaMalloc(&ptr, 100) == 0);
  check_made_by_the_driver(cudaMemGetDefaultMemPool);
  check_made_by_the_driver(cudaMemGetMemPool);
  check_made_by_the_driver(cuMemGetDefaultMemPool);
  check_made_by_the_driver(cuMemGetMemPool);
}

// The hook is one of many libraries in a process that never touches CUDA.
TEST(silent_without_CUDA) {
  char path[600];
  void *library = dlopen("libm.so.6", RTLD_NOW);
  CHECK(library != NULL && dlsym(library, "cosf") != NULL && dlsym(library, "cuberoot_that_is_not_there") == NULL);
  CHECK(!trail_find(getpid(), path, sizeof path));
}

TEST(unrecorded, "MEMPROF_SPOOL", "") {
  char path[600];
  void *ptr = NULL, *found = dlsym(open_cuda(), "cudaMalloc");
  Dl_info info;
  CHECK(dladdr(found, &info) != 0 && strstr(info.dli_fname, "libmemprof") == NULL);
  CHECK(cudaMalloc(&ptr, 100) == 0 && cudaFree(ptr) == 0);
  setenv("MEMPROF_SPOOL", "/tmp", 1);
  CHECK(!trail_find(getpid(), path, sizeof path));
}

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
