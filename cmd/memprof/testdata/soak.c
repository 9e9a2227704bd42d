// soak.c - a long job on the simulated GPU: hours of a training's allocations in minutes.
//
//   soak EVENTS FILE
//
// Makes at least EVENTS allocations and frees, in iterations that use all that could make
// the hook grow: contexts, stacks, labels, streams that share blocks, pools that come and
// go, memory that is unmapped, and allocations of other libraries. The blocks are never
// touched, so that the process's resident memory is the hook's and the simulator's own.
// Appends "EVENTS RESIDENT ANONYMOUS" to FILE a hundred times, in events and KiB; what is
// resident and not anonymous are the segments of the spool, and code.
//
// When the collector lags it waits: what is measured is memory, not the size of the spool.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIVE = 4096, STREAMS = 3, CONTEXTS = 2000, FRAMES = 600, MOST_SEGMENTS = 48 };

static void *(*hook_malloc)(size_t, int, void *);
static void *(*hook_malloc_in_pool)(size_t, int, void *, uint64_t, uint64_t);
static void (*hook_free)(void *, size_t, int, void *);
static void (*hook_record_stream)(void *, void *);
static size_t (*hook_empty_cache)(int);
static void (*hook_iteration)(const char *);
static void (*hook_phase_begin)(const char *), (*hook_phase_end)(const char *);
static void (*hook_label)(void *, const char *);
static void (*hook_pool_begin)(int, uint64_t, uint64_t), (*hook_pool_end)(int, uint64_t, uint64_t), (*hook_release_pool)(int, uint64_t, uint64_t);
static uint32_t (*hook_context)(const char *), *(*hook_context_cell)(void);
static uint32_t (*hook_stack_node)(uint32_t, const char *);
static int (*cuda_malloc)(void **, size_t), (*cuda_free)(void *);

static uint64_t seed = 1;
static long events;
static struct {
  void *block;
  int stream;
} live[LIVE];
static void *streams[STREAMS];
static uint32_t contexts[CONTEXTS];

static void find(const char *name, void *function) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol == NULL) {
    fprintf(stderr, "soak: no %s\n", name);
    exit(8);
  }
  memcpy(function, &symbol, sizeof symbol);
}

static uint32_t random_below(uint32_t bound) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)((seed >> 33) % bound);
}

// Few sizes are large: 512 B to 64 MiB, each power of two as likely as the other.
static size_t random_size(void) {
  const uint32_t power = 9 + random_below(17);
  return (1ul << power) + random_below(1u << power);
}

static void start(void) {
  int (*set_device)(int), (*stream_create)(void **);
  if (dlopen("libcudart.so.12", RTLD_NOW | RTLD_GLOBAL) == NULL) exit(8);
  find("memprof_malloc", &hook_malloc);
  find("memprof_malloc_in_pool", &hook_malloc_in_pool);
  find("memprof_free", &hook_free);
  find("memprof_record_stream", &hook_record_stream);
  find("memprof_empty_cache", &hook_empty_cache);
  find("memprof_iteration", &hook_iteration);
  find("memprof_phase_begin", &hook_phase_begin);
  find("memprof_phase_end", &hook_phase_end);
  find("memprof_label", &hook_label);
  find("memprof_pool_begin", &hook_pool_begin);
  find("memprof_pool_end", &hook_pool_end);
  find("memprof_release_pool", &hook_release_pool);
  find("memprof_context", &hook_context);
  find("memprof_context_cell", &hook_context_cell);
  find("memprof_stack_node", &hook_stack_node);
  find("cudaMalloc", &cuda_malloc);
  find("cudaFree", &cuda_free);
  find("cudaSetDevice", &set_device);
  find("cudaStreamCreate", &stream_create);
  if (set_device(0) != 0) exit(8);
  for (int i = 1; i < STREAMS; i++) {
    if (stream_create(&streams[i]) != 0) exit(8);
  }
}

// The texts of a large model; each is asked for again and again, as a framework does.
static void name_contexts(void) {
  uint32_t nodes[FRAMES] = {0};
  char text[128];
  for (int i = 0; i < FRAMES; i++) {
    snprintf(text, sizeof text, "function_%d (train.py:%d)", i, i);
    nodes[i] = hook_stack_node(i == 0 ? 0 : nodes[(i - 1) / 2], text);
  }
  for (int i = 0; i < CONTEXTS; i++) {
    snprintf(text, sizeof text, "module=transformer.h.%d.mlp\tstack=%u", i % 96, nodes[i % FRAMES]);
    contexts[i] = hook_context(text);
  }
}

static void step(uint32_t *cell) {
  const uint32_t slot = random_below(LIVE);
  events++;
  if (live[slot].block != NULL) {
    if (random_below(64) == 0) hook_record_stream(live[slot].block, streams[(live[slot].stream + 1) % STREAMS]);
    hook_free(live[slot].block, 0, 0, NULL);
    live[slot].block = NULL;
    return;
  }
  *cell = contexts[random_below(CONTEXTS)];
  live[slot].stream = random_below(16) < 14 ? 0 : 1 + (int)random_below(STREAMS - 1);
  live[slot].block = hook_malloc(random_size(), 0, streams[live[slot].stream]);
  if (live[slot].block == NULL) exit(10);
  if (random_below(32) == 0) hook_label(live[slot].block, random_below(2) == 0 ? "category=weights\tname=layer.weight" : "category=optimizer\tname=exp_avg");
}

// A graph's life: its pool is opened, used and released.
static void pool(uint64_t number) {
  void *blocks[20];
  hook_pool_begin(0, number, 1);
  for (int i = 0; i < 20; i++) blocks[i] = hook_malloc_in_pool(random_size(), 0, streams[0], number, 1);
  hook_pool_end(0, number, 1);
  for (int i = 0; i < 20; i++) hook_free(blocks[i], 0, 0, NULL);
  hook_release_pool(0, number, 1);
  events += 40;
}

static void library_memory(void) {
  void *block = NULL;
  if (cuda_malloc(&block, 1 << 20) != 0 || cuda_free(block) != 0) exit(11);
  events += 2;
}

static void iteration(long number, uint32_t *cell) {
  static const char *const phases[] = {"data", "forward", "backward", "optimizer"};
  for (int phase = 0; phase < 4; phase++) {
    hook_phase_begin(phases[phase]);
    for (int i = 0; i < 5000; i++) step(cell);
    hook_phase_end(phases[phase]);
  }
  library_memory();
  if (number % 20 == 0) pool((uint64_t)number + 1);
  if (number % 100 == 0) hook_empty_cache(0);
  hook_iteration("");
}

static void log_counts(FILE *log) {
  long resident = 0, anonymous = 0;
  FILE *status = fopen("/proc/self/status", "r");
  for (char line[256]; status != NULL && fgets(line, sizeof line, status) != NULL;) {
    sscanf(line, "VmRSS: %ld", &resident);
    sscanf(line, "RssAnon: %ld", &anonymous);
  }
  if (status != NULL) fclose(status);
  fprintf(log, "%ld %ld %ld\n", events, resident, anonymous);
  fflush(log);
}

// The segments that wait in the spool, by the names in this process's directory.
static int waiting(void) {
  static char path[4200];
  if (path[0] == '\0') {
    DIR *spool = opendir(getenv("MEMPROF_SPOOL"));
    char prefix[32];
    snprintf(prefix, sizeof prefix, "p%d.", (int)getpid());
    for (struct dirent *entry; spool != NULL && (entry = readdir(spool)) != NULL;) {
      if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) snprintf(path, sizeof path, "%s/%s", getenv("MEMPROF_SPOOL"), entry->d_name);
    }
    if (spool != NULL) closedir(spool);
  }
  int segments = 0;
  DIR *directory = opendir(path);
  for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) segments += strstr(entry->d_name, ".seg") != NULL;
  if (directory != NULL) closedir(directory);
  return segments;
}

int main(int argc, char **argv) {
  if (argc != 3) return 9;
  const long wanted = atol(argv[1]);
  FILE *log = fopen(argv[2], "w");
  if (log == NULL) return 9;
  start();
  name_contexts();
  uint32_t *cell = hook_context_cell();
  long logged = 0;
  for (long number = 0; events < wanted; number++) {
    iteration(number, cell);
    while (waiting() > MOST_SEGMENTS) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (events / (wanted / 100 + 1) > logged) {
      logged = events / (wanted / 100 + 1);
      log_counts(log);
    }
  }
  return fclose(log) != 0;
}
