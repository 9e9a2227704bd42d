// quiet.h - what the hook says while its trimmer is at work, or has done all that it was asked.
#ifndef MEMPROF_TEST_QUIET_H
#define MEMPROF_TEST_QUIET_H

#include <unistd.h>

#include "stats.h"

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
