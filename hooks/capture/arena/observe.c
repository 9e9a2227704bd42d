// observe.c - see observe.h. While an observer runs, its CUDA calls are the hook's own: they are not the
// job's, and must not wait for the device's lock, which is held here.
#include "arena/observe.h"

#include <stdatomic.h>

#include "arena/arena.h"
#include "device/own_calls.h"
#include "memprof.h"

typedef void mapping_observer(int device, void *stream, uint64_t addr, uint64_t bytes, int mapped);
typedef void reuse_observer(int device, uint64_t addr);

static mapping_observer *_Atomic of_mappings;
static reuse_observer *_Atomic of_reuse;

void memprof_set_mapping_observer(mapping_observer *observer) { atomic_store(&of_mappings, observer); }

void memprof_set_reuse_observer(reuse_observer *observer) { atomic_store(&of_reuse, observer); }

void observe_mapping(const struct arena *arena, uint64_t addr, uint64_t bytes, bool mapped) {
  mapping_observer *observer = atomic_load_explicit(&of_mappings, memory_order_acquire);
  if (observer == NULL) return;
  own_calls_begin();
  observer(arena->gpu->vmm.device, arena->stream, addr, bytes, mapped);
  own_calls_end();
}

void observe_reusable(const struct arena *arena, uint64_t addr) {
  reuse_observer *observer = atomic_load_explicit(&of_reuse, memory_order_acquire);
  if (observer == NULL) return;
  own_calls_begin();
  observer(arena->gpu->vmm.device, addr);
  own_calls_end();
}
