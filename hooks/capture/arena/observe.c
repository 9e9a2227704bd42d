// observe.c - see observe.h. While an observer runs, its CUDA calls are the hook's own: they are not the
// job's, and must not wait for the device's lock, which this thread has. NCCL's registers memory.
#include "arena/observe.h"

#include <stdatomic.h>

#include "arena/arena.h"
#include "device/own_calls.h"
#include "memprof.h"

typedef void mapping_observer(const struct memprof_mapping *mapping);
typedef void reuse_observer(int device, uint64_t addr);

static mapping_observer *_Atomic of_mappings;
static reuse_observer *_Atomic of_reuse;

void memprof_set_mapping_observer(mapping_observer *observer) { atomic_store(&of_mappings, observer); }

void memprof_set_reuse_observer(reuse_observer *observer) { atomic_store(&of_reuse, observer); }

// Returns what calls_end takes.
static const struct gpu *calls_begin(const struct gpu *gpu) {
  const struct gpu *held = gpu_held;  // not NULL: in a call of a source
  own_calls_begin();
  gpu_held = gpu;
  return held;
}

static void calls_end(const struct gpu *held) {
  gpu_held = held;
  own_calls_end();
}

void observe_mapping(const struct arena *arena, uint64_t addr, uint64_t bytes, bool mapped) {
  mapping_observer *observer = atomic_load_explicit(&of_mappings, memory_order_acquire);
  if (observer == NULL) return;
  const struct memprof_mapping mapping = {
      .device = arena->gpu->vmm.device,
      .stream = arena->stream,
      .pool = {arena->pool[0], arena->pool[1]},
      .addr = addr,
      .bytes = bytes,
      .mapped = mapped,
      .segment = arena->memory.kind == &memory_source,
  };
  const struct gpu *held = calls_begin(arena->gpu);
  observer(&mapping);
  calls_end(held);
}

void observe_reusable(const struct arena *arena, uint64_t addr) {
  reuse_observer *observer = atomic_load_explicit(&of_reuse, memory_order_acquire);
  if (observer == NULL) return;
  const struct gpu *held = calls_begin(arena->gpu);
  observer(arena->gpu->vmm.device, addr);
  calls_end(held);
}
