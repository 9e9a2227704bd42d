// check.h - runs each test of a file in a process of its own, since the simulation reads
// its environment once.
#ifndef SIMCUDA_TEST_CHECK_H
#define SIMCUDA_TEST_CHECK_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct test {
  const char *name;
  void (*run)(void);
  const char *environment[8];  // NAME, value, ..., NULL
};

static inline void check(bool right, const char *what, const char *file, int line) {
  if (right) return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  fflush(NULL);
  _exit(1);
}
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

static inline int run_tests(const struct test *tests, int count) {
  int failed = 0;
  for (int i = 0; i < count; i++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      for (int k = 0; tests[i].environment[k] != NULL; k += 2) setenv(tests[i].environment[k], tests[i].environment[k + 1], 1);
      tests[i].run();
      exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s %s\n", status == 0 ? "ok  " : "FAIL", tests[i].name);
    failed += status != 0;
  }
  return failed != 0;
}

#endif
