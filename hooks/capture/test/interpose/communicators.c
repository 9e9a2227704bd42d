// communicators.c - memory of NCCL's communicators, with a stand-in for NCCL (nccl.c): whose it is.
#include "program.h"

struct unique_id {
  char bytes[128];
};
static int (*init)(void **, int, struct unique_id, int, void *);
static int (*split)(void *, int, int, void **, void *);
static int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
static int (*group_start)(void), (*group_end)(void), (*destroy)(void *);

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
  CHECK(init && split && all_reduce && group_start && group_end && destroy);
}

static void check_alloc(uint64_t n, const char *communicator) {
  char text[200];
  const struct trail trail = so_far();
  snprintf(text, sizeof text, "call=cudaMalloc\tlibrary=libnccl-stand-in.so.2%s", communicator);
  CHECK_CONTEXT(&trail, trail_event(&trail, MEMPROF_EXTERNAL_ALLOC, n), text);
}

static const struct unique_id one = {"one"}, two = {"two"};

TEST(whose) {
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

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
