// agree.h - what the trace says of device 0 has to be what the hook's counters say.
#ifndef MEMPROF_TEST_AGREE_H
#define MEMPROF_TEST_AGREE_H

#include "stats.h"

// The trail, after its sums were compared with the counters.
static inline struct trail trail_agrees(void) {
  const struct trail trail = trail_read(getpid(), 0);
  const struct audit audit = trail_audit(&trail);
  const struct memprof_stats now = stats();
  CHECK_EQUAL(audit.reserved, now.reserved_bytes.current);
  CHECK_EQUAL(audit.live, now.allocated_bytes.current);
  CHECK_EQUAL(audit.live + audit.pending, now.active_bytes.current);
  CHECK_EQUAL(now.inactive_bytes.current, now.reserved_bytes.current - now.active_bytes.current);
  return trail;
}

#endif
