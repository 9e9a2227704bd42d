// arena_policy.c - which part of a policy an arena gets. See policy.h.
#include "bfc/policy.h"

// Bytes of a handle where nothing else is chosen: large enough to be mapped quickly, small enough to be unmapped
// in part.
#define USUAL_HANDLE ((uint64_t)32 << 20)
// Bytes of a page with growth pages, and of its handle.
#define USUAL_PAGE ((uint64_t)4 << 20)
// Least bytes of a handle of a tag: its memory is paused as a whole, which takes less time in large handles.
#define TAGGED_HANDLE ((uint64_t)256 << 20)
// Bytes of each reservation of addresses, but for arenas of the default stream outside of pools and tags.
#define OTHER_RESERVATION ((uint64_t)16 << 30)

// Pages can be unmapped one by one only where each has a handle of its own.
static uint64_t handle_of(const struct bfc_policy *policy, const struct bfc_arena *arena) {
  if (arena->tag) return policy->handle > TAGGED_HANDLE ? policy->handle : TAGGED_HANDLE;
  if (policy->handle > 0) return policy->handle;
  if (!arena->pool && policy->growth == BFC_PAGES) return arena->granularity > USUAL_PAGE ? arena->granularity : USUAL_PAGE;
  const bool by_page = policy->growth == BFC_NEEDED || policy->trim != BFC_TRIM_NEVER;
  return !arena->pool && by_page ? arena->granularity : USUAL_HANDLE;
}

// The greatest power of two that is not above x, which is positive.
static uint64_t power_below(uint64_t x) { return (uint64_t)1 << (63 - __builtin_clzll(x)); }

// Why each arena gets what it gets is in ForArena of bfc/arena_policy.go.
void bfc_policy_for_arena(const struct bfc_policy *policy, const struct bfc_arena *arena, struct bfc_arena_policy *out) {
  const bool apart = arena->pool || arena->tag;
  *out = (struct bfc_arena_policy){
      .policy = *policy,
      .reservation = OTHER_RESERVATION < arena->total ? OTHER_RESERVATION : arena->total,
      .unmaps = !apart && (policy->growth == BFC_NEEDED || policy->growth == BFC_PAGES),
      .fine = policy->handle == 0 && !arena->tag,
  };
  struct bfc_policy *own = &out->policy;
  own->handle = handle_of(policy, arena);
  if (apart || arena->other_stream) {
    if (apart || policy->growth != BFC_PAGES) own->growth = BFC_NEEDED;
    own->step = own->headroom = 0;
    own->limit = UINT64_MAX;
  } else {
    out->reservation = arena->total;
    if (own->limit == 0) own->limit = arena->total;
  }
  out->page = arena->granularity;
  if (own->growth == BFC_PAGES) {  // each page has a handle of its own
    const uint64_t page = power_below(own->handle);
    if (page > out->page) out->page = page;
    own->handle = out->page;
    out->fine = false;
  }
  if (apart) {
    own->trim = BFC_TRIM_NEVER;
    own->idle_ns = 0;
    own->placement = BFC_PLACEMENT_BEST_FIT;
  }
  if (arena->graphs) own->split = BFC_GRANULE;
  if (!arena->small) own->small_arenas = 0;
}

bool bfc_policy_in_small_arena(const struct bfc_policy *policy, uint64_t size, bool pool, bool tag) {
  return size < policy->small_arenas && !pool && !tag;
}

struct bfc_options bfc_policy_heap(const struct bfc_policy *policy) {
  return (struct bfc_options){
      .limit = policy->limit,
      .headroom = policy->headroom,
      .growth = policy->growth,
      .step = policy->step,
      .split = policy->split,
      .notes = policy->trim != BFC_TRIM_NEVER,
      .planned = policy->placement == BFC_PLACEMENT_PLANNED,
  };
}
