// host_memory.c - the BFC when malloc fails: the request fails, the heap is as it was.
//
// Linked with --wrap for the three functions below. The same sequence of operations runs
// with the first, second, third ... host allocation failing; every failed call must change
// nothing, succeed when tried again, and the end must be that of a run without failures.
#define _GNU_SOURCE
#include "bfc/bfc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { OPERATIONS = 3000, GRANULARITY = 65536 };

static long calls, failing_call;

static bool fails(void) { return ++calls == failing_call; }

void *__real_realloc(void *pointer, size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_realloc(void *pointer, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_realloc(void *pointer, size_t size) { return fails() ? NULL : __real_realloc(pointer, size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

static void check(bool right, const char *what) {
  if (right) return;
  fprintf(stderr, "host allocation %ld failing: not so: %s\n", failing_call, what);
  exit(1);
}

// Every grant apart from the one before, so that regions are many.
static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  uint64_t *next = self;
  *granted = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  *addr = *next;
  *next += *granted + GRANULARITY;
  return true;
}
static bool map(void *self, uint64_t addr, uint64_t bytes) { return (void)self, (void)addr, (void)bytes, true; }
static void unmap(void *self, uint64_t addr, uint64_t bytes) { (void)self, (void)addr, (void)bytes; }
static uint64_t device_free(void *self) { return (void)self, UINT64_MAX; }

// Everything that can be seen of a heap, folded into one number.
static void fold(void *self, const struct bfc_chunk_info *chunk) {
  uint64_t *digest = self, words[] = {chunk->addr, chunk->size, chunk->requested, chunk->free, chunk->region_start};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) *digest = (*digest ^ words[i]) * UINT64_C(0x100000001b3);
}
static void fold_range(void *self, uint64_t addr, uint64_t bytes) {
  struct bfc_chunk_info range = {.addr = addr, .size = bytes};
  fold(self, &range);
}
static uint64_t digest(const struct bfc *bfc) {
  uint64_t sum = 1469598103934665603U;
  struct bfc_chunk_info counters = {.size = bfc_in_use(bfc), .requested = bfc_reserved(bfc)};
  fold(&sum, &counters);
  bfc_walk(bfc, &sum, fold);
  bfc_free_mapped(bfc, &sum, fold_range);
  return sum;
}

struct run {
  struct bfc *bfc;
  uint64_t live[OPERATIONS], count, random, failures;
};

static void alloc(struct run *run, uint64_t size) {
  struct bfc_block block;
  uint64_t before = digest(run->bfc);
  if (!bfc_alloc(run->bfc, size, &block)) {
    check(calls >= failing_call, "only a failing malloc fails a request");
    check(digest(run->bfc) == before, "a failed request changes nothing");
    check(bfc_alloc(run->bfc, size, &block), "it succeeds when tried again");
    run->failures++;
  }
  run->live[run->count++] = block.addr;
}

struct gap {
  uint64_t addr, bytes;
};

static void first_gap(void *self, uint64_t addr, uint64_t bytes) {
  struct gap *gap = self;
  uint64_t from = (addr + GRANULARITY - 1) / GRANULARITY * GRANULARITY, to = (addr + bytes) / GRANULARITY * GRANULARITY;
  if (to > from && gap->bytes == 0) *gap = (struct gap){from, to - from > GRANULARITY ? GRANULARITY : to - from};
}

static void unmap_a_gap(struct run *run) {
  struct gap gap = {0, 0};
  bfc_free_mapped(run->bfc, &gap, first_gap);
  if (gap.bytes == 0) return;
  uint64_t before = digest(run->bfc);
  if (bfc_unmap(run->bfc, gap.addr, gap.bytes)) return;
  check(digest(run->bfc) == before, "a failed unmap changes nothing");
  check(bfc_unmap(run->bfc, gap.addr, gap.bytes), "an unmap succeeds when tried again");
  run->failures++;
}

// Returns the digest at the end.
static uint64_t run_all(long fail_at, uint64_t *failures) {
  static struct run run;
  uint64_t next = (uint64_t)1 << 40;
  struct bfc_options options = {.limit = UINT64_MAX, .growth = BFC_NEEDED};
  struct bfc_memory memory = {.self = &next, .granularity = GRANULARITY, .grow = grow, .map = map, .unmap = unmap, .device_free = device_free};
  run = (struct run){.random = 42};
  failing_call = fail_at;
  calls = 0;
  run.bfc = bfc_new(&options, &memory);
  if (run.bfc == NULL) run.failures++, run.bfc = bfc_new(&options, &memory);
  for (int i = 0; i < OPERATIONS; i++) {
    struct bfc_block block;
    uint64_t choice = random_below(&run.random, 10);
    if (choice < 5 || run.count == 0) {
      alloc(&run, random_below(&run.random, 300000) + 1);
    } else if (choice < 9) {
      uint64_t at = random_below(&run.random, run.count);
      check(bfc_free(run.bfc, run.live[at], &block), "a block can be freed");
      run.live[at] = run.live[--run.count];
    } else {
      unmap_a_gap(&run);
    }
  }
  uint64_t sum = digest(run.bfc);
  bfc_delete(run.bfc);
  *failures = run.failures;
  return sum;
}

// A reservation, and what of it is mapped.
struct device {
  uint64_t next, mapped;
};

static bool grow_on(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  struct device *device = self;
  *granted = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  *addr = device->next;
  device->next += *granted;
  device->mapped += *granted;
  return true;
}

static bool map_again(void *self, uint64_t addr, uint64_t bytes) {
  (void)addr;
  ((struct device *)self)->mapped += bytes;
  return true;
}

static bool try_unmap(void *self, uint64_t addr, uint64_t bytes) {
  (void)addr;
  ((struct device *)self)->mapped -= bytes;
  return true;
}

static void undo_map(void *self, uint64_t addr, uint64_t bytes) { try_unmap(self, addr, bytes); }

// Free granules that are mapped, every other of them.
struct granules {
  uint64_t addresses[4096];
  size_t count;
};

static void every_other(void *self, uint64_t addr, uint64_t bytes) {
  struct granules *granules = self;
  const uint64_t from = (addr + GRANULARITY - 1) & ~(uint64_t)(GRANULARITY - 1);
  for (uint64_t at = from; at + GRANULARITY <= addr + bytes && granules->count < 4096; at += 2 * GRANULARITY) granules->addresses[granules->count++] = at;
}

static void give_back_granules(struct bfc *bfc, struct device *device) {
  static struct granules granules;
  granules.count = 0;
  bfc_free_mapped(bfc, &granules, every_other);
  for (size_t i = 0; i < granules.count; i++) {
    if (bfc_unmap(bfc, granules.addresses[i], GRANULARITY))
      device->mapped -= GRANULARITY;
    else
      check(calls >= failing_call, "only a failing malloc fails an unmap");
  }
}

enum { REQUESTS = 60, ITERATIONS = 6 };

static void free_block(struct bfc *bfc, struct bfc_block *block) {
  struct bfc_block freed;
  check(bfc_free(bfc, block->addr, &freed) && freed.size == block->size, "a block can be freed");
  block->size = 0;
}

static void alloc_apart(struct bfc *bfc, uint64_t size, struct bfc_block *blocks, struct bfc_block *out) {
  if (!bfc_alloc(bfc, size, out)) {
    check(calls >= failing_call, "only a failing malloc fails a request");
    check(bfc_alloc(bfc, size, out), "it succeeds when tried again");
  }
  for (int i = 0; i < REQUESTS; i++) {
    const struct bfc_block *other = &blocks[i];
    check(other == out || other->size == 0 || other->addr + other->size <= out->addr || out->addr + out->size <= other->addr, "blocks lie apart");
  }
}

// A job that repeats itself, whose pages are noted. Without host memory some are not, and its blocks lie
// elsewhere; nothing else is wrong. Returns the bytes in use at the greatest.
static uint64_t run_iterations(long fail_at, enum bfc_growth growth) {
  struct device device = {.next = (uint64_t)1 << 40};
  struct bfc_block blocks[REQUESTS] = {{0}};
  struct bfc_options options = {.limit = UINT64_MAX, .growth = growth, .always_split = true, .trims = true};
  struct bfc_memory memory = {.self = &device, .granularity = GRANULARITY, .grow = grow_on, .map = map_again, .unmap = undo_map, .device_free = device_free, .coalesces = true, .try_unmap = try_unmap};
  uint64_t most = 0;
  failing_call = fail_at;
  calls = 0;
  struct bfc *bfc = bfc_new(&options, &memory);
  if (bfc == NULL) bfc = bfc_new(&options, &memory);
  for (int iteration = 0; iteration < ITERATIONS; iteration++) {
    for (int i = 0; i < REQUESTS; i++) {  // every fourth is freed in the next iteration
      if (blocks[i].size != 0) free_block(bfc, &blocks[i]);
      alloc_apart(bfc, 1 + (uint64_t)i * 7919 % 60 * 4000, blocks, &blocks[i]);
      if (bfc_in_use(bfc) > most) most = bfc_in_use(bfc);
      if (i > 5 && i % 4 != 1) free_block(bfc, &blocks[i - 5]);
    }
    for (int i = 0; i < REQUESTS; i++) {
      if (i % 4 != 0 && blocks[i].size != 0) free_block(bfc, &blocks[i]);
    }
    bfc_end_iteration(bfc);
    give_back_granules(bfc, &device);
    check(bfc_reserved(bfc) == device.mapped, "as much is mapped as it says");
  }
  bfc_delete(bfc);
  return most;
}

int main(void) {
  uint64_t failures, want = run_all(0, &failures);
  long host_calls = calls;
  check(host_calls >= 10, "the sequence needs host memory some ten times");
  for (long i = 1; i <= host_calls; i++) {
    uint64_t got = run_all(i, &failures);
    check(failures == 1, "one failing malloc fails one call");
    check(got == want, "the end is the same");
  }
  printf("ok   %ld host allocations, each failing once\n", host_calls);
  for (int k = 0; k < 2; k++) {
    const enum bfc_growth growth = k == 0 ? BFC_NEEDED : BFC_PAGES;
    want = run_iterations(0, growth);
    host_calls = calls;
    check(host_calls >= 10, "iterations need host memory some ten times");
    for (long i = 1; i <= host_calls; i++) check(run_iterations(i, growth) == want, "as much is in use");
    printf("ok   %ld host allocations of iterations with growth %s, each failing once\n", host_calls, k == 0 ? "needed" : "pages");
  }
  return 0;
}
