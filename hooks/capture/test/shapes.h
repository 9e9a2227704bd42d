// shapes.h - shapes of one graph memory of device 0, as their tests use them.
#ifndef MEMPROF_TEST_SHAPES_H
#define MEMPROF_TEST_SHAPES_H

#include "gpu.h"
#include "memprof.h"
#include "trail.h"

static uint32_t memory;

static inline void *take(uint64_t shape, uint64_t bytes) {
  void *ptr = memprof_malloc_in_pool(bytes, 0, NULL, 0, shape);
  CHECK(ptr != NULL);
  return ptr;
}

static inline void drop(void *ptr) { memprof_free(ptr, 0, 0, NULL); }

static inline int try_shape(uint64_t shape) {
  char name[32];
  snprintf(name, sizeof name, "bs%llu", (unsigned long long)shape);
  return memprof_graph_shape(0, memory, name, 0, shape);
}

static inline void open_shape(uint64_t shape) { CHECK_EQUAL(try_shape(shape), 0); }

static inline void release_shape(uint64_t shape) { memprof_release_pool(0, 0, shape); }

static inline struct memprof_graph_usage usage(void) {
  struct memprof_graph_usage usage;
  CHECK(memprof_graph_usage(0, memory, &usage));
  return usage;
}

static inline uint64_t extent(uint64_t shape) { return memprof_graph_extent(0, 0, shape); }

static inline void begin(uint64_t reservation) {
  gpu_start();
  memory = memprof_graph_memory_open(0, reservation);
  CHECK(memory != 0);
}

// What the trace and the device say must be what the statistics say.
static inline struct trail audited(bool device_too) {
  struct memprof_stats stats;
  memprof_get_stats(0, &stats);
  const struct trail trail = trail_read(getpid(), 0);
  const struct audit audit = trail_audit(&trail);
  CHECK_EQUAL(audit.reserved, stats.reserved_bytes.current);
  CHECK_EQUAL(audit.live, stats.allocated_bytes.current);
  CHECK_EQUAL(usage().physical, stats.reserved_bytes.current);
  if (device_too) CHECK_EQUAL(GiB - gpu_free(), audit.reserved);
  return trail;
}

#endif
