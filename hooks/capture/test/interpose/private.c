// private.c - a program that is linked with no CUDA and loads all of it privately, as an
// interpreter does with its modules. Each call must reach the runtime that it was meant for.
#include "program.h"

typedef int allocate_function(void **, size_t);

static void *function(const char *library, const char *name) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(handle != NULL);
  void *found = dlsym(handle, name);
  CHECK(found != NULL && dlerror() == NULL);
  return found;
}

static const char *library_of(const void *address) {
  Dl_info info;
  CHECK(dladdr(address, &info) != 0);
  return strrchr(info.dli_fname, '/') + 1;
}

static const struct memprof_record *last_alloc(const struct trail *trail) {
  return trail_event(trail, MEMPROF_EXTERNAL_ALLOC, trail_number(trail, MEMPROF_EXTERNAL_ALLOC) - 1);
}

TEST(linked_in_private) {
  void *ptr = NULL;
  allocate_function *of_driver = (allocate_function *)function("libnccl.so.2", "library_malloc");
  allocate_function *of_own = (allocate_function *)function("libprivate.so", "runtime_malloc");
  CHECK(of_driver(&ptr, 5000) == 0 && (uintptr_t)ptr > 0x100000000);
  struct trail trail = so_far();
  CHECK_CONTEXT(&trail, last_alloc(&trail), "call=cudaMalloc\tlibrary=libnccl.so.2");
  CHECK(of_own(&ptr, 6000) == 0 && (uintptr_t)ptr == 0x11000);
  trail = so_far();
  CHECK_CONTEXT(&trail, last_alloc(&trail), "call=cudaMalloc\tlibrary=libprivate.so");
  CHECK_EQUAL(last_alloc(&trail)->addr, 0x11000);
  CHECK(of_driver(&ptr, 7000) == 0 && (uintptr_t)ptr > 0x100000000);
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), 2);
}

// The second runtime is not wrapped, but its calls of the driver are.
TEST(second_runtime) {
  void *ptr = NULL;
  void *first = function("libprivate.so", "cudaMalloc"), *second = function("libcuda.so.1", "cudaMalloc");
  CHECK(strcmp(library_of(first), "libmemprof.so") == 0 && strcmp(library_of(second), "libcuda.so.1") == 0);
  CHECK(((allocate_function *)first)(&ptr, 5000) == 0 && (uintptr_t)ptr == 0x11000);
  CHECK(((allocate_function *)second)(&ptr, 6000) == 0 && (uintptr_t)ptr > 0x100000000);
  const struct trail trail = so_far();
  CHECK_EQUAL(trail_number(&trail, MEMPROF_EXTERNAL_ALLOC), 2);
  CHECK_CONTEXT(&trail, last_alloc(&trail), "call=cuMemAlloc\tlibrary=libcuda.so.1");
  CHECK_EQUAL(last_alloc(&trail)->requested, 6000);
}

// Looking behind the hook for the real function fails on the way; the program hears nothing of it.
TEST(no_error_of_ours) {
  CHECK(strcmp(library_of(function("libcuda.so.1", "cuMemAlloc_v2")), "libmemprof.so") == 0);
  CHECK(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v99") == NULL && dlerror() != NULL);
}

// A private library asks in its own scope, where it finds itself.
TEST(default_is_the_caller_s) {
  void *(*lookup)(const char *) = (void *(*)(const char *))function("libprivate.so", "runtime_lookup");
  CHECK(dlsym(RTLD_DEFAULT, "runtime_malloc") == NULL);
  CHECK(lookup("runtime_malloc") == function("libprivate.so", "runtime_malloc"));
  CHECK(strcmp(library_of(lookup("cudaMalloc")), "libmemprof.so") == 0);
}

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
