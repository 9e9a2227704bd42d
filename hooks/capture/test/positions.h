// positions.h - a test's scenario, run again and again, each time with one more position of a driver call refused.
#ifndef MEMPROF_TEST_POSITIONS_H
#define MEMPROF_TEST_POSITIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "check.h"

// How far the next position is behind position n. Each is a process, so later ones lie further apart, and still further under TSan,
// for which one refusal is like another. MEMPROF_TEST_ALL has every position refused.
static inline int next_position(int n) {
  if (getenv("MEMPROF_TEST_ALL") != NULL) return 1;
#ifdef __SANITIZE_THREAD__
  return 20 + 4 * n;
#else
  return 1 + n;
#endif
}

// Runs the row "scenario" alone, for n from 1 to count, with position n of a call refused, or n * n: the first calls and
// later ones. `then` follows the position in the rule of MEMPROF_SIM_FAIL ("+": all later calls, too). The environment is
// names and values, ended by NULL; at most 4 pairs. Prints a row, and returns whether all runs passed.
static inline bool each_position(const char *call, const char *then, int count, bool squares, const char *const *environment) {
  for (int n = 1; n <= count; n += next_position(n)) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s:%d%s", call, squares ? n * n : n, then);
    const char *all[11] = {"MEMPROF_SIM_FAIL", rule};
    for (int i = 0; environment[i] != NULL; i++) CHECK(i < 8), all[i + 2] = environment[i];
    if (run_alone("scenario", all) == 0) continue;
    printf("FAIL %s\n", rule);
    return false;
  }
  printf("ok   %s%s, positions up to %d\n", call, then, count);
  return true;
}

#endif
