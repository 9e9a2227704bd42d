// policy.c - see policy.h.
#include "arena/policy.h"

#include <stdio.h>
#include <string.h>

#include "arena/reclaim.h"
#include "base/options.h"
#include "device/captures.h"

#define OTHER_RESERVATION ((uint64_t)16 << 30)
// Large enough to map quickly, small enough to give back in part.
#define USUAL_HANDLE ((uint64_t)32 << 20)
// What is paused as a whole is quicker in large handles.
#define TAGGED_HANDLE ((uint64_t)256 << 20)

static bool apart(const struct arena *arena) { return arena->home != NULL || arena->tag != NULL; }

static bool trimmed(const struct arena *arena) { return !apart(arena) && options_get()->trim != TRIM_NEVER; }

// Granules can only be taken or trimmed one by one where each has a handle of its own.
static uint64_t handle_of(const struct arena *arena) {
  const struct options *wanted = options_get();
  const uint64_t asked = wanted->handle;
  if (arena->tag != NULL) return asked < TAGGED_HANDLE ? TAGGED_HANDLE : asked;
  if (asked != 0) return asked;
  return !apart(arena) && (wanted->growth == BFC_NEEDED || wanted->trim != TRIM_NEVER) ? arena->gpu->vmm.granularity : USUAL_HANDLE;
}

void policy_of(const struct arena *arena, struct policy *out) {
  const struct options *wanted = options_get();
  const uint64_t total = arena->gpu->vmm.total;
  *out = (struct policy){
      .bfc = {.limit = UINT64_MAX, .growth = BFC_NEEDED, .split = wanted->split, .notes = trimmed(arena), .planned = wanted->planned && !apart(arena)},
      .reservation = OTHER_RESERVATION < total ? OTHER_RESERVATION : total,
      .handle = handle_of(arena),
  };
  // The largest capture is what all of a graph memory takes: what it hands out in excess counts
  // for every shape.
  if (arena->home != NULL && arena->home->range != NULL) out->bfc.split = BFC_GRANULE;
  if (apart(arena) || arena->stream != NULL) return;
  out->bfc.growth = wanted->growth;
  out->bfc.step = wanted->step;
  out->bfc.headroom = wanted->headroom;
  out->bfc.limit = wanted->limit != 0 ? wanted->limit : total;
  out->reservation = total;
}

bool policy_small(uint64_t size, bool pooled, const struct tag *tag) { return size < options_get()->small && !pooled && tag == NULL; }

void policy_growth_text(const struct bfc_options *options, char *text, size_t size) {
  static const char *const growths[] = {[BFC_DOUBLE] = "double", [BFC_NEEDED] = "needed", [BFC_NONE] = "none", [BFC_STEP] = "step:"};
  snprintf(text, size, "growth=%s", growths[options->growth]);
  const size_t length = strlen(text);
  if (options->growth == BFC_STEP) snprintf(text + length, size - length, "%llu", (unsigned long long)options->step);
}

void policy_rest_text(const struct arena *arena, const struct bfc_options *options, char *text, size_t size) {
  static const char *const trims[] = {[TRIM_NEVER] = "never", [TRIM_ITERATION] = "iteration", [TRIM_IDLE] = "idle:", [TRIM_PRESSURE] = "pressure"};
  const struct options *wanted = options_get();
  char split[32] = "classic", idle[32] = "", small[48] = "";
  const enum trim trim = trimmed(arena) ? wanted->trim : TRIM_NEVER;
  if (options->split == BFC_GRANULE) snprintf(split, sizeof split, "always");
  if (options->split != 0 && options->split != BFC_GRANULE) snprintf(split, sizeof split, "%llu", (unsigned long long)options->split);
  if (trim == TRIM_IDLE) snprintf(idle, sizeof idle, "%llu", (unsigned long long)wanted->idle_ns);
  if (arena->small) snprintf(small, sizeof small, " below=%llu", (unsigned long long)wanted->small);
  snprintf(text, size, " split=%s trim=%s%s%s%s", split, trims[trim], idle, options->planned ? " placement=planned" : "", small);
}

// Kernels may still be running on what was freed in stream order, so the device is waited for,
// once a request.
static bool take(void *self, uint64_t addr, uint64_t bytes) {
  struct arena *arena = self;
  struct gpu *gpu = arena->gpu;
  if (capturing() || reclaimable_within(arena, addr, bytes) != bytes) return false;
  if (!gpu->waited) {
    gpu->stats.syncs++;
    gpu->waited = driver_synchronize(gpu->vmm.device);
  }
  if (!gpu->waited) return false;
  const size_t first = vmm_find(&arena->vmm, addr), last = vmm_find(&arena->vmm, addr + bytes);
  vmm_release(&arena->vmm, first, last);
  arena_mapping(arena, MEMPROF_UNMAP, addr, bytes, bytes, (int64_t)(last - first));
  return true;
}

bool (*policy_take(const struct arena *arena))(void *, uint64_t, uint64_t) {
  return !apart(arena) && options_get()->growth == BFC_NEEDED ? take : NULL;
}
