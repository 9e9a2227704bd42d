// api_graph_memory.c - the functions of memprof.h for graph memory.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/graph_memory.h"
#include "arena/selection.h"
#include "base/hook.h"
#include "base/text.h"
#include "base/thread_own.h"
#include "device/captures.h"
#include "memprof.h"
#include "spool/spool.h"

// Why the last call of the thread failed.
const char *memprof_graph_message(void) { return thread_texts()->graph; }

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
  if (hook_on()) hook_start();
  struct gpu *gpu = hook_on() ? gpu_get(device) : NULL;
  if (gpu == NULL) {
    snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "memprof's hook does not serve GPU %d", device);
    return 0;
  }
  struct graph_memory *memory = malloc(sizeof *memory);
  if (memory == NULL) {
    snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "no host memory");
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
  snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "GPU %d: no %.2f GiB of addresses for a graph memory", device, pause_gib(reservation));
  return 0;
}

void memprof_graph_memory_close(int device, uint32_t number) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return;
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

static int explain(const struct graph_memory *memory, enum graph_result result) {
  uint64_t ranges = 0;
  for (const struct graph_range *range = memory->ranges; range != NULL; range = range->next) ranges++;
  switch (result) {
    case GRAPH_OK: return MEMPROF_OK;
    case GRAPH_NO_ADDRESSES:
      snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "no address space for another range of %.2f GiB: the graph memory has %llu; release shapes, or reserve less for each",
               pause_gib(memory->reservation), (unsigned long long)ranges);
      return MEMPROF_NO_MEMORY;
    case GRAPH_NO_HOST_MEMORY: snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "no host memory"); return MEMPROF_NO_HOST_MEMORY;
    case GRAPH_NO_MEMORY: snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "no device memory"); return MEMPROF_NO_MEMORY;
    case GRAPH_DRIVER_FAILED:
      snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "the driver refused to map %.2f GiB into a new range", pause_gib(graph_memory_bytes(memory)));
      return MEMPROF_DEVICE_FAILED;
  }
  return MEMPROF_DEVICE_FAILED;
}

static int open_shape(struct gpu *gpu, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1) {
  struct graph_memory *memory = find(gpu, number);
  if (memory == NULL || memory->closed) {
    snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "the graph memory is closed");
    return MEMPROF_WRONG_STATE;
  }
  struct pool *pool = pool0 == 0 && pool1 == 0 ? NULL : pool_get(gpu, pool0, pool1, 0);
  if (pool == NULL || pool_has_arena(gpu, pool) || pool->range != NULL || pool->source.allocate != NULL) {
    snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "the pool of the shape has memory already");
    return pool == NULL ? MEMPROF_NO_HOST_MEMORY : MEMPROF_WRONG_STATE;
  }
  const int result = explain(memory, graph_range_open(memory, &pool->range));
  if (result != MEMPROF_OK) return result;
  text_field(pool->range->name, sizeof pool->range->name, name == NULL || *name == '\0' ? "unnamed" : name);
  pool->uses++;
  return MEMPROF_OK;
}

int memprof_graph_shape(int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1) {
  struct gpu *gpu = hook_on() ? gpu_existing(device) : NULL;
  if (gpu == NULL) {
    snprintf(thread_texts()->graph, sizeof thread_texts()->graph, "memprof's hook does not serve this process: run it under `memprof record`");
    return MEMPROF_NOT_ACTIVE;
  }
  lock_take(&gpu->lock);
  pool_sweep(gpu);  // frees the addresses of shapes that have ended
  const int result = open_shape(gpu, number, name, pool0, pool1);
  lock_give(&gpu->lock);
  return result;
}

int memprof_graph_usage(int device, uint32_t number, struct memprof_graph_usage *usage) {
  *usage = (struct memprof_graph_usage){0};
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return 0;
  const struct graph_memory *memory = find(gpu, number);
  if (memory != NULL) {
    usage->physical = graph_memory_bytes(memory);
    for (const struct graph_range *range = memory->ranges; range != NULL; range = range->next) usage->ranges++;
    usage->addresses = (usage->ranges + 1) * memory->reservation;
  }
  lock_give(&gpu->lock);
  return memory != NULL;
}

uint64_t memprof_graph_extent(int device, uint64_t pool0, uint64_t pool1) {
  struct gpu *gpu = gpu_lock(device);
  if (gpu == NULL) return 0;
  const struct pool *pool = pool_find(gpu, pool0, pool1);
  const uint64_t extent = pool == NULL || pool->range == NULL ? 0 : pool->range->extent;
  lock_give(&gpu->lock);
  return extent;
}
