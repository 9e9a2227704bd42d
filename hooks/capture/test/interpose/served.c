// served.c - with serve=1 a program's memory comes from the hook's arenas, and nothing about
// it may surprise the program.
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>

#define SERVED "MEMPROF_OPTIONS", "serve=1", "MEMPROF_SIM_MEMORY", "1g"

static uint64_t count_of(enum memprof_kind kind) {
  const struct trail trail = so_far();
  const uint64_t count = trail_number(&trail, kind);
  free(trail.records);
  return count;
}

// The last alloc is of `bytes` at `ptr`, served from an arena.
static void check_served(const void *ptr, uint64_t bytes) {
  const struct trail trail = so_far();
  const struct memprof_record *event = trail_event(&trail, MEMPROF_ALLOC, trail_number(&trail, MEMPROF_ALLOC) - 1);
  CHECK(event != NULL);
  CHECK_EQUAL(event->addr, (uintptr_t)ptr);
  CHECK_EQUAL(event->requested, bytes);
  trail_audit(&trail);
}

TEST(runtime, SERVED) {
  void *ptr = NULL;
  CHECK(cudaMalloc(&ptr, 1000) == 0);
  check_served(ptr, 1000);
  CHECK(cudaFree(ptr) == 0 && cudaFree(NULL) == 0);
  CHECK_EQUAL(count_of(MEMPROF_FREE), 1);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_FREE), 0);
  CHECK(cudaMalloc(&ptr, 0) == 0 && ptr == NULL);
}

TEST(driver, SERVED) {
  device_address addr = 0;
  void *allocate = NULL;
  CHECK(cuInit(0) == 0 && cuMemAlloc_v2(&addr, 1000) == 201);  // no context: as without us
  start();
  CHECK(cuMemAlloc_v2(&addr, 1000) == 0);
  check_served((void *)(uintptr_t)addr, 1000);
  CHECK(cuMemFree_v2(addr) == 0);
  CHECK(cuGetProcAddress("cuMemAlloc", &allocate, 12000, 0) == 0);
  CHECK(((int (*)(device_address *, size_t))allocate)(&addr, 2000) == 0);
  check_served((void *)(uintptr_t)addr, 2000);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), 0);
}

static _Atomic int let_go;

// Begins a capture first: it has to wait for nobody.
static void *release_soon(void *stream) {
  void *captured = new_stream(), *graph;
  for (int i = 0; i < 600000 && simcuda_waiting() == 0; i++) usleep(100);
  CHECK(simcuda_waiting() > 0);
  CHECK(cuStreamBeginCapture_v2(captured, 0) == 0 && cuStreamEndCapture(captured, &graph) == 0);
  atomic_store(&let_go, 1);
  CHECK(simcuda_release_stream(stream) == 0);
  return NULL;
}

// Holds the stream until a while after this returns.
static pthread_t hold_for_a_while(void *stream) {
  pthread_t thread = 0;
  atomic_store(&let_go, 0);
  CHECK(simcuda_hold_stream(stream) == 0 && pthread_create(&thread, NULL, release_soon, stream) == 0);
  return thread;
}

TEST(free_waits, SERVED) {
  void *ptr = NULL, *stream = new_stream();
  CHECK(cudaMalloc(&ptr, MiB) == 0);
  pthread_t thread = hold_for_a_while(stream);
  CHECK(cudaFree(ptr) == 0);
  CHECK(atomic_load(&let_go));
  pthread_join(thread, NULL);
  // Memory of cudaMalloc freed in stream order, which CUDA does not promise to work.
  CHECK(cudaMalloc(&ptr, MiB) == 0);
  thread = hold_for_a_while(stream);
  CHECK(cudaFreeAsync(ptr, stream) == 0);
  CHECK(atomic_load(&let_go));
  pthread_join(thread, NULL);
  CHECK_EQUAL(count_of(MEMPROF_FREE), 2);
}

TEST(stream_order, SERVED) {
  void *one = new_stream(), *two = new_stream(), *a = NULL, *b = NULL, *c = NULL;
  CHECK(cudaMallocAsync(&a, MiB, one) == 0);
  check_served(a, MiB);
  CHECK(simcuda_hold_stream(one) == 0 && simcuda_hold_stream(two) == 0);
  CHECK(cudaFreeAsync(a, one) == 0 && cudaMallocAsync(&b, MiB, one) == 0);
  CHECK(a == b);  // what the stream does with it comes after
  CHECK(cudaFreeAsync(b, two) == 0 && cudaMallocAsync(&c, MiB, one) == 0);
  CHECK(b != c);  // stream two may still be at work on it
  CHECK(simcuda_release_stream(two) == 0 && cudaFreeAsync(c, one) == 0);
  CHECK(cudaMallocAsync(&a, MiB, one) == 0 && a == b);
  CHECK_EQUAL(count_of(MEMPROF_FREE_DONE), 1);
  CHECK(simcuda_release_stream(one) == 0 && cudaFree(a) == 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), 0);
}

// What the default stream has not finished with is no memory for cudaMalloc, which any
// stream may use at once.
TEST(default_stream_is_apart, SERVED) {
  void *a = NULL, *b = NULL;
  CHECK(cudaMallocAsync(&a, MiB, NULL) == 0 && simcuda_hold_stream(NULL) == 0);
  CHECK(cudaFreeAsync(a, NULL) == 0 && cudaMalloc(&b, MiB) == 0);
  CHECK(a != b);
  CHECK(cudaMallocAsync(&b, MiB, NULL) == 0 && a == b);
}

TEST(never_served, SERVED) {
  static const struct pool kept[] = {
      {.type = 1, .handle_types = 1, .location = {1, 0}},  // exported
      {.type = 1, .location = {6, 1 << 8}},                // in locality domain 1 of device 0
      {.type = 2, .location = {1, 0}},                     // managed
  };
  static const struct allocation on_device = {.type = 1, .location = {1, 0}};
  unsigned long long handle;
  void *ptr = NULL, *pool = NULL;
  uint64_t expected = 0;
  CHECK(library_malloc(&ptr, 1000) == 0 && library_free(ptr) == 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), ++expected);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_FREE), expected);
  CHECK(cudaMallocManaged(&ptr, 1000, 1) == 0 && cudaFree(ptr) == 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), ++expected);
  CHECK(cudaMallocAsync_ptsz(&ptr, 1000, NULL) == 0 && cudaFreeAsync_ptsz(ptr, NULL) == 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), ++expected);
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
    CHECK(cudaMemPoolCreate(&pool, &kept[i]) == 0 && cudaMallocFromPoolAsync(&ptr, 1000, pool, NULL) == 0 && cudaFreeAsync(ptr, NULL) == 0);
    CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), ++expected);
  }
  CHECK(cuMemCreate(&handle, 2 * MiB, &on_device, 0) == 0 && cuMemRelease(handle) == 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), ++expected);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_FREE), expected);
  CHECK_EQUAL(count_of(MEMPROF_ALLOC), 0);
}

TEST(plain_pool, SERVED) {
  static const struct pool plain = {.type = 1, .location = {1, 0}};
  void *ptr = NULL, *pool = NULL, *stream = new_stream();
  CHECK(cudaMemPoolCreate(&pool, &plain) == 0 && cudaMallocFromPoolAsync(&ptr, 3000, pool, stream) == 0);
  check_served(ptr, 3000);
  CHECK(cudaFreeAsync(ptr, stream) == 0);
  CHECK_EQUAL(count_of(MEMPROF_FREE), 1);
}

enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };

// As the driver answers for memory of its own.
TEST(pointers, SERVED) {
  void *ptr = NULL, *before = NULL, *context = NULL, *expected = NULL;
  device_address start_of = 0, again = 0;
  size_t size = 0, size_again = 0;
  unsigned type = 0;
  int ordinal = -1;
  struct {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
  } attributes;
  CHECK(cudaMalloc(&before, 5000) == 0 && cudaMalloc(&ptr, 100000) == 0);
  const device_address inside = (uintptr_t)ptr + 777;
  CHECK(cuMemGetAddressRange_v2(&start_of, &size, inside) == 0);
  CHECK(start_of == (uintptr_t)ptr && size == 100000);
  CHECK(cuPointerGetAttribute(&type, MEMORY_TYPE, inside) == 0 && type == 2);
  CHECK(cuPointerGetAttribute(&ordinal, DEVICE_ORDINAL, inside) == 0 && ordinal == 0);
  CHECK(cuPointerGetAttribute(&size, RANGE_SIZE, inside) == 0 && size == 100000);
  CHECK(cuDevicePrimaryCtxRetain(&expected, 0) == 0);
  CHECK(cuPointerGetAttribute(&context, CONTEXT, inside) == 0 && context == expected);
  const int which[] = {RANGE_START, RANGE_SIZE};
  void *out[] = {&again, &size_again};
  CHECK(cuPointerGetAttributes(2, which, out, inside) == 0 && again == (uintptr_t)ptr && size_again == 100000);
  CHECK(cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)inside) == 0);
  CHECK(attributes.type == 2 && attributes.device == 0 && attributes.device_pointer == (void *)(uintptr_t)inside && attributes.host_pointer == NULL);
  // A library that shares the mapping with another process needs to know the mapping.
  CHECK(library_range(&again, &size, inside) == 0 && again % (2 * MiB) == 0 && size >= 2 * MiB);
  CHECK(cudaFree(ptr) == 0);
  CHECK(cudaPointerGetAttributes(&attributes, &type) == 0 && attributes.type == 0);
}

TEST(wrong_frees, SERVED) {
  char *ptr = NULL;
  CHECK(cudaMalloc((void **)&ptr, MiB) == 0);
  CHECK(cudaFree(ptr + 256) == 1);
  CHECK(cudaFree(ptr) == 0);
  CHECK(cudaFree(ptr) == 1);
  CHECK(cudaFreeAsync(ptr, NULL) == 1);
  CHECK_EQUAL(count_of(MEMPROF_FREE), 1);
}

// The program hears of it as it would have without us.
TEST(out_of_memory, SERVED) {
  void *ptr = (void *)1;
  CHECK(cudaMalloc(&ptr, 4 * GiB) == 2);
  CHECK(ptr == (void *)1);
  CHECK(cudaGetLastError() == 2 && cudaGetLastError() == 0);
  CHECK(cudaMalloc(&ptr, MiB) == 0);
  CHECK(cudaGetLastError() == 0);
}

TEST(captures, SERVED) {
  void *stream = new_stream(), *graph = NULL, *before = NULL, *ptr = NULL, *kept = NULL;
  CHECK(cudaMalloc(&before, MiB) == 0 && cudaMallocAsync(&kept, MiB, stream) == 0);
  CHECK(cudaStreamBeginCapture(stream, 2) == 0);
  CHECK(cudaMallocAsync(&ptr, 1000, stream) == 0);  // a node of the graph
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_ALLOC), 1);
  CHECK(cudaFreeAsync(ptr, stream) == 0);
  CHECK_EQUAL(count_of(MEMPROF_EXTERNAL_FREE), 1);
  CHECK(cudaFree(before) == 0);  // neither waits nor reuses at once
  CHECK(cudaFreeAsync(kept, stream) == 0);  // the graph would free it at each launch
  CHECK_EQUAL(count_of(MEMPROF_FREE), 1);
  CHECK(cudaStreamEndCapture(stream, &graph) == 0);
  CHECK(cudaMalloc(&ptr, 2 * MiB) == 0 && cudaFree(ptr) == 0);
  CHECK_EQUAL(count_of(MEMPROF_FREE_DONE), 1);
}

// Another stream may get the handle, and the arena, of one that was destroyed at work.
TEST(stream_destroyed, SERVED) {
  void *ptr = NULL, *stream = new_stream();
  CHECK(cudaMallocAsync(&ptr, MiB, stream) == 0);
  pthread_t thread = hold_for_a_while(stream);
  CHECK(cudaFreeAsync(ptr, stream) == 0 && cudaStreamDestroy(stream) == 0);
  CHECK(atomic_load(&let_go));
  pthread_join(thread, NULL);
}

TEST(device_of_the_call, SERVED, "MEMPROF_SIM_DEVICES", "2") {
  void *ptr = NULL, *there = NULL;
  unsigned long long flags = 0;
  const struct location one = {1, 1}, zero = {1, 0};
  int (*access)(unsigned long long *, const struct location *, device_address) =
      (int (*)(unsigned long long *, const struct location *, device_address))dlsym(RTLD_DEFAULT, "cuMemGetAccess");
  CHECK(cudaSetDevice(1) == 0 && cudaMalloc(&there, MiB) == 0);
  CHECK(cudaSetDevice(0) == 0 && cudaMalloc(&ptr, MiB) == 0);
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, 0)->device, 1);
  CHECK_EQUAL(trail_event(&trail, MEMPROF_ALLOC, 1)->device, 0);
  CHECK(access(&flags, &zero, (uintptr_t)there) == 0 && flags == 0);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == 0);
  CHECK(access(&flags, &zero, (uintptr_t)there) == 0 && flags == 3);
  CHECK(access(&flags, &one, (uintptr_t)ptr) == 0 && flags == 0);  // the other way was not asked for
  CHECK(cudaFree(there) == 0);
}

TEST(access_of_pools, SERVED, "MEMPROF_SIM_DEVICES", "2") {
  static const struct pool plain = {.type = 1, .location = {1, 0}};
  const struct access access = {{1, 1}, 3};
  unsigned long long flags = 0;
  void *pool = NULL, *ptr = NULL;
  int (*get)(unsigned long long *, const struct location *, device_address) =
      (int (*)(unsigned long long *, const struct location *, device_address))dlsym(RTLD_DEFAULT, "cuMemGetAccess");
  CHECK(cudaMemPoolCreate(&pool, &plain) == 0 && cudaMemPoolSetAccess(pool, &access, 1) == 0);
  CHECK(cudaMallocFromPoolAsync(&ptr, MiB, pool, new_stream()) == 0);
  check_served(ptr, MiB);
  CHECK(get(&flags, &access.location, (uintptr_t)ptr) == 0 && flags == 3);
}

static void *churn(void *unused) {
  (void)unused;
  void *stream = new_stream(), *ptr;
  for (int i = 0; i < 2000; i++) {
    if (i % 3 == 0) {
      CHECK(cudaMalloc(&ptr, 1 + (size_t)i * 100) == 0 && cudaFree(ptr) == 0);
    } else {
      CHECK(cudaMallocAsync(&ptr, 1 + (size_t)i * 100, stream) == 0 && cudaFreeAsync(ptr, i % 2 == 0 ? stream : NULL) == 0);
    }
  }
  return NULL;
}

TEST(threads, SERVED) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  const struct trail trail = so_far();
  const struct audit audit = trail_audit(&trail);
  CHECK_EQUAL(audit.live, 0);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_ALLOC), 4 * 2000);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), 0);
}

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
