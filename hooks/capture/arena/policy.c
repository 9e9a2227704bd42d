// policy.c - see policy.h.
#include "arena/policy.h"

#include <stdatomic.h>

#include "arena/reclaim.h"
#include "base/options.h"
#include "device/captures.h"

void policy_of(const struct arena *arena, struct bfc_arena_policy *out) {
  const struct bfc_arena kind = {
      .other_stream = arena->stream != NULL,
      .pool = arena->home != NULL,
      .tag = arena->tag != NULL,
      .graphs = arena->home != NULL && arena->home->range != NULL,
      .total = arena->gpu->vmm.total,
      .granularity = arena->gpu->vmm.granularity,
  };
  bfc_policy_for_arena(&options_get()->policy, &kind, out);
  // Slack of a chunk would make a job that repeats grow once more after its first resume.
  if (arena->tag != NULL && atomic_load(&arena->tag->exact)) out->options.always_split = true;
}

bool policy_wait(void *self) {
  struct gpu *gpu = ((struct arena *)self)->gpu;
  if (!captures_hold()) return false;
  if (!gpu->waited) {
    gpu->stats.syncs++;
    gpu->waited = driver_synchronize(gpu->vmm.device);
    if (gpu->waited) fence_waited(gpu);
  }
  captures_let();
  return gpu->waited;
}

// Waits until what was queued before loans of that number is over on the arena's stream, and on all others that have arenas. Others are
// waited for only for a while: then the order of the arena's stream has to do, as for a block that torch's own allocator reuses.
static bool wait_loan(struct arena *arena, uint64_t number) {
  if (!lent_wait(arena, number)) return false;
  if (!fence_alone(arena)) fence_wait_for(arena->gpu, lent_fence(arena, number));
  return true;
}

bool policy_wait_lent(void *self, uint64_t number) {
  struct arena *arena = self;
  if (!captures_hold()) return false;
  const bool over = wait_loan(arena, number) || policy_wait(arena);
  captures_let();
  return over;
}

// Notes what is queued before the loans of a request. Returns its number.
static uint64_t loans_begin(struct arena *arena) {
  const uint64_t number = lent_record(arena);
  if (fence_alone(arena)) return number;
  const uint64_t fence = fence_next(arena->gpu);
  lent_set_fence(arena, number, fence);
  return number;
}

// Kernels may still be running on what was freed in stream order, so the device is waited for.
static bool try_unmap(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  if (reclaimable_within(arena, addr, bytes) != bytes || !policy_wait(arena)) return false;
  const size_t first = vmm_find(&arena->vmm, addr), last = vmm_find(&arena->vmm, addr + bytes);
  vmm_release(&arena->vmm, first, last);
  arena->paid += bytes;
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

// Lends the pages to what the request maps: their mappings stay, so that nothing is waited for.
static bool lend(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  if (reclaimable_within(arena, addr, bytes) != bytes || !captures_hold()) return false;
  if (!arena->lending) arena->vmm.lent = loans_begin(arena);
  arena->lending = true;
  captures_let();
  const size_t first = vmm_find(&arena->vmm, addr), last = vmm_find(&arena->vmm, addr + bytes);
  if (!vmm_lend(&arena->vmm, first, last)) return false;
  arena->paid += bytes;
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

bool (*policy_try_unmap(const struct bfc_arena_policy *policy))(void *, uint64_t, uint64_t) {
  if (policy->options.growth != BFC_PAGES) return NULL;
  return policy_lends(policy) ? lend : try_unmap;
}

bool policy_lends(const struct bfc_arena_policy *policy) { return policy->options.growth == BFC_PAGES && driver_get()->lends; }
