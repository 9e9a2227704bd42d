// kv.c - what an engine says of its memory for keys and values, as events.
//
// A language model's server keeps, for every token of every sequence that it works on, the keys
// and values of all layers. How it divides memory among sequences is its own business and goes on
// above the allocator, inside tensors that live as long as the server. So the engine, or what is
// put around it, says so itself, and its words become events in the order of the calls. They are
// numbers of slots and blocks, not addresses, and no arena has them.
//
// What the numbers add up to is worked out from the trace. Here is only what tells one cache from
// the next, as a device can have many, one after the other.
#include <stdatomic.h>
#include <stdio.h>

#include "base/hook.h"
#include "memprof.h"
#include "spool/spool.h"

static _Atomic(uint64_t) caches;  // numbers given, from 1

static bool recorded(uint64_t cache) { return cache != 0 && hook_on() && spool_started(); }

static void told(enum memprof_kind kind, uint64_t cache, int64_t sequence, uint64_t requested, uint64_t provided, uint32_t context) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .stream = (int64_t)cache,
      .addr = (uint64_t)sequence,
      .requested = requested,
      .provided = provided,
      .context = context,
  });
}

// The string of one field with a number.
static uint32_t field(const char *name, uint64_t number) {
  char text[48];
  snprintf(text, sizeof text, "%s=%llu", name, (unsigned long long)number);
  return spool_string(text);
}

uint64_t memprof_kv_cache(int device, uint64_t slots, uint64_t token_bytes, const char *fields) {
  if (!hook_on() || !spool_started()) return 0;
  const uint64_t cache = atomic_fetch_add(&caches, 1) + 1;
  spool_write(&(struct spool_event){
      .kind = MEMPROF_KV_CACHE,
      .device = device,
      .arena = MEMPROF_NO_ARENA,
      .stream = (int64_t)cache,
      .requested = slots,
      .provided = token_bytes,
      .context = spool_string(fields),
  });
  return cache;
}

void memprof_kv_reserve(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, uint64_t prompt) {
  if (recorded(cache)) told(MEMPROF_KV_RESERVE, cache, sequence, first, slots, prompt == 0 ? 0 : field("prompt", prompt));
}

void memprof_kv_share(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, int64_t position) {
  if (recorded(cache)) told(MEMPROF_KV_SHARE, cache, sequence, first, slots, position < 0 ? 0 : field("position", (uint64_t)position));
}

void memprof_kv_append(uint64_t cache, int64_t sequence, uint64_t tokens) {
  if (recorded(cache)) told(MEMPROF_KV_APPEND, cache, sequence, tokens, 0, 0);
}

void memprof_kv_append_many(uint64_t cache, size_t count, const int64_t *sequences, const uint64_t *tokens) {
  if (!recorded(cache)) return;
  for (size_t i = 0; i < count; i++) told(MEMPROF_KV_APPEND, cache, sequences[i], tokens[i], 0, 0);
}

void memprof_kv_free(uint64_t cache, int64_t sequence, uint64_t kept) {
  if (recorded(cache)) told(MEMPROF_KV_FREE, cache, sequence, kept, 0, 0);
}

void memprof_kv_drop(uint64_t cache, uint64_t first, uint64_t slots) {
  if (recorded(cache) && slots > 0) told(MEMPROF_KV_FREE, cache, MEMPROF_KV_ALL, first, slots, 0);
}

void memprof_kv_end(uint64_t cache) {
  if (recorded(cache)) told(MEMPROF_KV_FREE, cache, MEMPROF_KV_ALL, 0, 0, 0);
}
