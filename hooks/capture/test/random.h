// random.h - numbers for random tests, the same for the same seed.
#ifndef MEMPROF_TEST_RANDOM_H
#define MEMPROF_TEST_RANDOM_H

#include <stdint.h>

// A number from 0 to bound - 1; state is the seed at first.
static inline uint64_t random_below(uint64_t *state, uint64_t bound) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (*state >> 33) % bound;
}

#endif
