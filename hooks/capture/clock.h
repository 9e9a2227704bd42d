// clock.h - monotonic time for every event, at a third of the price of the system call.
//
// clock_gettime costs some 24 ns even without entering the kernel, twice in every
// allocation and free. Between two of its readings, at most some microseconds apart,
// this clock adds what the processor's time stamp counter has advanced, at a rate measured
// against the same clock since the start. Where there is no such counter, or until the
// rate is known, each reading is the system's.
#ifndef MEMPROF_CLOCK_H
#define MEMPROF_CLOCK_H

#include <stdint.h>

// CLOCK_MONOTONIC in nanoseconds. It never goes back within a thread.
uint64_t clock_now(void);

// The same for a moment whose time stamp counter the caller has read already, a little
// before. 0, and where there is no such counter: now.
uint64_t clock_at(uint64_t tick);

#endif
