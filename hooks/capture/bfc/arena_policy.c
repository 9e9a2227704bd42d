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
// The others reserve so many times the device's memory: a page whose address somebody may still read serves another address.
#define MAIN_RESERVATIONS ((uint64_t)2)

// Pages can be unmapped one by one only where each has a handle of its own.
static uint64_t handle_of(const struct bfc_policy *policy, const struct bfc_arena *arena) {
  if (arena->tag) return policy->handle > TAGGED_HANDLE ? policy->handle : TAGGED_HANDLE;
  if (policy->handle > 0) return policy->handle;
  if (arena->pool) return USUAL_HANDLE;
  if (policy->preset == BFC_COMPACT) return arena->granularity > USUAL_PAGE ? arena->granularity : USUAL_PAGE;
  return policy->trim == BFC_TRIM_NEVER ? USUAL_HANDLE : arena->granularity;
}

// The greatest power of two that is not above x, which is positive.
static uint64_t power_below(uint64_t x) { return (uint64_t)1 << (63 - __builtin_clzll(x)); }

// Why each arena gets what it gets is in ForArena of bfc/arena_policy.go.
void bfc_policy_for_arena(const struct bfc_policy *policy, const struct bfc_arena *arena, struct bfc_arena_policy *out) {
  const bool apart = arena->pool || arena->tag, compact = policy->preset == BFC_COMPACT;
  *out = (struct bfc_arena_policy){
      .options = {.limit = UINT64_MAX, .growth = BFC_NEEDED, .always_split = compact || arena->graphs},
      .handle = handle_of(policy, arena),
      .page = arena->granularity,
      .reservation = OTHER_RESERVATION < arena->total ? OTHER_RESERVATION : arena->total,
      .fine = policy->handle == 0 && !arena->tag,
  };
  if (!apart) {
    out->trim = policy->trim;
    out->idle_ns = policy->idle_ns;
    out->options.trims = policy->trim == BFC_TRIM_ITERATION;
  }
  if (!apart && !arena->other_stream) {
    out->options.growth = BFC_DOUBLE;
    out->options.headroom = policy->headroom;
    out->options.limit = policy->limit > 0 ? policy->limit : arena->total;
    out->reservation = MAIN_RESERVATIONS * (arena->total < UINT64_MAX / MAIN_RESERVATIONS ? arena->total : UINT64_MAX / MAIN_RESERVATIONS);
  }
  if (apart || !compact) return;
  out->options.growth = BFC_PAGES;  // each page has a handle of its own
  const uint64_t page = power_below(out->handle);
  if (page > out->page) out->page = page;
  out->handle = out->page;
}
