// kv.c - how an engine divides its KV caches, as events.
//
// A server of a language model keeps the keys and values of every token in a KV cache: large tensors that
// it divides among sequences itself, where the allocator does not see it. So the engine, or an adapter
// around it, reports what it does, and each call becomes an event. Events name slots and blocks, not
// addresses, and belong to no arena.
//
// The hook keeps nothing but the number of the next cache; analysis adds up the events.
#include <stdatomic.h>
#include <stdio.h>

#include "base/hook.h"
#include "memprof.h"
#include "spool/spool.h"

static _Atomic(uint64_t) caches;  // the last number given; the first is 1
static _Atomic(uint64_t) before;  // those up to here are of a recording that has ended

static bool recorded(uint64_t cache) { return cache > atomic_load_explicit(&before, memory_order_relaxed) && hook_on() && spool_started(); }

static void write_event(enum memprof_kind kind, uint64_t cache, int64_t sequence, uint64_t requested, uint64_t provided, uint32_t context) {
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

// The string id of one field with a number.
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
  if (recorded(cache)) write_event(MEMPROF_KV_RESERVE, cache, sequence, first, slots, prompt == 0 ? 0 : field("prompt", prompt));
}

void memprof_kv_share(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, int64_t position) {
  if (recorded(cache)) write_event(MEMPROF_KV_SHARE, cache, sequence, first, slots, position < 0 ? 0 : field("position", (uint64_t)position));
}

void memprof_kv_append(uint64_t cache, int64_t sequence, uint64_t tokens) {
  if (recorded(cache)) write_event(MEMPROF_KV_APPEND, cache, sequence, tokens, 0, 0);
}

void memprof_kv_append_many(uint64_t cache, size_t count, const int64_t *sequences, const uint64_t *tokens) {
  if (!recorded(cache)) return;
  for (size_t i = 0; i < count; i++) write_event(MEMPROF_KV_APPEND, cache, sequences[i], tokens[i], 0, 0);
}

void memprof_kv_free(uint64_t cache, int64_t sequence, uint64_t kept) {
  if (recorded(cache)) write_event(MEMPROF_KV_FREE, cache, sequence, kept, 0, 0);
}

void memprof_kv_swap_out(uint64_t cache, int64_t sequence) {
  if (recorded(cache)) write_event(MEMPROF_KV_FREE, cache, sequence, 0, 0, spool_string("swap=out"));
}

void memprof_kv_swap_in(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots) {
  if (recorded(cache)) write_event(MEMPROF_KV_RESERVE, cache, sequence, first, slots, spool_string("swap=in"));
}

void memprof_kv_drop(uint64_t cache, uint64_t first, uint64_t slots) {
  if (recorded(cache) && slots > 0) write_event(MEMPROF_KV_FREE, cache, MEMPROF_KV_ALL, first, slots, 0);
}

void memprof_kv_end(uint64_t cache) {
  if (recorded(cache)) write_event(MEMPROF_KV_FREE, cache, MEMPROF_KV_ALL, 0, 0, 0);
}

static void stop(void) { atomic_store(&before, atomic_load(&caches)); }

HOOK_PART(.stop = stop);
