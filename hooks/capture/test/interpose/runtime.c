// runtime.c - a library with a runtime of its own, as static linking makes it where its
// symbols are not hidden. It hands out addresses and counts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static unsigned long next = 0x10000;
static int failures;

int cudaMalloc(void **ptr, size_t bytes) {
  if (bytes > 1000000) {
    failures++;
    return 2;
  }
  *ptr = (void *)(next += 4096);
  return 0;
}

int cudaGetLastError(void) {
  const int last = failures > 0 ? 2 : 0;
  failures = 0;
  return last;
}

int runtime_malloc(void **ptr, size_t bytes) {
  const int error = cudaMalloc(ptr, bytes);
  return error;
}

// What this library sees, which is more than everybody does.
void *runtime_lookup(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  return found;
}
