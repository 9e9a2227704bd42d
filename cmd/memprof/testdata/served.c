// served.c - jobs on the simulated GPU, made up from a seed, whose memory the hook serves through
// the driver's own calls (record --serve).
//
//   served comb SEED REST      blocks of which every other is freed, and larger ones, over and over
//   served stash SEED REST     one such job, whatever the seed: 33 GiB stay, 11 blocks of 4 GiB come and
//                              five of them go, and 16 GiB come back that were put away
//   served random SEED REST    requests and frees on several streams, nearly the same in each iteration
//   served direct SEED REST    requests of the hook itself on several streams and in pools; blocks are also
//                              used on other streams, and pools and the cache released
//   served mixed SEED REST     requests of all kinds in one job; pools that outlive rounds and are released with live
//                              blocks, frees in any order, marks and emptied caches in between
//   served results SEED REST   the same as random on small blocks, with contents that are written, copied,
//                              compared and summed up
//
// If REST is 1, it waits after each iteration until the hook has unmapped, and mapped ahead, what the policy wants; if 0,
// not at all. It prints how many requests were refused and, of results, the sum of
// all contents it has read: equal for equal seeds, whatever serves the memory. Exit 1: a block does
// not hold what was written there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memprof.h"

#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)

enum { BLOCKS = 48, STREAMS = 3, LARGEST = 6 << 20 };

struct block {
  uint64_t addr, bytes;
  int stream;  // -1: of cuMemAlloc, which no stream orders
  bool own;    // a request of the hook itself
  unsigned char *copy;
};

static int (*cu_alloc)(uint64_t *, size_t), (*cu_free)(uint64_t);
static int (*cu_alloc_async)(uint64_t *, size_t, void *), (*cu_free_async)(uint64_t, void *);
static int (*cu_set)(uint64_t, unsigned char, size_t), (*cu_copy)(uint64_t, uint64_t, size_t);
static int (*cu_write)(uint64_t, const void *, size_t), (*cu_read)(void *, uint64_t, size_t);
static void (*hook_iteration)(const char *);
static int (*hook_trimming)(void);
static size_t (*hook_empty_cache)(int);
static void *(*hook_malloc)(size_t, int, void *, uint64_t, uint64_t);
static void (*hook_free)(void *, size_t, int, void *);
static void (*hook_use)(void *, void *);
static void (*hook_pool_begin)(int, uint64_t, uint64_t), (*hook_pool_end)(int, uint64_t, uint64_t), (*hook_pool_release)(int, uint64_t, uint64_t);

static void *streams[STREAMS];
static struct block blocks[BLOCKS];
static uint64_t refused, sum = 0xcbf29ce484222325u;
static bool resting;

static void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "served: no %s\n", name);
    exit(8);
  }
  memcpy(function, &symbol, sizeof symbol);
}

static void start(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
  int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*create)(void **, unsigned);
  if (library == NULL) exit(8);
  find(library, "cuInit", &init), find(library, "cuDevicePrimaryCtxRetain", &retain), find(library, "cuCtxSetCurrent", &set);
  find(library, "cuStreamCreate", &create);
  find(library, "cuMemAlloc_v2", &cu_alloc), find(library, "cuMemFree_v2", &cu_free);
  find(library, "cuMemAllocAsync", &cu_alloc_async), find(library, "cuMemFreeAsync", &cu_free_async);
  find(library, "cuMemsetD8_v2", &cu_set), find(library, "cuMemcpyDtoD_v2", &cu_copy);
  find(library, "cuMemcpyHtoD_v2", &cu_write), find(library, "cuMemcpyDtoH_v2", &cu_read);
  find(RTLD_DEFAULT, "memprof_iteration", &hook_iteration);
  find(RTLD_DEFAULT, "memprof_trimming", &hook_trimming);
  find(RTLD_DEFAULT, "memprof_empty_cache", &hook_empty_cache);
  find(RTLD_DEFAULT, "memprof_malloc_in_pool", &hook_malloc), find(RTLD_DEFAULT, "memprof_free", &hook_free);
  find(RTLD_DEFAULT, "memprof_record_stream", &hook_use);
  find(RTLD_DEFAULT, "memprof_pool_begin", &hook_pool_begin), find(RTLD_DEFAULT, "memprof_pool_end", &hook_pool_end);
  find(RTLD_DEFAULT, "memprof_release_pool", &hook_pool_release);
  if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0) exit(8);
  for (int i = 1; i < STREAMS; i++)  // the first is the default one
    if (create(&streams[i], 1) != 0) exit(8);
}

// Splitmix64: seeds that follow each other have nothing in common.
static uint64_t next_random(uint64_t *state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

static uint64_t below(uint64_t *state, uint64_t bound) { return next_random(state) % bound; }

static void mark(void) {
  hook_iteration("");
  while (resting && hook_trimming()) usleep(200);
}

static void take(struct block *block, uint64_t bytes, int stream) {
  *block = (struct block){.bytes = bytes, .stream = stream};
  const int error = stream < 0 ? cu_alloc(&block->addr, bytes) : cu_alloc_async(&block->addr, bytes, streams[stream]);
  if (error == 0) return;
  refused++;
  block->addr = 0;
}

static void give(struct block *block) {
  const int error = block->addr == 0 ? 0 : block->stream < 0 ? cu_free(block->addr) : cu_free_async(block->addr, streams[block->stream]);
  if (error != 0) exit(2);
  free(block->copy);
  *block = (struct block){0};
}

// What lives all along, and what is put away while blocks of 4 GiB come. Of these every other one
// is freed before the first comes back.
struct comb {
  uint64_t resident, stash;
  int count, odd, marks;
  uint64_t more;  // by which the blocks of each cycle are larger
  enum { ALL_ALONG, AT_ONCE, BEHIND_THE_FIRST } away;  // since when the stash is: before the blocks come, or after one
};

static void run_comb(const struct comb *comb) {
  struct block *kept = &blocks[0], *away = &blocks[1], *teeth = &blocks[2];
  take(kept, comb->resident, -1);
  if (comb->away != ALL_ALONG) take(away, comb->stash, -1);
  for (uint64_t cycle = 0; cycle < 10; cycle++) {
    if (comb->away == AT_ONCE) give(away);
    for (int i = 0; i < comb->count; i++) {
      take(&teeth[i], 4 * GiB + cycle * comb->more, -1);
      if (comb->away == BEHIND_THE_FIRST && i == 0) give(away);
    }
    for (int i = comb->odd; i < comb->count; i += 2) give(&teeth[i]);
    take(away, comb->stash, -1);
    for (int i = 0; i < comb->count; i++) give(&teeth[i]);
    if (comb->away == ALL_ALONG) give(away);
    if (comb->marks) mark();
  }
}

static void comb(uint64_t seed) {
  uint64_t random = seed;
  struct comb comb;
  comb.resident = (1 + below(&random, 40)) * GiB;
  comb.stash = (4 + below(&random, 20)) * GiB;
  comb.count = 5 + (int)below(&random, 10);
  comb.odd = (int)below(&random, 2);
  comb.marks = below(&random, 4) > 0;
  comb.more = below(&random, 3) * 64 * MiB;
  comb.away = below(&random, 3);
  run_comb(&comb);
}

static uint64_t size_of(uint64_t *random, int small) {
  static const uint64_t scales[] = {64 << 10, 2 << 20, 64 << 20, 3ull << 30};
  const uint64_t scale = scales[below(random, 4)];
  return 1 + below(random, small && scale > LARGEST ? LARGEST : scale);
}

static void add(const unsigned char *bytes, uint64_t count) {
  for (uint64_t i = 0; i < count; i += 61) sum = (sum ^ bytes[i]) * 0x100000001b3u;
}

static void compare(const struct block *block) {
  static unsigned char found[LARGEST];
  if (block->addr == 0) return;
  if (cu_read(found, block->addr, block->bytes) != 0 || memcmp(found, block->copy, block->bytes) != 0) {
    fprintf(stderr, "served: %llu bytes at %#llx are not what was written\n", (unsigned long long)block->bytes, (unsigned long long)block->addr);
    exit(1);
  }
  add(found, block->bytes);
}

// Contents: one byte all over, then a few of others.
static void fill(struct block *block, uint64_t *random) {
  const unsigned char value = (unsigned char)next_random(random);
  if (block->addr == 0) return;
  block->copy = malloc(block->bytes);
  memset(block->copy, value, block->bytes);
  if (cu_set(block->addr, value, block->bytes) != 0) exit(2);
  for (uint64_t spot = 0, at; spot < 4; spot++) {
    uint64_t mixed = block->bytes * 4 + spot;
    at = below(&mixed, block->bytes);
    block->copy[at] = (unsigned char)next_random(&mixed);
    if (cu_write(block->addr + at, &block->copy[at], 1) != 0) exit(2);
  }
}

static void copy_between(const struct block *to, const struct block *from) {
  const uint64_t bytes = to->bytes < from->bytes ? to->bytes : from->bytes;
  if (to->addr == 0 || from->addr == 0 || to == from) return;
  if (cu_copy(to->addr, from->addr, bytes) != 0) exit(2);
  memcpy(to->copy, from->copy, bytes);
}

// An iteration: the same for the same random numbers, and leaves live what was.
static void iterate(uint64_t random, int contents) {
  char flipped[BLOCKS] = {0};
  for (int i = 0; i < 80 + BLOCKS; i++) {
    const int at = i < 80 ? (int)below(&random, BLOCKS) : i - 80, ends = i >= 80;
    struct block *block = &blocks[at];
    if (ends && !flipped[at]) continue;
    flipped[at] = !flipped[at];
    const uint64_t bytes = size_of(&random, contents), stream = below(&random, 2 + STREAMS);
    if (block->bytes > 0) {
      if (contents) compare(block);
      give(block);
    } else {
      take(block, bytes, stream < 2 ? -1 : (int)stream - 2);
      if (contents) fill(block, &random);
    }
    const uint64_t to = below(&random, BLOCKS), from = below(&random, BLOCKS);
    if (contents && i % 4 == 0) copy_between(&blocks[to], &blocks[from]);
  }
  for (int i = 0; contents && i < BLOCKS; i++) compare(&blocks[i]);
}

static void job(uint64_t seed, int contents) {
  uint64_t random = seed;
  for (int round = 0; round < 10; round++) {
    const uint64_t kind = below(&random, 8), odd = next_random(&random);
    iterate(kind == 0 ? odd : seed, contents);
    if (kind == 1) hook_empty_cache(0);
    mark();
  }
}

// Requests of the hook. Slots from BLOCKS-POOLED on are of a pool, which each round opens and releases.
enum { POOLED = 8 };

static void take_direct(struct block *block, uint64_t bytes, int stream, uint64_t pool) {
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

static void direct(uint64_t seed) {
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

// Pools of a mixed job. A pool is held once for each request that was made in it.
enum { POOLS = 3 };
static uint64_t holds[POOLS];

static void take_mixed(struct block *block, uint64_t *random) {
  const uint64_t bytes = size_of(random, 0), how = below(random, 8), stream = below(random, STREAMS), which = below(random, POOLS);
  if (how < 4) {
    take_direct(block, bytes, (int)stream, 0);
  } else if (how == 4) {
    take_direct(block, bytes, (int)stream, which + 1);
    holds[which]++;
  } else if (how == 5) {
    take(block, bytes, (int)stream);
  } else {
    take(block, bytes, -1);
  }
}

static void give_mixed(struct block *block) {
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
  if (kind >= 2 && kind < 5) {
    for (; holds[which] > 0; holds[which]--) hook_pool_release(0, 0, which + 1);
  }
}

static void mixed(uint64_t seed) {
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
        give_mixed(block);
      occasion(&changes);
    }
    mark();
  }
  for (int i = 0; i < BLOCKS; i++) give_mixed(&blocks[i]);
}

int main(int argc, char **argv) {
  if (argc != 4) return 9;
  const uint64_t seed = strtoull(argv[2], NULL, 10);
  resting = atoi(argv[3]) == 1;
  start();
  if (strcmp(argv[1], "comb") == 0)
    comb(seed);
  else if (strcmp(argv[1], "stash") == 0)
    run_comb(&(struct comb){.resident = 33 * GiB, .stash = 16 * GiB, .count = 11, .odd = 1, .marks = 1});
  else if (strcmp(argv[1], "direct") == 0)
    direct(seed);
  else if (strcmp(argv[1], "mixed") == 0)
    mixed(seed);
  else if (strcmp(argv[1], "random") == 0 || strcmp(argv[1], "results") == 0)
    job(seed, argv[1][1] == 'e');
  else
    return 9;
  for (int i = 0; i < BLOCKS; i++) give(&blocks[i]);
  printf("%s %llu: %llu refused, sum %016llx\n", argv[1], (unsigned long long)seed, (unsigned long long)refused, (unsigned long long)sum);
  return 0;
}
