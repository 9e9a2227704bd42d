// communicators.c - memory of NCCL's communicators, with a stand-in for NCCL (nccl.c): whose it is, and that it can be
// suspended, all of it or none.
#include "program.h"

struct unique_id {
  char bytes[128];
};
static int (*init)(void **, int, struct unique_id, int, void *);
static int (*split)(void *, int, int, void **, void *);
static int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
static int (*group_start)(void), (*group_end)(void), (*destroy)(void *);
static int (*communicators)(int);
static const char *(*message)(void);

static void load(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(handle != NULL);
  *(void **)&init = dlsym(handle, "ncclCommInitRankConfig");
  *(void **)&split = dlsym(handle, "ncclCommSplit");
  *(void **)&all_reduce = dlsym(handle, "ncclAllReduce");
  *(void **)&group_start = dlsym(handle, "ncclGroupStart");
  *(void **)&group_end = dlsym(handle, "ncclGroupEnd");
  *(void **)&destroy = dlsym(handle, "ncclCommDestroy");
  *(void **)&communicators = dlsym(RTLD_DEFAULT, "memprof_communicators");
  *(void **)&message = dlsym(RTLD_DEFAULT, "memprof_pause_message");
  CHECK(init && split && all_reduce && group_start && group_end && destroy && communicators && message);
}

static void check_alloc(uint64_t n, const char *communicator) {
  char text[200];
  const struct trail trail = so_far();
  snprintf(text, sizeof text, "call=cudaMalloc\tlibrary=libnccl-stand-in.so.2%s", communicator);
  CHECK_CONTEXT(&trail, trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, n), text);
}

static const struct unique_id one = {"one"}, two = {"two"};

static void test_whose(void) {
  void *a = NULL, *b = NULL, *c = NULL, *again = NULL;
  load("libnccl-stand-in.so.2");
  CHECK(init(&a, 2, one, 0, NULL) == 0);
  check_alloc(0, "\tcommunicator=1\tranks=2");
  CHECK(init(&b, 4, two, 1, NULL) == 0);
  check_alloc(1, "\tcommunicator=2\tranks=4");
  CHECK(split(b, 0, 0, &c, NULL) == 0);
  check_alloc(2, "\tcommunicator=3");
  CHECK(init(&again, 2, one, 1, NULL) == 0);  // another rank of the first, in this process
  check_alloc(3, "\tcommunicator=1\tranks=2");
  CHECK(all_reduce(NULL, NULL, 1, 0, 0, b, NULL) == 0);  // a thread of NCCL's connects it
  check_alloc(4, "\tcommunicator=2\tranks=4");
  CHECK(group_start() == 0 && group_start() == 0);
  CHECK(all_reduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  CHECK(group_end() == 0);
  CHECK(group_end() == 0);
  check_alloc(5, "\tcommunicator=3");
  CHECK(destroy(b) == 0);
  CHECK(init(&b, 4, two, 1, NULL) == 0);  // a new one, though with the same id
  check_alloc(6, "\tcommunicator=4\tranks=4");
}

static uint64_t external(void) {
  const struct trail trail = so_far();
  return trail_number(&trail, MEMPROF_EXTERNAL_ALLOC) - trail_number(&trail, MEMPROF_EXTERNAL_FREE);
}

static void test_suspend(void) {
  void *a = NULL, *b = NULL;
  load("libnccl-stand-in.so.2");
  CHECK_EQUAL(communicators(1), 3);  // WRONG_STATE: there is none
  CHECK(init(&a, 2, one, 0, NULL) == 0 && init(&b, 2, two, 0, NULL) == 0);
  CHECK_EQUAL(external(), 2);
  CHECK_EQUAL(communicators(0), 3);  // none is suspended
  CHECK_EQUAL(communicators(1), 0);
  CHECK_EQUAL(external(), 0);
  CHECK(all_reduce(NULL, NULL, 1, 0, 0, a, NULL) != 0);
  CHECK_EQUAL(communicators(1), 3);
  CHECK_EQUAL(communicators(0), 0);
  CHECK_EQUAL(external(), 2);
  check_alloc(3, "\tcommunicator=2\tranks=2");
  CHECK(all_reduce(NULL, NULL, 1, 0, 0, a, NULL) == 0);
}

// The second of two fails: the first is resumed.
static void test_suspend_fails(void) {
  void *a = NULL, *b = NULL;
  load("libnccl-stand-in.so.2");
  CHECK(init(&a, 2, one, 0, NULL) == 0 && init(&b, 2, two, 0, NULL) == 0);
  CHECK_EQUAL(communicators(1), 12);
  CHECK(strstr(message(), "communicator 2") != NULL && strstr(message(), "nothing was suspended") != NULL);
  CHECK_EQUAL(external(), 2);
  CHECK(all_reduce(NULL, NULL, 1, 0, 0, a, NULL) == 0);
  CHECK_EQUAL(communicators(1), 0);
}

// Whether a collective works, at the second try at the latest.
static bool works(void *communicator) { return all_reduce(NULL, NULL, 1, 0, 0, communicator, NULL) == 0 || all_reduce(NULL, NULL, 1, 0, 0, communicator, NULL) == 0; }

// Three are suspended and resumed while one call fails, of NCCL's or of the runtime's below it: all of them are
// suspended, or none is and the message says so, or it says how many are stuck; and the next calls succeed.
static void test_one_failure(void) {
  void *each[3] = {NULL};
  static const struct unique_id ids[3] = {{"one"}, {"two"}, {"three"}};
  load("libnccl-stand-in.so.2");
  for (int i = 0; i < 3; i++) {
    if (init(&each[i], 2, ids[i], 0, NULL) != 0) _exit(20);
  }
  int status = 21, result = communicators(1);
  if (result != 0) {
    CHECK_EQUAL(result, 12);
    const bool none = strstr(message(), "nothing was suspended") != NULL, some = strstr(message(), "nor resume") != NULL;
    CHECK(none != some);
    CHECK(external() == 3 || some);
    for (int i = 0; i < 3 && none; i++) CHECK(works(each[i]));
    if (some) CHECK_EQUAL(communicators(0), 0);
    CHECK(external() >= 3);
    CHECK_EQUAL(communicators(1), 0);
    status = none ? 22 : 23;
  }
  for (int i = 0; i < 3; i++) CHECK(!works(each[i]));
  if ((result = communicators(0)) != 0) {
    CHECK_EQUAL(result, 12);
    CHECK(strstr(message(), "stays suspended") != NULL);
    CHECK_EQUAL(communicators(0), 0);
    status = 24;
  }
  for (int i = 0; i < 3; i++) CHECK(works(each[i]));
  CHECK_EQUAL(communicators(0), 3);
  _exit(status);
}

// Which statuses there were, as bits from 20 on; 1 << 20: any other.
static int statuses_of(const char *call, const char *fails) {
  int seen = 0;
  for (int n = 1; n <= 10; n++) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s:%d", call, n);
    const char *const environment[] = {"MEMPROF_SIM_FAIL", rule, "NCCL_STAND_IN_FAILS", fails, NULL};
    const int status = run_alone("one-failure", environment);
    if (status < 20 || status > 24) printf("     %s, NCCL_STAND_IN_FAILS=%s: exit status %d\n", rule, fails, status);
    seen |= status >= 20 && status <= 24 ? 1 << (status - 20) : 1 << 20;
  }
  return seen;
}

static int fail_each_call(void) {
  const struct {
    const char *call, *fails;
    int wanted;
  } cases[] = {
      {"cudaMalloc", "0", 1 << 0 | 1 << 1 | 1 << 4},  // no communicator; nothing; the resume
      {"cudaMalloc", "1", 1 << 0 | 1 << 2 | 1 << 4},  // the first suspension fails: there is nothing to undo
      {"cudaMalloc", "3", 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4},  // the third, and one of those to undo
  };
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int seen = statuses_of(cases[i].call, cases[i].fails);
    const bool right = (seen & 1 << 20) == 0 && (seen & cases[i].wanted) == cases[i].wanted;
    printf("%s one failure of %s, and of NCCL's call %s (%x)\n", right ? "ok  " : "FAIL", cases[i].call, cases[i].fails, (unsigned)seen);
    failed += !right;
  }
  return failed != 0;
}

static void test_older(void) {
  void *a = NULL;
  load("libnccl-old.so.2");
  CHECK(init(&a, 2, one, 0, NULL) == 0);
  CHECK_EQUAL(communicators(1), 12);
  CHECK(strstr(message(), "NCCL 2.28.9 cannot suspend") != NULL);
  CHECK(all_reduce(NULL, NULL, 1, 0, 0, a, NULL) == 0);
}

int main(int argc, char **argv) {
  static const struct test tests[] = {
      {"whose", test_whose, {NULL}},
      {"suspend", test_suspend, {NULL}},
      {"suspend-fails", test_suspend_fails, {"NCCL_STAND_IN_FAILS", "2", NULL}},
      {"older", test_older, {NULL}},
  };
  if (argc > 1 && strcmp(argv[1], "one-failure") == 0) test_one_failure();
  const int failed = run_preloaded(argc, argv, tests, sizeof tests / sizeof *tests);
  return failed != 0 ? failed : fail_each_call();
}
