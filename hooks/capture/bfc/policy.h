// policy.h - what a user chooses of the allocator, and which part of it an arena gets.
//
// The twin of bfc/policy.go, policy_text.go and arena_policy.go: the same table of dimensions, and
// the same rule. bfc/testdata/policies.txt has the texts that both produce.
#ifndef MEMPROF_BFC_POLICY_H
#define MEMPROF_BFC_POLICY_H

#include "bfc/bfc.h"

enum bfc_trim { BFC_TRIM_NEVER, BFC_TRIM_ITERATION, BFC_TRIM_IDLE, BFC_TRIM_PRESSURE };
enum bfc_placement { BFC_PLACEMENT_BEST_FIT, BFC_PLACEMENT_PLANNED };

struct bfc_policy {
  enum bfc_growth growth;
  uint64_t step;          // bytes, positive with BFC_STEP and else 0
  uint64_t split;         // as bfc_options has it
  uint64_t small_arenas;  // bytes; requests below it have arenas of their own; 0 = none has
  enum bfc_trim trim;
  uint64_t idle_ns;  // positive with BFC_TRIM_IDLE and else 0
  enum bfc_placement placement;
  uint64_t headroom;  // bytes of the device that a growth beyond the request leaves free
  uint64_t limit;     // bytes a main arena may map; 0 = the device's memory
  uint64_t handle;    // bytes of a CUDA handle; 0 = as bfc_policy_for_arena says
};

// What decides which part of a policy an arena gets.
struct bfc_arena {
  bool other_stream;     // than the device's default stream
  bool pool;             // of a private pool: of CUDA graphs, or a MemPool
  bool tag;              // of a tag, whose memory is paused as a whole
  bool small;            // of requests below small_arenas
  bool graphs;           // over a range of a graph memory, which is a pool
  uint64_t total;        // bytes of the device's memory
  uint64_t granularity;  // bytes of the device's page
};

struct bfc_arena_policy {
  struct bfc_policy policy;  // limit is UINT64_MAX for none, and handle is positive
  uint64_t page;             // bytes of its page, a power of two: of the device's, or larger
  uint64_t reservation;      // bytes of addresses that the arena reserves at a time
  bool unmaps;               // it unmaps free pages before it grows
  bool fine;                 // handles are smaller than that where little of the device is free
};

// The preset classic.
extern const struct bfc_policy bfc_policy_classic;

// Gives a policy the value of a dimension. False: `key` names none, or `value` is none of its
// values; the policy is as it was.
bool bfc_policy_set(struct bfc_policy *policy, const char *key, const char *value);

// The policy as it stands in an arena event: "growth=needed split=always ...".
void bfc_policy_fields(const struct bfc_policy *policy, char *text, size_t size);

// The part of the policy that an arena gets.
void bfc_policy_for_arena(const struct bfc_policy *policy, const struct bfc_arena *arena, struct bfc_arena_policy *out);

// Whether a request of that size is served from an arena of small requests.
bool bfc_policy_in_small_arena(const struct bfc_policy *policy, uint64_t size, bool pool, bool tag);

// The options of an allocator under the policy.
struct bfc_options bfc_policy_heap(const struct bfc_policy *policy);

#endif
