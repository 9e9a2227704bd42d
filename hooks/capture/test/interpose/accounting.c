// accounting.c - what a program's events say adds up to what its device has in use.
#include "program.h"

static const char *const IMAGE = "simcuda:4194304+2097152";

TEST(context, CARD) {
  void *context;
  start();
  CHECK_EQUAL(overhead(0, "what=context\thow=total"), 300 * MiB);
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0);
  CHECK_EQUAL(overheads(), 1);
}

// The context that the runtime makes on the way to the first allocation.
TEST(context_of_the_runtime, CARD) {
  void *ptr = NULL;
  CHECK(cudaMalloc(&ptr, MiB) == 0);
  const struct trail trail = so_far();
  CHECK_EQUAL(overhead(0, "what=context\thow=total"), 300 * MiB);
  CHECK(trail_event(&trail, MEMPROF_OVERHEAD, 0) < trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, 0));
}

TEST(modules, CARD) {
  void *module, *function;
  start();
  CHECK(cuModuleLoadData(&module, IMAGE) == 0);
  CHECK_EQUAL(overhead(1, named("module")), 4 * MiB);
  CHECK(cuModuleGetFunction(&function, module, "f") == 0);
  CHECK_EQUAL(overhead(2, named("module")), 2 * MiB);
  CHECK(cuModuleGetFunction(&function, module, "g") == 0);
  CHECK_EQUAL(overheads(), 3);  // nothing grew, nothing is said
  CHECK(cuModuleUnload(module) == 0);
  CHECK_EQUAL(overhead(3, named("module")), -6 * (int64_t)MiB);
}

// Nothing is taken when a library is loaded lazily, but at the first launch.
TEST(lazy_library, CARD) {
  void *library, *kernel;
  start();
  CHECK(cuLibraryLoadData(&library, "simcuda:0+6291456", NULL, NULL, 0, NULL, NULL, 0) == 0);
  CHECK(cuLibraryGetKernel(&kernel, library, "f") == 0);
  CHECK_EQUAL(overheads(), 1);
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
  CHECK_EQUAL(overhead(1, named("library")), 6 * MiB);
  CHECK(cuLibraryGetKernel(&kernel, library, "f") == 0);
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
  CHECK_EQUAL(overheads(), 2);
}

TEST(limit, CARD) {
  start();
  CHECK(cuCtxSetLimit(2, 16 * MiB) == 0);
  CHECK_EQUAL(overhead(1, "what=context\tname=limit"), 16 * MiB);
  CHECK(cuCtxSetLimit(2, 8 * MiB) == 0);
  CHECK_EQUAL(overhead(2, "what=context\tname=limit"), -8 * (int64_t)MiB);
}

// A capture forbids to ask; the first launch after it is asked about.
TEST(capture, CARD) {
  void *library, *kernel = NULL, *graph, *stream;
  start();
  stream = new_stream();
  CHECK(cuLibraryLoadData(&library, "simcuda:0+6291456", NULL, NULL, 0, NULL, NULL, 0) == 0 && cuLibraryGetKernel(&kernel, library, "f") == 0);
  CHECK(cudaStreamBeginCapture(stream, 0) == 0);
  CHECK(cuCtxSetLimit(2, 16 * MiB) == 0);
  CHECK(cudaStreamEndCapture(stream, &graph) == 0);
  CHECK_EQUAL(overheads(), 1);
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
  CHECK_EQUAL(overhead(1, named("library")), 6 * MiB);
}

TEST(graphs, CARD) {
  void *stream, *graph = NULL, *executable, *again;
  start();
  stream = new_stream();
  CHECK(cudaStreamBeginCapture(stream, 0) == 0 && cudaStreamEndCapture(stream, &graph) == 0);
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0) == 0);
  CHECK_EQUAL(overhead(1, "what=graph"), 65536);
  CHECK(cuGraphLaunch(executable, stream) == 0);
  CHECK_EQUAL(overheads(), 2);  // the launch is not held up by a reading
  CHECK(cuGraphLaunch(executable, stream) == 0);
  CHECK_EQUAL(overhead(2, "what=graph"), 131072);
  CHECK(cuGraphExecDestroy(executable) == 0);
  CHECK_EQUAL(overhead(3, "what=graph"), -196608);
  // The next one may lie where the first one was, and is launched for the first time.
  void *get = NULL;
  CHECK(cuGetProcAddress("cuGraphInstantiate", &get, 12000, 0) == 0);
  CHECK(((int (*)(void **, void *, unsigned long long))get)(&again, graph, 0) == 0 && cuGraphLaunch(again, stream) == 0);
  // What the launch took is kept apart from what the next call takes.
  CHECK(cuCtxSetLimit(2, 16 * MiB) == 0);
  CHECK_EQUAL(overhead(5, "what=graph"), 131072);
  CHECK_EQUAL(overhead(6, "what=context\tname=limit"), 16 * MiB);
  CHECK(cuGraphLaunch(again, stream) == 0);
  CHECK_EQUAL(overheads(), 7);
}

// Two graphs that have to start together, each for the first time.
TEST(graphs_at_once, CARD) {
  void *stream, *graph = NULL, *one, *two;
  start();
  stream = new_stream();
  CHECK(cudaStreamBeginCapture(stream, 0) == 0 && cudaStreamEndCapture(stream, &graph) == 0);
  CHECK(cuGraphInstantiateWithFlags(&one, graph, 0) == 0 && cuGraphInstantiateWithFlags(&two, graph, 0) == 0);
  CHECK_EQUAL(overheads(), 3);
  CHECK(cuGraphLaunch(one, stream) == 0 && cuGraphLaunch(two, stream) == 0);
  CHECK_EQUAL(overheads(), 3);
  CHECK(cuGraphLaunch(one, stream) == 0);
  CHECK_EQUAL(overhead(3, "what=graph"), 262144);
}

// What all events together say is in use.
static int64_t explained(void) {
  const struct trail trail = so_far();
  int64_t sum = 0;
  for (uint64_t i = 0; i < trail.count; i++) {
    const struct memprof_record *event = &trail.records[i];
    switch (trail_kind(event)) {
      case MEMPROF_MAP:
      case MEMPROF_OVERHEAD: sum += (int64_t)event->provided; break;
      case MEMPROF_UNMAP: sum -= (int64_t)event->provided; break;
      case MEMPROF_EXTERNAL_ALLOC:
        if (strstr(context_of(&trail, event), "host=1") == NULL) sum += (int64_t)event->provided;
        for (uint64_t k = i + 1; k < trail.count; k++) {
          if (trail_kind(&trail.records[k]) != MEMPROF_EXTERNAL_FREE || trail.records[k].addr != event->addr) continue;
          if (strstr(context_of(&trail, event), "host=1") == NULL) sum -= (int64_t)event->provided;
          break;
        }
        break;
      default: break;
    }
  }
  return sum;
}

// What a pool keeps of what was freed is in use, too.
static void check_idle(void *pool) {
  const uint64_t threshold = 48 * MiB;
  void *ptr = NULL, *next = NULL, *module;
  CHECK(cuMemPoolSetAttribute(pool, 4, &threshold) == 0);
  CHECK(cudaMallocFromPoolAsync(&ptr, 64 * MiB, pool, NULL) == 0);
  CHECK_EQUAL(explained(), GiB - free_now());
  CHECK(cudaFreeAsync(ptr, NULL) == 0);
  CHECK_EQUAL(GiB - free_now(), 348 * MiB);
  CHECK_EQUAL(explained(), GiB - free_now());
  CHECK_EQUAL(overhead(1, "what=pool\tname=driver's memory pools"), 48 * MiB);
  CHECK(cudaMallocFromPoolAsync(&next, 20 * MiB, pool, NULL) == 0 && cuModuleLoadData(&module, IMAGE) == 0);
  CHECK_EQUAL(explained(), GiB - free_now());
}

TEST(idle_in_pools, CARD) {
  const struct pool plain = {.type = 1, .location = {1, 0}};
  void *pool = NULL;
  start();
  CHECK(cudaMemPoolCreate(&pool, &plain) == 0);
  check_idle(pool);
}

// A pool of the driver's own is counted once, however often the job asks for it.
static void check_idle_at(struct location location) {
  void *pool = NULL, *again = NULL;
  start();
  CHECK(cuMemGetDefaultMemPool(&pool, &location, 1) == 0 && cuMemGetMemPool(&again, &location, 1) == 0 && again == pool);
  check_idle(pool);
}
TEST(idle_on_the_device, CARD) { check_idle_at((struct location){1, 0}); }
TEST(idle_in_a_domain, CARD) { check_idle_at((struct location){6, 1 << 8}); }

// A reset takes everything, and nobody frees it.
TEST(reset, CARD) {
  void *ptr = NULL, *module, *context;
  device_address addr;
  start();
  CHECK(cudaMalloc(&ptr, 32 * MiB) == 0 && cuMemAlloc_v2(&addr, MiB) == 0 && cuModuleLoadData(&module, "an image without bytes") == 0);
  for (int i = 0; i < 300; i++) CHECK(cuMemAlloc_v2(&addr, 65536) == 0);
  CHECK_EQUAL(explained(), GiB - free_now());
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0);
  CHECK_EQUAL(explained(), GiB - free_now());
  CHECK(cuDevicePrimaryCtxReset_v2(0) == 0);
  CHECK_EQUAL(explained(), 0);
  start();
  CHECK(cudaMalloc(&ptr, 32 * MiB) == 0);
  CHECK_EQUAL(explained(), 332 * MiB);
  CHECK_EQUAL(explained(), GiB - free_now());
}

// Memory that no call has shown is in use, and no event explains it.
static void check_hidden_memory(void) {
  typedef void *lookup(void *, const char *);
  const struct pool plain = {.type = 1, .location = {1, 0}};
  void *module, *ptr = NULL, *host = NULL, *pool = NULL, *served = NULL;
  device_address addr = 0, hidden = 0;
  start();
  CHECK(cuModuleLoadData(&module, IMAGE) == 0 && cudaMalloc(&ptr, 32 * MiB) == 0 && cuMemAlloc_v2(&addr, 6 * MiB) == 0);
  CHECK(cudaMallocHost(&host, 3 * MiB) == 0 && cudaMemPoolCreate(&pool, &plain) == 0);
  CHECK(cudaMallocFromPoolAsync(&ptr, 2 * MiB, pool, NULL) == 0 && cudaMallocAsync(&served, 4 * MiB, NULL) == 0);
  CHECK(cuMemFree_v2(addr) == 0);
  CHECK_EQUAL(explained(), GiB - free_now());
  lookup *unseen = (lookup *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (unseen == NULL) unseen = (lookup *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  CHECK(unseen != NULL);
  int (*allocate)(device_address *, size_t) = (int (*)(device_address *, size_t))unseen(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
  CHECK(allocate(&hidden, 64 * MiB) == 0);
  CHECK_EQUAL(GiB - free_now() - (uint64_t)explained(), 64 * MiB);
  // And it stays out of what is measured afterwards.
  CHECK(cuModuleLoadData(&module, IMAGE) == 0);
  CHECK_EQUAL(GiB - free_now() - (uint64_t)explained(), 64 * MiB);
}

// Where a library was loaded says whose kernels they are, even before there is a context.
TEST(library_before_context, CARD) {
  void *library, *kernel;
  CHECK(cuInit(0) == 0);
  CHECK(cuLibraryLoadData(&library, "simcuda:0+6291456", NULL, NULL, 0, NULL, NULL, 0) == 0);
  start();
  CHECK(cuLibraryGetKernel(&kernel, library, "f") == 0);
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == 0);
  CHECK_EQUAL(overhead(1, named("library")), 6 * MiB);
}

TEST(hidden_memory, CARD) { check_hidden_memory(); }
TEST(hidden_memory_served, CARD, "MEMPROF_OPTIONS", "serve=1,headroom=0") { check_hidden_memory(); }

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
