// clock.c - see clock.h.
#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

_Atomic(uint64_t) clock_newest;

static uint64_t system_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__)

enum {
  // Two readings that are so far apart give the rate to a millionth.
  RATE_AFTER_NS = 20000000,
};

_Atomic(uint64_t) clock_rate;
__thread struct clock_anchor clock_anchor;

// The first reading of the process.
static _Atomic(uint64_t) first_tick, first_ns;

uint64_t clock_anchored(uint64_t tick) {
  if ((tick & CLOCK_GIVEN) != 0) return clock_given(tick);
  const uint64_t now = system_now();
  if (atomic_load_explicit(&clock_rate, memory_order_relaxed) == 0) {
    uint64_t unset = 0;
    if (atomic_compare_exchange_strong(&first_ns, &unset, now)) {
      atomic_store(&first_tick, tick);
    } else if (now - unset > RATE_AFTER_NS && atomic_load(&first_tick) != 0 && tick > atomic_load(&first_tick)) {
      const double slope = (double)(now - unset) / (double)(tick - atomic_load(&first_tick));
      // A counter that stops while the processor sleeps, or changes its rate, gives a rate that
      // no processor has.
      if (slope > 0.05 && slope < 20) atomic_store(&clock_rate, (uint64_t)(slope * ((uint64_t)1 << CLOCK_FRACTION)));
    }
  }
  clock_anchor.tick = tick;
  clock_anchor.ns = now;
  if (now > clock_anchor.last) clock_anchor.last = now;
  return clock_anchor.last;
}

#else

uint64_t clock_now(void) { return system_now(); }

#endif
