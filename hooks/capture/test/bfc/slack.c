// slack.c - how far slack grows where pages move in each iteration: further where each asks for what the last one did.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>

#include "bfc/internal.h"

enum { PAGE = 2 << 20 };

static bool grow(void *self, uint64_t bytes, uint64_t *addr, uint64_t *granted) {
  uint64_t *end = self;
  *granted = (bytes + PAGE - 1) / PAGE * PAGE;
  *addr = *end;
  *end += *granted;
  return true;
}
static bool map(void *self, uint64_t addr, uint64_t bytes) { return (void)self, (void)addr, (void)bytes, true; }
static void unmap(void *self, uint64_t addr, uint64_t bytes) { (void)self, (void)addr, (void)bytes; }
static uint64_t device_free(void *self) { return (void)self, UINT64_MAX; }

// The steps of slack after 100 iterations of one block, in each of which a page moved. `more`: every other block has so many bytes more.
static uint64_t steps(uint64_t more) {
  uint64_t end = PAGE;
  const struct bfc_memory memory = {.self = &end, .granularity = PAGE, .grow = grow, .map = map, .unmap = unmap, .device_free = device_free, .coalesces = true};
  const struct bfc_options options = {.limit = UINT64_MAX, .growth = BFC_PAGES, .always_split = true};
  struct bfc *bfc = bfc_new(&options, &memory);
  struct bfc_block block;
  for (int i = 0; i < 100; i++) {
    if (!bfc_alloc(bfc, (1 << 20) + i % 2 * more, &block) || !bfc_free(bfc, block.addr, &block)) return 0;
    bfc->pager.moved = 1;
    bfc_end_iteration(bfc);
  }
  const uint64_t slack = bfc->pager.slack;
  bfc_delete(bfc);
  return slack;
}

int main(void) {
  const uint64_t repeated = steps(0), other = steps(256);
  const bool right = repeated == 40 && other == 16;
  printf("%s slack grows by %d steps where iterations repeat, by %d where they do not\n", right ? "ok  " : "FAIL", (int)repeated, (int)other);
  return !right;
}
