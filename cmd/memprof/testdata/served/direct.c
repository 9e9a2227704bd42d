// direct.c - jobs of requests of the hook itself, in pools and out of them, beside those by the driver's calls.
#include "served.h"

void take_direct(struct block *block, uint64_t bytes, int stream, uint64_t pool) {
  if (pool != 0) hook_pool_begin(0, 0, pool);
  *block = (struct block){.bytes = bytes, .stream = stream, .own = true};
  block->addr = (uintptr_t)hook_malloc(bytes, 0, streams[stream], 0, pool);
  refused += block->addr == 0;
  if (pool != 0) hook_pool_end(0, 0, pool);
}

static void give_direct(struct block *block) {
  if (block->addr != 0) hook_free((void *)(uintptr_t)block->addr, block->bytes, 0, streams[block->stream]);
  *block = (struct block){0};
}

// Slots from BLOCKS-POOLED on are of a pool, which each round opens and releases.
enum { POOLED = 8 };

void direct(uint64_t seed) {
  uint64_t random = seed;
  for (uint64_t round = 0; round < 10; round++) {
    uint64_t changes = below(&random, 4) == 0 ? next_random(&random) : seed, holds = 0;
    for (int i = 0; i < 120; i++) {
      const int at = (int)below(&changes, BLOCKS);
      const uint64_t bytes = size_of(&changes, 0), stream = below(&changes, STREAMS), kind = below(&changes, 6);
      struct block *block = &blocks[at];
      if (block->bytes == 0) {
        take_direct(block, bytes, (int)stream, at < BLOCKS - POOLED ? 0 : round + 1);
        holds += at >= BLOCKS - POOLED;
      } else if (kind == 0 && block->addr != 0) {
        hook_use((void *)(uintptr_t)block->addr, streams[stream]);
      } else {
        give_direct(block);
      }
    }
    for (int i = BLOCKS - POOLED; i < BLOCKS; i++) give_direct(&blocks[i]);
    for (; holds > 0; holds--) hook_pool_release(0, 0, round + 1);
    if (below(&random, 8) == 0) hook_empty_cache(0);
    mark();
  }
  for (int i = 0; i < BLOCKS; i++) give_direct(&blocks[i]);
}

static uint64_t holds[POOLS];

void take_pooled(struct block *block, uint64_t bytes, int stream, uint64_t pool) {
  take_direct(block, bytes, stream, pool);
  holds[pool - 1]++;
}

void release_pool(uint64_t pool) {
  for (; holds[pool - 1] > 0; holds[pool - 1]--) hook_pool_release(0, 0, pool);
}

static void take_mixed(struct block *block, uint64_t *random) {
  const uint64_t bytes = size_of(random, 0), how = below(random, 8), stream = below(random, STREAMS), which = below(random, POOLS);
  if (how < 4)
    take_direct(block, bytes, (int)stream, 0);
  else if (how == 4)
    take_pooled(block, bytes, (int)stream, which + 1);
  else
    take(block, bytes, how == 5 ? (int)stream : -1);
}

void give_any(struct block *block) {
  if (block->own)
    give_direct(block);
  else
    give(block);
}

// What a job does now and then between two requests.
static void occasion(uint64_t *random) {
  const uint64_t kind = below(random, 60), which = below(random, POOLS);
  if (kind == 0) mark();
  if (kind == 1) hook_empty_cache(0);
  if (kind >= 2 && kind < 5) release_pool(which + 1);
}

void mixed(uint64_t seed) {
  uint64_t random = seed;
  for (int round = 0; round < 10; round++) {
    uint64_t changes = below(&random, 3) == 0 ? next_random(&random) : seed;
    for (int i = 0; i < 120; i++) {
      struct block *block = &blocks[below(&changes, BLOCKS)];
      const uint64_t stream = below(&changes, STREAMS), kind = below(&changes, 6);
      if (block->bytes == 0)
        take_mixed(block, &changes);
      else if (kind == 0 && block->addr != 0 && block->own)
        hook_use((void *)(uintptr_t)block->addr, streams[stream]);
      else
        give_any(block);
      occasion(&changes);
    }
    mark();
  }
  for (int i = 0; i < BLOCKS; i++) give_any(&blocks[i]);
}
