// start.c - finds the functions that the jobs call, and waits for the hook's trimmer between iterations.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "served.h"

void *streams[STREAMS];
struct block blocks[BLOCKS];
uint64_t refused;

int (*cu_capture)(void *, int), (*cu_end_capture)(void *, void **);
size_t (*hook_empty_cache)(int);
void *(*hook_malloc)(size_t, int, void *, uint64_t, uint64_t);
void (*hook_free)(void *, size_t, int, void *);
void (*hook_use)(void *, void *);
int (*hook_owns)(void *, size_t *);
void (*hook_pool_begin)(int, uint64_t, uint64_t), (*hook_pool_end)(int, uint64_t, uint64_t), (*hook_pool_release)(int, uint64_t, uint64_t);
int (*hook_region_begin)(const char *, int), (*hook_pause)(const char *const *, size_t, int), (*hook_resume)(const char *const *, size_t, int);
void (*hook_region_end)(void);

static int (*cu_alloc)(uint64_t *, size_t), (*cu_free)(uint64_t);
static int (*cu_alloc_async)(uint64_t *, size_t, void *), (*cu_free_async)(uint64_t, void *);
static void (*hook_iteration)(const char *);
static int (*hook_trimming)(void);

void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "served: no %s\n", name);
    exit(8);
  }
  memcpy(function, &symbol, sizeof symbol);
}

static void find_all(void *library) {
  find(library, "cuMemAlloc_v2", &cu_alloc), find(library, "cuMemFree_v2", &cu_free);
  find(library, "cuMemAllocAsync", &cu_alloc_async), find(library, "cuMemFreeAsync", &cu_free_async);
  find(library, "cuStreamBeginCapture_v2", &cu_capture), find(library, "cuStreamEndCapture", &cu_end_capture);
  find(RTLD_DEFAULT, "memprof_iteration", &hook_iteration);
  find(RTLD_DEFAULT, "memprof_trimming", &hook_trimming);
  find(RTLD_DEFAULT, "memprof_empty_cache", &hook_empty_cache);
  find(RTLD_DEFAULT, "memprof_malloc_in_pool", &hook_malloc), find(RTLD_DEFAULT, "memprof_free", &hook_free);
  find(RTLD_DEFAULT, "memprof_record_stream", &hook_use), find(RTLD_DEFAULT, "memprof_owns", &hook_owns);
  find(RTLD_DEFAULT, "memprof_pool_begin", &hook_pool_begin), find(RTLD_DEFAULT, "memprof_pool_end", &hook_pool_end);
  find(RTLD_DEFAULT, "memprof_release_pool", &hook_pool_release);
  find(RTLD_DEFAULT, "memprof_region_begin", &hook_region_begin), find(RTLD_DEFAULT, "memprof_region_end", &hook_region_end);
  find(RTLD_DEFAULT, "memprof_pause", &hook_pause), find(RTLD_DEFAULT, "memprof_resume", &hook_resume);
}

void *start(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
  int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*create)(void **, unsigned);
  if (library == NULL) exit(8);
  find(library, "cuInit", &init), find(library, "cuDevicePrimaryCtxRetain", &retain), find(library, "cuCtxSetCurrent", &set);
  find(library, "cuStreamCreate", &create);
  find_all(library);
  if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0) exit(8);
  for (int i = 1; i < STREAMS; i++)  // the first is the default one
    if (create(&streams[i], 1) != 0) exit(8);
  return library;
}

uint64_t next_random(uint64_t *state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

uint64_t below(uint64_t *state, uint64_t bound) { return next_random(state) % bound; }

uint64_t size_of(uint64_t *random, int small) {
  static const uint64_t scales[] = {64 << 10, 2 << 20, 64 << 20, 3ull << 30};
  const uint64_t scale = scales[below(random, 4)];
  return 1 + below(random, small && scale > LARGEST ? LARGEST : scale);
}

static int resting;

void rest_as(int how) { resting = how; }

void rest(void) {
  while (resting == 1 && hook_trimming()) usleep(200);
}

void mark(void) {
  static int marks;
  hook_iteration("");
  if (captured() > 0) return;
  rest();
  if (resting > 1 && ++marks % 4 == 0) usleep((useconds_t)resting * 1000);
}

void take(struct block *block, uint64_t bytes, int stream) {
  *block = (struct block){.bytes = bytes, .stream = stream};
  const int error = stream < 0 ? cu_alloc(&block->addr, bytes) : cu_alloc_async(&block->addr, bytes, streams[stream]);
  if (error == 0) return;
  refused++;
  block->addr = 0;
}

void give(struct block *block) {
  const int error = block->addr == 0 ? 0 : block->stream < 0 ? cu_free(block->addr) : cu_free_async(block->addr, streams[block->stream]);
  if (error != 0) exit(2);
  free(block->copy);
  *block = (struct block){0};
}
