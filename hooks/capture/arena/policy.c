// policy.c - see policy.h.
#include "arena/policy.h"

#include "arena/reclaim.h"
#include "base/options.h"
#include "device/captures.h"

void policy_of(const struct arena *arena, struct bfc_arena_policy *out) {
  const struct bfc_arena kind = {
      .other_stream = arena->stream != NULL,
      .pool = arena->home != NULL,
      .tag = arena->tag != NULL,
      .small = arena->small,
      .graphs = arena->home != NULL && arena->home->range != NULL,
      .total = arena->gpu->vmm.total,
      .granularity = arena->gpu->vmm.granularity,
  };
  bfc_policy_for_arena(&options_get()->policy, &kind, out);
}

// Kernels may still be running on what was freed in stream order, so the device is waited for,
// once a request.
static bool try_unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  struct gpu *gpu = arena->gpu;
  if (reclaimable_within(arena, addr, bytes) != bytes || !captures_hold()) return false;
  if (!gpu->waited) {
    gpu->stats.syncs++;
    gpu->waited = driver_synchronize(gpu->vmm.device);
  }
  captures_let();
  if (!gpu->waited) return false;
  const size_t first = vmm_find(&arena->vmm, addr), last = vmm_find(&arena->vmm, addr + bytes);
  vmm_release(&arena->vmm, first, last);
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

bool (*policy_try_unmap(const struct bfc_arena_policy *policy))(void *, uint64_t, uint64_t) { return policy->unmaps ? try_unmap : NULL; }
