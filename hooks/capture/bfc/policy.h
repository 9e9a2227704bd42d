// policy.h - what a user chooses of the allocator, and which part of it an arena gets.
//
// The twin of bfc/policy.go and arena_policy.go: the same presets, and the same rule.
// bfc/testdata/policies.txt has the texts that both produce.
#ifndef MEMPROF_BFC_POLICY_H
#define MEMPROF_BFC_POLICY_H

#include "bfc/bfc.h"

enum bfc_preset {
  BFC_CLASSIC,  // growth double, classic split
  BFC_COMPACT,  // growth pages, always split: moves pages, never data
};

enum bfc_trim { BFC_TRIM_NEVER, BFC_TRIM_ITERATION, BFC_TRIM_IDLE };

struct bfc_policy {
  enum bfc_preset preset;
  uint64_t limit;     // bytes a main arena may map; 0 = the device's memory
  uint64_t headroom;  // bytes of the device that a growth beyond the request leaves free
  uint64_t handle;    // bytes of a CUDA handle; 0 = as bfc_policy_for_arena says
  enum bfc_trim trim;
  uint64_t idle_ns;  // positive with BFC_TRIM_IDLE and else 0
};

// What decides which part of a policy an arena gets.
struct bfc_arena {
  bool other_stream;     // than the device's default stream
  bool pool;             // of a private pool: of CUDA graphs, or a MemPool
  bool tag;              // of a tag, whose memory is paused as a whole
  bool graphs;           // over a range of a graph memory, which is a pool
  uint64_t total;        // bytes of the device's memory
  uint64_t granularity;  // bytes of the device's page
};

struct bfc_arena_policy {
  struct bfc_options options;  // of its allocator
  enum bfc_trim trim;
  uint64_t idle_ns;
  uint64_t handle;       // positive
  uint64_t page;         // bytes of its page, a power of two: of the device's, or larger
  uint64_t reservation;  // bytes of addresses that the arena reserves at a time
  bool fine;             // handles are larger than that for large maps, and smaller where little of the device is free
};

// The default: preset classic, 2 GiB of headroom.
extern const struct bfc_policy bfc_policy_default;

// Gives a policy a value: preset=classic|compact, limit=BYTES, headroom=BYTES, handle=BYTES, trim=never|iteration|idle:NS.
// False: `key` is none of these, or `value` is none of its values; the policy is as it was.
bool bfc_policy_set(struct bfc_policy *policy, const char *key, const char *value);

// The part of the policy that an arena gets.
void bfc_policy_for_arena(const struct bfc_policy *policy, const struct bfc_arena *arena, struct bfc_arena_policy *out);

// That as it stands in an arena event: "growth=needed split=always trim=never headroom=0".
void bfc_policy_fields(const struct bfc_arena_policy *policy, char *text, size_t size);

#endif
