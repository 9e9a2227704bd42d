// check.h - runs each test of a file as a program of its own.
//
//   TEST(name, "VARIABLE", "value", ...) {
//     CHECK(...);
//   }
//
// The hook and the simulation read their environment when the process starts, so a test is
// this program executed again with the environment the test asks for and an empty spool.
// A test ends with the process: 0 is success.
#ifndef MEMPROF_TEST_CHECK_H
#define MEMPROF_TEST_CHECK_H

#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct test {
  const char *name;
  void (*run)(void);
  const char *environment[10];  // NAME, value, ..., NULL
  struct test *next;
};

static struct test *tests, **tests_end = &tests;  // of this file, in its order

// Adds a test, whose body follows, when the program is loaded.
#define TEST(title, ...)                                                   \
  static void test_##title(void);                                          \
  __attribute__((constructor)) static void add_##title(void) {             \
    static struct test row = {#title, test_##title, {__VA_ARGS__}, NULL};  \
    *tests_end = &row, tests_end = &row.next;                              \
  }                                                                        \
  static void test_##title(void)

// First in a row with one thread that moves much memory: under TSan, which makes that slow and has nothing to find there, it ends.
#ifdef __SANITIZE_THREAD__
#define ONE_THREAD() exit(0)
#else
#define ONE_THREAD() (void)0
#endif

static inline void check(bool right, const char *what, const char *file, int line) {
  if (right) return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  fflush(NULL);
  _exit(1);
}
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

static inline void check_equal(unsigned long long got, unsigned long long want, const char *what, const char *file, int line) {
  if (got == want) return;
  fprintf(stderr, "%s:%d: %s is %llu, want %llu\n", file, line, what, got, want);
  fflush(NULL);
  _exit(1);
}
#define CHECK_EQUAL(got, want) check_equal((unsigned long long)(got), (unsigned long long)(want), #got, __FILE__, __LINE__)

// Whether the test's processor is emulated by qemu (.ci/dist/as-arm64), which lacks what the test or a part of it needs. It says so.
static inline bool emulated_without(const char *what) {
  if (getenv("MEMPROF_EMULATED") == NULL) return false;
  printf("     left out: qemu has no %s\n", what);
  return true;
}

static inline int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *where) {
  (void)stat, (void)type, (void)where;
  return remove(path);
}

// Executes this program again for one test. Its exit status, or 128 + the signal.
static inline int run_alone(const char *name, const char *const *environment) {
  char spool[] = "/tmp/memprof-test-XXXXXX";
  if (mkdtemp(spool) == NULL) return 1;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    setenv("MEMPROF_SPOOL", spool, 1);
    for (int i = 0; environment[i] != NULL; i += 2) setenv(environment[i], environment[i + 1], 1);
    execl("/proc/self/exe", "test", name, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  nftw(spool, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int run_tests(int argc, char **argv) {
  int failed = 0;
  for (const struct test *test = tests; argc > 1 && test != NULL; test = test->next) {
    if (strcmp(argv[1], test->name) != 0) continue;
    test->run();
    exit(0);
  }
  if (argc > 1) { // a main that goes on would run the row again, and again
    fprintf(stderr, "no test is named %s\n", argv[1]);
    exit(2);
  }
  for (const struct test *test = tests; test != NULL; test = test->next) {
    const int status = run_alone(test->name, test->environment);
    printf("%s %s\n", status == 0 ? "ok  " : "FAIL", test->name);
    failed += status != 0;
  }
  return failed != 0;
}

#endif
