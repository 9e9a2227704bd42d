// bench.c - what a recorded alloc and free pair costs, on the simulated driver.
//
//   MEMPROF_SPOOL=dir LD_LIBRARY_PATH=dist/sim bench [pairs]
//
// 1,000 live blocks of random sizes, log-uniform from 512 B to 8 MiB; each pair replaces a
// random one. Prints the least of five runs in nanoseconds.
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "memprof.h"

enum { LIVE = 1000, DRAWN = 1 << 16 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  const long pairs = argc > 1 ? atol(argv[1]) : 1000000;
  static size_t sizes[DRAWN];
  static int victims[DRAWN];
  static void *blocks[LIVE];
  srand(1);
  for (int i = 0; i < DRAWN; i++) {
    sizes[i] = (size_t)exp2(9 + 14 * (rand() / (double)RAND_MAX));
    victims[i] = rand() % LIVE;
  }
  for (int i = 0; i < LIVE; i++) blocks[i] = memprof_malloc(sizes[i], 0, NULL);
  double best = 1e18;
  for (int run = 0; run < 5; run++) {
    const double start = now();
    for (long i = 0; i < pairs; i++) {
      void **block = &blocks[victims[i % DRAWN]];
      memprof_free(*block, 0, 0, NULL);
      *block = memprof_malloc(sizes[i % DRAWN], 0, NULL);
      if (*block == NULL) {
        puts(memprof_oom_message());
        return 1;
      }
    }
    const double took = (now() - start) / (double)pairs;
    if (took < best) best = took;
  }
  printf("%.1f ns a pair\n", best);
  return 0;
}
