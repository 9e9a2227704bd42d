// at_rest.c - a plan that holds finds its places without the orders of free chunks.
//
// The orders are what a planned request costs more than others: descents through chunks that
// no cache has any more. Free chunks wait for their places in them until something asks, and
// the waiting list is emptied then: it must only grow while a plan holds. There are more of
// them than slots at first, so that the list has to grow with those.
#define _GNU_SOURCE
#include "bfc/internal.h"
#include "check.h"

enum { GRANULARITY = 2 << 20, BLOCKS = 600, SETTLED = 8, ITERATIONS = 14 };

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  uint64_t *next = self;
  *granted = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  *addr = *next;
  *next += *granted;
  return true;
}

static void release(void *self, uint64_t addr, uint64_t bytes) { (void)self, (void)addr, (void)bytes; }

static bool map(void *self, uint64_t addr, uint64_t bytes) {
  (void)self, (void)addr, (void)bytes;
  return true;
}

static uint64_t device_free(void *self) {
  (void)self;
  return UINT64_MAX;
}

// Of the blocks some live to the end of the job, some into the next iteration, some shortly.
struct job {
  struct bfc *bfc;
  uint64_t live[2 * BLOCKS];  // by block, those of odd iterations behind; 0: none
  bool rests;                 // nothing may ask for an order
  uint32_t waiting;
};

static void watch(struct job *job) {
  const uint32_t now = job->bfc->waiting.count;
  if (job->rests) CHECK(now >= job->waiting);
  job->waiting = now;
}

static uint64_t size_of(int block) { return (uint64_t)(1 + block * 7919 % 97) * (block % 3 == 0 ? 40000 : 700); }

static void request(struct job *job, int at, uint64_t size) {
  struct bfc_block block;
  CHECK(bfc_alloc(job->bfc, size, &block));
  job->live[at] = block.addr;
  watch(job);
}

static void give(struct job *job, int at) {
  struct bfc_block block;
  if (job->live[at] == 0) return;
  CHECK(bfc_free(job->bfc, job->live[at], &block));
  job->live[at] = 0;
  watch(job);
}

static void iterate(struct job *job, int iteration) {
  const int mine = iteration % 2 * BLOCKS, before = BLOCKS - mine;
  for (int i = 0; i < BLOCKS; i++) {
    request(job, mine + i, size_of(i));
    if (i % 5 == 0 && i >= 10) give(job, mine + i - 7);  // 3, 8, 13: shortly
    if (i % 4 == 0) give(job, before + i);               // into the next iteration
  }
  for (int i = BLOCKS; i-- > 0;) {
    if (i % 4 != 0) give(job, mine + i);
  }
  bfc_end_iteration(job->bfc);
}

int main(void) {
  uint64_t next = (uint64_t)1 << 40;
  const struct bfc_options options = {.limit = UINT64_MAX, .growth = BFC_NEEDED, .split = 256, .notes = true, .planned = true};
  const struct bfc_memory memory = {.self = &next, .granularity = GRANULARITY, .grow = grow, .release = release, .map = map,
                                    .unmap = release, .device_free = device_free, .coalesces = true};
  struct job job = {.bfc = bfc_new(&options, &memory)};
  uint32_t most = 0;
  for (int i = 0; i < ITERATIONS; i++) {
    job.rests = i >= SETTLED;
    iterate(&job, i);
    if (job.rests && job.waiting > most) most = job.waiting;
  }
  CHECK(job.bfc->planner.made == 1 && !job.bfc->planner.missed[1]);
  CHECK(most > 0);
  CHECK(bfc_largest_free(job.bfc) > 0 && job.bfc->waiting.count == 0);
  bfc_delete(job.bfc);
  printf("ok   %d iterations without an order, %u chunks waiting at most\n", ITERATIONS - SETTLED, most);
  return 0;
}
