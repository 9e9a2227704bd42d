// clock.c - see clock.h.
#include "clock.h"

#include <stdatomic.h>
#include <time.h>

static uint64_t system_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__)

enum {
  // Ticks for which one reading of the system's clock serves: some 20 microseconds, in which
  // a rate that is wrong by a thousandth errs by 20 ns.
  SERVES = 1 << 16,
  // Time after which two readings are far enough apart to tell the rate to a millionth.
  SETTLED_NS = 20000000,
  FRACTION = 32,
};

// The first reading of the process, and the rate since: nanoseconds a tick, times 2^32.
static _Atomic(uint64_t) first_tick, first_ns, rate;

struct anchor {
  uint64_t tick, ns, last;
};
static __thread struct anchor anchor;

static uint64_t anchored(uint64_t tick) {
  const uint64_t now = system_now();
  if (atomic_load_explicit(&rate, memory_order_relaxed) == 0) {
    uint64_t unset = 0;
    if (atomic_compare_exchange_strong(&first_ns, &unset, now)) {
      atomic_store(&first_tick, tick);
    } else if (now - unset > SETTLED_NS && atomic_load(&first_tick) != 0 && tick > atomic_load(&first_tick)) {
      const double slope = (double)(now - unset) / (double)(tick - atomic_load(&first_tick));
      // A counter that stops while the processor sleeps, or runs at a changing rate, shows
      // as an absurd one.
      if (slope > 0.05 && slope < 20) atomic_store(&rate, (uint64_t)(slope * ((uint64_t)1 << FRACTION)));
    }
  }
  anchor.tick = tick;
  anchor.ns = now;
  if (now > anchor.last) anchor.last = now;
  return anchor.last;
}

static inline uint64_t at(uint64_t tick) {
  const uint64_t ticks = tick - anchor.tick;  // huge where the counter went back
  const uint64_t slope = atomic_load_explicit(&rate, memory_order_relaxed);
  if (ticks >= SERVES || slope == 0) return anchored(tick);
  const uint64_t now = anchor.ns + (ticks * slope >> FRACTION);
  if (now > anchor.last) anchor.last = now;
  return anchor.last;
}

uint64_t clock_now(void) { return at(__builtin_ia32_rdtsc()); }

uint64_t clock_at(uint64_t tick) { return tick == 0 ? clock_now() : at(tick); }

#else

uint64_t clock_now(void) { return system_now(); }

uint64_t clock_at(uint64_t tick) { return (void)tick, system_now(); }

#endif
