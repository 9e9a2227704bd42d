// blocks.h - blocks that carry patterns in the simulated device's real pages: memory that was
// unmapped under a block, or is mapped anew behind it, shows at once. And what the hook says
// while its trimmer is at work, as the tests of trimming see it.
#ifndef MEMPROF_TEST_BLOCKS_H
#define MEMPROF_TEST_BLOCKS_H

#include <unistd.h>

#include "gpu.h"
#include "stats.h"

struct block {
  unsigned char *start;
  uint64_t bytes;
  unsigned char pattern;
};

// Every page would be too many faults in large blocks; in small ones each of the host is looked at.
static inline uint64_t stride_of(const struct block *block) { return block->bytes < 512 * KiB ? 4 * KiB : 64 * KiB; }

// The request may be refused: then the block has no start.
static inline void begin(struct block *block, uint64_t bytes, void *stream) {
  static unsigned char pattern;
  pattern = pattern % 255 + 1;  // never that of new pages
  *block = (struct block){memprof_malloc(bytes, 0, stream), bytes, pattern};
  for (uint64_t i = 0; block->start != NULL && i < bytes; i += stride_of(block)) block->start[i] = pattern;
  if (block->start != NULL) block->start[bytes - 1] = pattern;
}

static inline void check_pattern(const struct block *block) {
  for (uint64_t i = 0; block->start != NULL && i < block->bytes; i += stride_of(block)) CHECK_EQUAL(block->start[i], block->pattern);
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

// Waits until so many bytes are reserved, a minute at most.
static inline void await_reserved(uint64_t bytes) {
  for (int i = 0; i < 6000 && (uint64_t)reserved() != bytes; i++) usleep(10000);
  CHECK_EQUAL(reserved(), bytes);
}

// Waits until nothing has been mapped or unmapped for a while. Only for tests that nothing is, since a busy machine may be slow.
static inline void rest_for_a_while(void) {
  int64_t changes = -1;
  for (int same = 0; same < 10;) {
    const struct memprof_stats now = stats();
    const int64_t total = now.device_allocs + now.device_frees;
    same = total == changes ? same + 1 : 0;
    changes = total;
    usleep(2000);
  }
}

// Waits until the trimmer has done all that the iterations so far asked for. Policies other than trim=iteration trim by the clock.
static inline void rest(void) {
  const char *options = getenv("MEMPROF_OPTIONS");
  for (int i = 0; i < 600000 && memprof_trimming(); i++) usleep(200);
  CHECK(!memprof_trimming());
  if (options == NULL || strstr(options, "trim=iteration") == NULL) rest_for_a_while();
}

// The trail, after asking whether it agrees with the counters. It is read again where the
// trimmer was at work meanwhile, which may have been about to write.
static inline struct trail audited(void) {
  enum { BEING_WRITTEN = 16 };
  struct memprof_stats before, now = stats();
  struct trail trail;
  do {
    before = now;
    trail = trail_read(getpid(), BEING_WRITTEN);
    now = stats();
  } while (now.device_allocs != before.device_allocs || now.device_frees != before.device_frees);
  const struct audit audit = trail_audit(&trail);
  CHECK_EQUAL(audit.reserved, now.reserved_bytes.current);
  CHECK_EQUAL(audit.live, now.allocated_bytes.current);
  CHECK_EQUAL(now.inactive_bytes.current, now.reserved_bytes.current - now.active_bytes.current);
  return trail;
}

#endif
