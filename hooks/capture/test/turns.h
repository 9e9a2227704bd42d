// turns.h - three streams that are busy by turns, for tests in which one stream's memory serves another.
#ifndef MEMPROF_TEST_TURNS_H
#define MEMPROF_TEST_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "gpu.h"

static void *busy[3];
static _Atomic bool ended;

// Holds one of the streams for 300 us, then the next, until the test has ended: whoever waits for a stream does so until the next turn.
static inline void *turn(void *nothing) {
  for (uint64_t i = 0; !ended; i++) {
    void *stream = busy[i % 3];
    gpu_hold(stream);
    usleep(300);
    gpu_let_go(stream);
  }
  return nothing;
}

#endif
