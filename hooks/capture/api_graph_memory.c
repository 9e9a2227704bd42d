// api_graph_memory.c - the functions of memprof.h for graph memory.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/graph_memory.h"
#include "base/hook.h"
#include "base/problem.h"
#include "base/text.h"
#include "device/captures.h"
#include "memprof.h"
#include "spool/spool.h"

// Why the last call of the thread failed.
static __thread char message[256];

const char *memprof_graph_message(void) { return message; }

static double gib(uint64_t bytes) { return (double)bytes / (double)((uint64_t)1 << 30); }

static struct gpu *device_state(int device) {
  if (!hook_on()) return NULL;
  hook_start();
  return gpu_get(device);
}

static struct graph_memory *find(const struct gpu *gpu, uint32_t number) {
  struct graph_memory *memory = gpu->graph_memories;
  while (memory != NULL && memory->number != number) memory = memory->next;
  return memory;
}

static void describe(const struct graph_memory *memory) {
  char text[128];
  snprintf(text, sizeof text, "graph_memory=%u\tstore=1\tgranularity=%llu\tcoalesces=1", memory->number,
           (unsigned long long)memory->device->granularity);
  spool_write(&(struct spool_event){
      .kind = MEMPROF_ARENA,
      .device = memory->device->device,
      .arena = memory->arena,
      .addr = memory->base,
      .requested = memory->device->total,
      .provided = memory->reservation,
      .context = spool_string(text),
  });
}

uint32_t memprof_graph_memory_open(int device, uint64_t reservation) {
  static _Atomic(uint32_t) numbers;
  struct gpu *gpu = device_state(device);
  if (gpu == NULL) {
    snprintf(message, sizeof message, "memprof's hook does not serve GPU %d", device);
    return 0;
  }
  struct graph_memory *memory = malloc(sizeof *memory);
  if (memory == NULL) {
    snprintf(message, sizeof message, "no host memory");
    return 0;
  }
  if (reservation == 0 || reservation > gpu->vmm.total) reservation = gpu->vmm.total;
  lock_take(&gpu->lock);
  const bool ok = graph_memory_init(memory, &gpu->vmm, reservation) == GRAPH_OK;
  if (ok) {
    memory->number = atomic_fetch_add(&numbers, 1) + 1;
    memory->arena = arena_next_id();
    memory->next = gpu->graph_memories;
    gpu->graph_memories = memory;
    describe(memory);
  }
  lock_give(&gpu->lock);
  if (ok) return memory->number;
  free(memory);
  snprintf(message, sizeof message, "GPU %d: no %.2f GiB of addresses for a graph memory", device, gib(reservation));
  return 0;
}

void memprof_graph_memory_close(int device, uint32_t number) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  struct graph_memory *memory = find(gpu, number);
  if (memory != NULL) {
    memory->closed = true;
    pool_sweep(gpu);
    if (captures_hold()) {
      graph_memory_sweep(gpu);
      captures_let();
    }
  }
  lock_give(&gpu->lock);
}

static bool has_memory(const struct gpu *gpu, const struct pool *pool) {
  const struct arena *arena = gpu->arenas;
  while (arena != NULL && arena->home != pool) arena = arena->next;
  return arena != NULL || pool->range != NULL || pool->source.allocate != NULL;
}

// The name as a field of an event: blanks separate fields, so they become underscores.
static void set_name(struct graph_range *range, const char *name) {
  if (name == NULL || *name == '\0') name = "unnamed";
  text_copy(range->name, sizeof range->name, name, strlen(name));
  for (char *c = range->name; *c != '\0'; c++) {
    if ((unsigned char)*c <= ' ') *c = '_';
  }
}

static int explain(const struct graph_memory *memory, enum graph_result result) {
  uint64_t ranges = 0;
  for (const struct graph_range *range = memory->ranges; range != NULL; range = range->next) ranges++;
  switch (result) {
    case GRAPH_OK: return MEMPROF_OK;
    case GRAPH_NO_ADDRESSES:
      snprintf(message, sizeof message, "no address space for another range of %.2f GiB: the graph memory has %llu; release shapes, or reserve less for each",
               gib(memory->reservation), (unsigned long long)ranges);
      return MEMPROF_NO_MEMORY;
    case GRAPH_NO_HOST_MEMORY: snprintf(message, sizeof message, "no host memory"); return MEMPROF_NO_HOST_MEMORY;
    case GRAPH_NO_MEMORY: snprintf(message, sizeof message, "no device memory"); return MEMPROF_NO_MEMORY;
    case GRAPH_DRIVER_FAILED:
      snprintf(message, sizeof message, "the driver refused to map %.2f GiB into a new range", gib(graph_memory_bytes(memory)));
      return MEMPROF_DEVICE_FAILED;
  }
  return MEMPROF_DEVICE_FAILED;
}

static int open_shape(struct gpu *gpu, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1, int segments) {
  struct graph_memory *memory = find(gpu, number);
  if (memory == NULL || memory->closed) {
    snprintf(message, sizeof message, "the graph memory is closed");
    return MEMPROF_WRONG_STATE;
  }
  struct pool *pool = pool0 == 0 && pool1 == 0 ? NULL : pool_get(gpu, pool0, pool1, 0);
  if (pool == NULL || has_memory(gpu, pool)) {
    snprintf(message, sizeof message, "the pool of the shape has memory already");
    return pool == NULL ? MEMPROF_NO_HOST_MEMORY : MEMPROF_WRONG_STATE;
  }
  const int result = explain(memory, graph_range_open(memory, &pool->range));
  if (result != MEMPROF_OK) return result;
  set_name(pool->range, name);
  pool->range->segments = segments != 0;
  pool->uses++;
  return MEMPROF_OK;
}

int memprof_graph_shape(int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1, int segments) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) {
    snprintf(message, sizeof message, "memprof's hook does not serve this process: run it under `memprof record`");
    return MEMPROF_NOT_ACTIVE;
  }
  lock_take(&gpu->lock);
  pool_sweep(gpu);  // frees the addresses of shapes that have ended
  const int result = open_shape(gpu, number, name, pool0, pool1, segments);
  lock_give(&gpu->lock);
  return result;
}

// The pool that the thread has entered, on a device; gpu->entered is the last of any thread.
static __thread int entered_device;
static __thread uint64_t entered[2];

void memprof_graph_enter(int device, uint64_t pool0, uint64_t pool1) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return;
  lock_take(&gpu->lock);
  entered_device = device;
  entered[0] = gpu->entered[0] = pool0;
  entered[1] = gpu->entered[1] = pool1;
  lock_give(&gpu->lock);
}

void *memprof_graph_segment(size_t size, int device, void *stream) {
  (void)stream;  // torch's allocator separates streams itself
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return NULL;
  uint64_t pool[2] = {entered[0], entered[1]};
  if (entered_device != device || (pool[0] == 0 && pool[1] == 0)) {
    lock_take(&gpu->lock);
    memcpy(pool, gpu->entered, sizeof pool);
    lock_give(&gpu->lock);
  }
  if (pool[0] == 0 && pool[1] == 0) {
    problem("GPU %d: torch requested a segment of a graph memory outside of its shapes; it is refused", device);
    return NULL;
  }
  return memprof_malloc_in_pool(size, device, NULL, pool[0], pool[1]);
}

void memprof_graph_segment_free(void *ptr, size_t size, int device, void *stream) { memprof_free(ptr, size, device, stream); }

static struct pool *pool_named(const struct gpu *gpu, uint64_t pool0, uint64_t pool1) {
  struct pool *pool = gpu->pools;
  while (pool != NULL && (pool->id[0] != pool0 || pool->id[1] != pool1)) pool = pool->next;
  return pool;
}

struct listing {
  const struct arena *arena;
  struct memprof_chunk *blocks;
  size_t count, most;
};

static void list_live(void *self, const struct bfc_chunk_info *chunk) {
  struct listing *listing = self;
  struct bfc_block block;
  if (chunk->free || !bfc_find(listing->arena->bfc, chunk->addr, &block) || !arena_live(listing->arena, &block)) return;
  if (listing->count < listing->most) {
    listing->blocks[listing->count] = (struct memprof_chunk){chunk->addr, chunk->size, chunk->requested, MEMPROF_CHUNK_LIVE};
  }
  listing->count++;
}

size_t memprof_graph_live(int device, uint64_t pool0, uint64_t pool1, struct memprof_chunk *blocks, size_t most) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  struct listing listing = {.blocks = blocks, .most = most};
  if (gpu == NULL) return 0;
  lock_take(&gpu->lock);
  for (const struct arena *arena = gpu->arenas; arena != NULL; arena = arena->next) {
    if (arena->pool[0] != pool0 || arena->pool[1] != pool1) continue;
    listing.arena = arena;
    bfc_walk(arena->bfc, &listing, list_live);
  }
  lock_give(&gpu->lock);
  return listing.count;
}

int memprof_graph_usage(int device, uint32_t number, struct memprof_graph_usage *usage) {
  *usage = (struct memprof_graph_usage){0};
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) return 0;
  lock_take(&gpu->lock);
  const struct graph_memory *memory = find(gpu, number);
  if (memory != NULL) {
    usage->physical = graph_memory_bytes(memory);
    for (const struct graph_range *range = memory->ranges; range != NULL; range = range->next) usage->ranges++;
    usage->addresses = (usage->ranges + 1) * memory->reservation;
  }
  lock_give(&gpu->lock);
  return memory != NULL;
}

int memprof_graph_extent(int device, uint64_t pool0, uint64_t pool1, uint64_t *base, uint64_t *extent) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  *base = *extent = 0;
  if (gpu == NULL) return 0;
  lock_take(&gpu->lock);
  const struct pool *pool = pool_named(gpu, pool0, pool1);
  const struct graph_range *range = pool == NULL ? NULL : pool->range;
  if (range != NULL) {
    *base = range->base;
    *extent = range->extent;
  }
  lock_give(&gpu->lock);
  return range != NULL;
}
