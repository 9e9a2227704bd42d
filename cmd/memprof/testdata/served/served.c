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
//   served tagged SEED REST    requests under tags, which are paused and resumed, with blocks that are freed meanwhile;
//                              also in pools, and with emptied caches and marks in between
//   served captured SEED REST  streams that are captured while requests and frees happen, in pools of the graphs and out
//                              of them; the same occasions
//   served apart SEED REST     both
//   served results SEED REST   the same as random on small blocks, with contents that are written, copied,
//                              compared and summed up
//
// If REST is 1, it waits after each iteration until the hook has unmapped, and mapped ahead, what the policy wants; if 0,
// not at all; if more, so many milliseconds after every fourth. It prints how many requests were refused and, of results, the sum of
// all contents it has read: equal for equal seeds, whatever serves the memory. Exit 1: a block does
// not hold what was written there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"

static int (*cu_set)(uint64_t, unsigned char, size_t), (*cu_copy)(uint64_t, uint64_t, size_t);
static int (*cu_write)(uint64_t, const void *, size_t), (*cu_read)(void *, uint64_t, size_t);
static uint64_t sum = 0xcbf29ce484222325u;

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

int main(int argc, char **argv) {
  if (argc != 4) return 9;
  const uint64_t seed = strtoull(argv[2], NULL, 10);
  rest_as(atoi(argv[3]));
  void *library = start();
  find(library, "cuMemsetD8_v2", &cu_set), find(library, "cuMemcpyDtoD_v2", &cu_copy);
  find(library, "cuMemcpyHtoD_v2", &cu_write), find(library, "cuMemcpyDtoH_v2", &cu_read);
  if (strcmp(argv[1], "comb") == 0)
    comb(seed);
  else if (strcmp(argv[1], "stash") == 0)
    run_comb(&(struct comb){.resident = 33 * GiB, .stash = 16 * GiB, .count = 11, .odd = 1, .marks = 1});
  else if (strcmp(argv[1], "direct") == 0)
    direct(seed);
  else if (strcmp(argv[1], "mixed") == 0)
    mixed(seed);
  else if (strcmp(argv[1], "tagged") == 0)
    apart(seed, TAGS);
  else if (strcmp(argv[1], "captured") == 0)
    apart(seed, CAPTURES);
  else if (strcmp(argv[1], "apart") == 0)
    apart(seed, TAGS | CAPTURES);
  else if (strcmp(argv[1], "random") == 0 || strcmp(argv[1], "results") == 0)
    job(seed, argv[1][1] == 'e');
  else
    return 9;
  for (int i = 0; i < BLOCKS; i++) give(&blocks[i]);
  printf("%s %llu: %llu refused, sum %016llx\n", argv[1], (unsigned long long)seed, (unsigned long long)refused, (unsigned long long)sum);
  return 0;
}
