// calls.h - counts the calls that the simulated driver gets, by its log.
#ifndef MEMPROF_TEST_CALLS_H
#define MEMPROF_TEST_CALLS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

// Has the calls of the driver logged; before the first.
static inline void log_calls(void) {
  char path[600];
  snprintf(path, sizeof path, "%s/calls", getenv("MEMPROF_SPOOL"));
  setenv("MEMPROF_SIM_LOG", path, 1);
}

static inline uint64_t calls_of(const char *name) {
  char line[512], wanted[64];
  uint64_t count = 0;
  FILE *log = fopen(getenv("MEMPROF_SIM_LOG"), "r");
  if (log == NULL) return 0;  // the driver has not been loaded
  snprintf(wanted, sizeof wanted, " %s ", name);
  while (fgets(line, sizeof line, log) != NULL) count += strstr(line, wanted) != NULL;
  fclose(log);
  return count;
}

// Waits until there have been so many calls more, a minute at most.
static inline void await_calls(const char *name, uint64_t more) {
  const uint64_t wanted = calls_of(name) + more;
  for (int i = 0; i < 6000 && calls_of(name) < wanted; i++) usleep(10000);
  CHECK(calls_of(name) >= wanted);
}

#endif
