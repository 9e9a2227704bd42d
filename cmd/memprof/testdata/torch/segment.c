// segment.c - a library that takes a segment by cudaMalloc. Built as libc10_cuda.so it is torch's
// allocator to the interposition; under another name it is some other library.
//
//   alone     8 MiB by cudaMalloc
//   observed  the same, by a native allocator that reports it
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

enum { BYTES = 8 << 20 };

static void find(const char *name, void *function) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  memcpy(function, &symbol, sizeof symbol);
}

static void read_sums(int device, uint64_t *sums) {
  const uint64_t now[] = {0, 0, 0, BYTES};
  if (device == 0) memcpy(sums, now, sizeof now);
}

int run(const char *what) {
  int (*set_device)(int), (*cuda_malloc)(void **, size_t);
  void *(*watch_device)(int, const char *, void (*)(int, uint64_t *));
  void (*watch_map)(void *, uint64_t, uint64_t, uint64_t, void *, uint64_t, uint64_t, int);
  void *watch = NULL, *segment = NULL;
  void *runtime = dlopen("libcudart.so.12", RTLD_NOW);
  if (runtime == NULL) return 8;
  void *symbol = dlsym(runtime, "cudaSetDevice");
  memcpy(&set_device, &symbol, sizeof set_device);
  find("cudaMalloc", &cuda_malloc);
  find("memprof_watch_device", &watch_device);
  find("memprof_watch_map", &watch_map);
  if (set_device(0) != 0) return 8;
  if (strcmp(what, "observed") == 0) watch = watch_device(0, "native", read_sums);
  if (cuda_malloc(&segment, BYTES) != 0) return 8;
  if (watch != NULL) watch_map(watch, 0, (uintptr_t)segment, BYTES, NULL, 0, 0, 0);
  return 0;
}
