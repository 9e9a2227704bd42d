// stats.h - what the hook's counters of device 0 say.
#ifndef MEMPROF_TEST_STATS_H
#define MEMPROF_TEST_STATS_H

#include "memprof.h"
#include "trail.h"

static inline struct memprof_stats stats(void) {
  struct memprof_stats now;
  memprof_get_stats(0, &now);
  return now;
}

static inline int64_t reserved(void) { return stats().reserved_bytes.current; }

// The bytes reserved, by the counters and by the trail.
static inline uint64_t audited_bytes(void) {
  const struct trail trail = trail_read(getpid(), 0);
  CHECK_EQUAL(trail_audit(&trail).reserved, reserved());
  free(trail.records);
  return (uint64_t)reserved();
}

#endif
