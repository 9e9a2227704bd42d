// blocks.h - blocks that carry patterns in the simulated device's real pages: memory that was
// unmapped under a block, or is mapped anew behind it, shows at once.
#ifndef MEMPROF_TEST_BLOCKS_H
#define MEMPROF_TEST_BLOCKS_H

#include "gpu.h"
#include "quiet.h"

struct block {
  unsigned char *start;
  uint64_t bytes;
  unsigned char pattern;
};

// The request may be refused: then the block has no start.
static inline void begin(struct block *block, uint64_t bytes, void *stream) {
  static unsigned char pattern;
  pattern = pattern % 255 + 1;  // never that of new pages
  *block = (struct block){memprof_malloc(bytes, 0, stream), bytes, pattern};
  if (block->start != NULL) gpu_write(block->start, pattern, bytes);
}

static inline void check_pattern(const struct block *block) {
  for (uint64_t i = 0; block->start != NULL && i < block->bytes; i += gpu_step(block->bytes)) CHECK_EQUAL(block->start[i], block->pattern);
  if (block->start != NULL) CHECK_EQUAL(block->start[block->bytes - 1], block->pattern);
}

static inline bool fill(struct block *block, uint64_t bytes, void *stream) {
  begin(block, bytes, stream);
  return block->start != NULL;
}

static inline void end(struct block *block) {
  check_pattern(block);
  memprof_free(block->start, 0, 0, NULL);
  block->start = NULL;
}

#endif
