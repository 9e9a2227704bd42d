// own_time.c - measures the time of a job's calls into the hook, by iteration.
//
// It is preloaded before the hook. It defines the functions by which torch's allocator and the marks of
// iterations call the hook, and passes the calls on. Whole steps of two processes differ by several
// percent under the same policy; the time of these calls shows the difference between policies.
//
// When the process ends, it writes a line for each iteration to the file $OWN_TIME: nanoseconds in
// requests, in frees and in the mark at its end, and the number of requests. Each call includes about
// 25 ns for reading the clock, under any policy.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_ITERATIONS = 1 << 16 };

struct iteration {
  uint64_t requests_ns, frees_ns, mark_ns, requests;
};

static struct iteration iterations[MOST_ITERATIONS];
static size_t count;
static _Atomic(uint64_t) requests_ns, frees_ns, requests;  // of the iteration, by all threads

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// The hook's function of that name.
static void *next(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) {
    fprintf(stderr, "own_time: no %s behind this library\n", name);
    abort();
  }
  return found;
}

void *memprof_malloc_in_pool(size_t size, int device, void *stream, uint64_t pool0, uint64_t pool1) {
  static void *(*_Atomic real)(size_t, int, void *, uint64_t, uint64_t);
  if (real == NULL) real = next(__func__);
  const uint64_t start = now();
  void *block = real(size, device, stream, pool0, pool1);
  requests_ns += now() - start;
  requests++;
  return block;
}

void memprof_free(void *block, size_t size, int device, void *stream) {
  static void (*_Atomic real)(void *, size_t, int, void *);
  if (real == NULL) real = next(__func__);
  const uint64_t start = now();
  real(block, size, device, stream);
  frees_ns += now() - start;
}

// Marks come from one thread.
void memprof_iteration(const char *label) {
  static void (*real)(const char *);
  if (real == NULL) real = next(__func__);
  const uint64_t start = now();
  real(label);
  const uint64_t mark_ns = now() - start;
  if (count == MOST_ITERATIONS) return;
  iterations[count++] = (struct iteration){
      .requests_ns = atomic_exchange(&requests_ns, 0),
      .frees_ns = atomic_exchange(&frees_ns, 0),
      .mark_ns = mark_ns,
      .requests = atomic_exchange(&requests, 0),
  };
}

__attribute__((destructor)) static void print_times(void) {
  const char *path = getenv("OWN_TIME");
  FILE *file = path == NULL || count == 0 ? NULL : fopen(path, "w");  // workers that mark nothing leave it alone
  if (file == NULL) return;
  for (size_t i = 0; i < count; i++) {
    const struct iteration *it = &iterations[i];
    fprintf(file, "%llu %llu %llu %llu\n", (unsigned long long)it->requests_ns, (unsigned long long)it->frees_ns,
            (unsigned long long)it->mark_ns, (unsigned long long)it->requests);
  }
  fclose(file);
}
