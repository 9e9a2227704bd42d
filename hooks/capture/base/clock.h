// clock.h - monotonic time for every event, at a third of the cost of clock_gettime.
//
// clock_gettime costs some 24 ns even without entering the kernel, twice in every allocation and
// free. So each thread calls it once in some 20 microseconds. In between it adds what the
// processor's time stamp counter has advanced, at a rate that is measured against clock_gettime
// since the start. Where there is no such counter, or until the rate is known, every reading is
// clock_gettime's.
#ifndef MEMPROF_CLOCK_H
#define MEMPROF_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#define CLOCK_GIVEN ((uint64_t)1 << 63)

// The time of the newest event that was written as it happened, in nanoseconds. An event that is written later, with its own time,
// gets one at most CLOCK_BACK_NS before that: readers refuse times that fall by a second (analysis/verify).
extern _Atomic(uint64_t) clock_newest;
static const uint64_t CLOCK_BACK_NS = 500000000;

static inline void clock_note(uint64_t ns) { atomic_store_explicit(&clock_newest, ns, memory_order_relaxed); }

static inline uint64_t clock_given(uint64_t tick) {
  const uint64_t given = tick & ~CLOCK_GIVEN, newest = atomic_load_explicit(&clock_newest, memory_order_relaxed);
  return given + CLOCK_BACK_NS < newest ? newest - CLOCK_BACK_NS : given;
}

#if defined(__x86_64__)

enum {
  // Ticks for which a thread uses one reading of clock_gettime: some 20 microseconds. A rate that
  // is wrong by a thousandth errs by 20 ns in them.
  CLOCK_SERVES = 1 << 16,
  CLOCK_FRACTION = 32,
};

// Nanoseconds a tick, times 2^CLOCK_FRACTION; 0 until it is known. Set once.
extern _Atomic(uint64_t) clock_rate;

// The thread's last reading of clock_gettime, `ns` at `tick`, and the last time in nanoseconds that
// clock_of_tick returned to the thread.
struct clock_anchor {
  uint64_t tick, ns, last;
};
extern __thread struct clock_anchor clock_anchor;

// Calls clock_gettime for a tick that was just read, and keeps both as the thread's anchor.
uint64_t clock_anchored(uint64_t tick);

static inline uint64_t clock_of_tick(uint64_t tick) {
  const uint64_t ticks = tick - clock_anchor.tick;  // huge if the counter went back
  const uint64_t rate = atomic_load_explicit(&clock_rate, memory_order_relaxed);
  if (ticks >= CLOCK_SERVES || rate == 0) return clock_anchored(tick);
  const uint64_t now = clock_anchor.ns + (ticks * rate >> CLOCK_FRACTION);
  if (now > clock_anchor.last) clock_anchor.last = now;
  return clock_anchor.last;
}

// CLOCK_MONOTONIC in nanoseconds. It never goes back within a thread.
static inline uint64_t clock_now(void) { return clock_of_tick(__builtin_ia32_rdtsc()); }

// The same for a moment at which the caller has read the time stamp counter. Tick 0: now. A tick with CLOCK_GIVEN is the time itself:
// clock_anchored takes it, so that it costs others nothing.
static inline uint64_t clock_at(uint64_t tick) { return clock_of_tick(tick != 0 ? tick : __builtin_ia32_rdtsc()); }

#else

uint64_t clock_now(void);

static inline uint64_t clock_at(uint64_t tick) { return (tick & CLOCK_GIVEN) != 0 ? clock_given(tick) : clock_now(); }

#endif

#endif
