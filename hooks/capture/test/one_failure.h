// one_failure.h - a program's test "one-failure" pauses and resumes once, in a process of its own, with a simulated
// driver that fails one call. Its exit status says what came of it. one_failure_of_each runs it for each call in turn.
#ifndef MEMPROF_TEST_ONE_FAILURE_H
#define MEMPROF_TEST_ONE_FAILURE_H

#include <stdbool.h>
#include <stdio.h>

#include "check.h"
#include "positions.h"

enum { SETUP_FAILED = 20, NOTHING_FAILED = 21, PAUSE_FAILED = 22, RESUME_FAILED = 23, LEAKED = 24 };

// A driver call, and whether some failure of it has to fail a pause or a resume.
struct failing_call {
  const char *name;
  bool pause, resume;
};

// Fails the first call of a name, the second, and later ones further and further apart, until `enough` runs in a row had no failure;
// with MEMPROF_TEST_ALL each. `variable` and `value` are set for the test, too, unless NULL. Returns whether anything was wrong.
static inline int one_failure_of_each(const struct failing_call *calls, size_t count, int enough, const char *variable, const char *value) {
  int failed = 0;
  for (size_t i = 0; i < count; i++) {
    bool pause = false, resume = false, wrong = false;
    for (int n = 1, quiet = 0; n < 200 && quiet < enough; n += next_position(n)) {
      char rule[64];
      snprintf(rule, sizeof rule, "%s:%d", calls[i].name, n);
      const char *const environment[] = {"MEMPROF_SIM_FAIL", rule, variable, value, NULL};
      const int status = run_alone("one-failure", environment);
      pause |= status == PAUSE_FAILED, resume |= status == RESUME_FAILED;
      quiet = status == NOTHING_FAILED ? quiet + 1 : 0;
      const bool known = status >= SETUP_FAILED && status <= LEAKED;
      if (!known) printf("     %s: exit status %d\n", rule, status);
      wrong |= !known;
    }
    wrong |= (calls[i].pause && !pause) || (calls[i].resume && !resume);
    printf("%s one failure of %s\n", wrong ? "FAIL" : "ok  ", calls[i].name);
    failed += wrong;
  }
  return failed != 0;
}

#endif
