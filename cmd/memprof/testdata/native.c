// native.c - a job with an allocator of its own, which reports what torch's would, in numbers that
// the test knows.
//
//   native ITERATIONS
//   native load FILE WHAT    calls run(WHAT) of a library instead
//
// Blocks are multiples of 512 bytes. 1,000,000 bytes stay for good; each iteration takes
// 3,000,000 and 100, and frees them, the smaller one pending for another stream. Two
// segments hold all of it, 2 and 20 MiB. Without `record --allocator native` it does nothing.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sums {
  uint64_t provided, provided_peak, active, reserved;
};

static struct sums sums;
static void *watch;
static void *(*watch_device)(int, const char *, void (*)(int, struct sums *));
static void (*watch_alloc)(void *, uint64_t, uint64_t, uint64_t, void *, uint64_t, uint64_t);
static void (*watch_free)(void *, uint64_t, uint64_t, uint64_t, void *, uint64_t, uint64_t);
static void (*watch_free_done)(void *, uint64_t, uint64_t, uint64_t, void *, uint64_t, uint64_t);
static void (*watch_map)(void *, uint64_t, uint64_t, uint64_t, void *, uint64_t, uint64_t, int);
static void (*iteration)(const char *);

static void find(const char *name, void *function) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol == NULL) exit(8);
  memcpy(function, &symbol, sizeof symbol);
}

static void read_sums(int device, struct sums *out) {
  if (device == 0) *out = sums;
}

static uint64_t rounded(uint64_t size) { return (size + 511) / 512 * 512; }

static void segment(uint64_t addr, uint64_t size) {
  sums.reserved += size;
  watch_map(watch, 0, addr, size, NULL, 0, 0, 0);
}

static void take(uint64_t addr, uint64_t size) {
  watch_alloc(watch, 0, addr, size, NULL, 0, 0);
  sums.provided += rounded(size);
  sums.active += rounded(size);
  if (sums.provided > sums.provided_peak) sums.provided_peak = sums.provided;
}

static void give(uint64_t addr, uint64_t size) {
  sums.provided -= rounded(size);
  watch_free(watch, 0, addr, size, NULL, 0, 0);
}

static void done(uint64_t addr, uint64_t size) {
  watch_free_done(watch, 0, addr, size, NULL, 0, 0);
  sums.active -= rounded(size);
}

static int load(const char *file, const char *what) {
  void *library = dlopen(file, RTLD_LAZY);
  int (*run)(const char *);
  if (library == NULL) {
    fputs(dlerror(), stderr);
    return 8;
  }
  void *symbol = dlsym(library, "run");
  memcpy(&run, &symbol, sizeof run);
  return run(what);
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "load") == 0) return load(argv[2], argv[3]);
  const char *allocator = getenv("MEMPROF_ALLOCATOR");
  if (argc != 2 || allocator == NULL || strcmp(allocator, "native") != 0) return 0;
  find("memprof_watch_device", &watch_device);
  find("memprof_watch_alloc", &watch_alloc);
  find("memprof_watch_free", &watch_free);
  find("memprof_watch_free_done", &watch_free_done);
  find("memprof_watch_map", &watch_map);
  find("memprof_iteration", &iteration);
  watch = watch_device(0, "native", read_sums);
  const uint64_t small = (uint64_t)1 << 40, large = small + ((uint64_t)1 << 30);
  segment(small, 2 << 20);
  take(small, 1000000);
  const uint64_t shared = small + rounded(1000000);
  for (int i = 0; i < atoi(argv[1]); i++) {
    if (i == 0) segment(large, 20 << 20);
    take(large, 3000000);
    if (i > 0) done(shared, 100);  // its free waited for the iteration before
    take(shared, 100);
    give(large, 3000000);
    done(large, 3000000);
    give(shared, 100);
    iteration("");
  }
  return 0;
}
