// registrations.c - memory that a communication library, a network card or another process knows by its physical pages stays
// where it is: no request takes its pages, and nothing unmaps them.
#include "program.h"

#define PAGES "preset=compact,headroom=0,serve=1"

int cuMemExportToShareableHandle(void *, unsigned long long, int, unsigned long long);
int cuMemGetHandleForAddressRange(void *, device_address, size_t, int, unsigned long long);
int cuIpcGetMemHandle(void *, device_address);
int cuMulticastCreate(unsigned long long *, const void *);
int cuMulticastBindAddr(unsigned long long, size_t, device_address, size_t, unsigned long long);
int cuMulticastBindMem(unsigned long long, size_t, unsigned long long, size_t, size_t, unsigned long long);
int cuMulticastUnbind(unsigned long long, int, size_t, size_t);

static void *find(const char *library, const char *name) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  CHECK(handle != NULL);
  void *found = dlsym(handle, name);
  CHECK(found != NULL);
  return found;
}

#define LOAD(function, name) *(void **)&(function) = find("libnccl-stand-in.so.2", name)

static uint64_t reserved(void) {
  const struct trail trail = so_far();
  const uint64_t bytes = trail_audit(&trail).reserved;
  free(trail.records);
  return bytes;
}

static size_t empty_cache(void) {
  size_t (*empty)(int);
  *(void **)&empty = dlsym(RTLD_DEFAULT, "memprof_empty_cache");
  CHECK(empty != NULL);
  return empty(0);
}

static void *allocate(size_t bytes) {
  void *ptr = NULL;
  CHECK(cudaMalloc(&ptr, bytes) == 0);
  return ptr;
}

static bool pages(void) { return strstr(getenv("MEMPROF_OPTIONS"), "preset=compact") != NULL; }

// Registers a block of 8 MiB, two pages, then frees it; whoever needs memory next gets other pages. After `end` (NULL:
// nothing ends it) these two are like any others.
static void check_kept(void (*begin)(void *, size_t), void (*end)(void *, size_t)) {
  const size_t bytes = 8 * MiB;
  void *registered = allocate(bytes), *between = allocate(4 * MiB);
  memset(registered, 1, bytes);
  begin(registered, bytes);
  CHECK(cudaFree(registered) == 0);
  const uint64_t before = reserved();
  void *larger = allocate(12 * MiB);
  memset(larger, 2, 12 * MiB);
  if (pages()) CHECK_EQUAL(reserved(), before + 12 * MiB);
  CHECK(cudaFree(larger) == 0 && cudaFree(between) == 0);
  empty_cache();
  CHECK_EQUAL(reserved(), bytes);
  for (size_t i = 0; i < bytes; i += KiB) CHECK_EQUAL(((unsigned char *)registered)[i], 1);
  if (end == NULL) return;
  end(registered, bytes);
  CHECK_EQUAL(empty_cache(), bytes);
  CHECK_EQUAL(reserved(), 0);
}

// The same without a registration: the pages are taken, and unmapped.
TEST(not_registered, "MEMPROF_OPTIONS", PAGES) {
  start();
  void *freed = allocate(8 * MiB), *between = allocate(4 * MiB);
  CHECK(cudaFree(freed) == 0);
  void *larger = allocate(12 * MiB);
  CHECK_EQUAL(reserved(), 16 * MiB);
  CHECK(cudaFree(larger) == 0 && cudaFree(between) == 0);
  empty_cache();
  CHECK_EQUAL(reserved(), 0);
}

static void *comm = &comm, *name;

static void nccl_begin(void *start, size_t bytes) {
  int (*call)(void *, void *, size_t, void **);
  LOAD(call, "ncclCommRegister");
  CHECK(call(comm, start, bytes, &name) == 0);
}

static void nccl_end(void *start, size_t bytes) {
  int (*call)(void *, void *);
  (void)start, (void)bytes;
  LOAD(call, "ncclCommDeregister");
  CHECK(call(comm, name) == 0);
}

static void check_nccl(void) {
  start();
  check_kept(nccl_begin, nccl_end);
  check_kept(nccl_begin, nccl_end);
}

static void window_begin(void *start, size_t bytes) {
  int (*call)(void *, void *, size_t, void **, int);
  LOAD(call, "ncclCommWindowRegister");
  CHECK(call(comm, start, bytes, &name, 0) == 0);
}

static void window_end(void *start, size_t bytes) {
  int (*call)(void *, void *);
  (void)start, (void)bytes;
  LOAD(call, "ncclCommWindowDeregister");
  CHECK(call(comm, name) == 0);
}

TEST(window, "MEMPROF_OPTIONS", PAGES) {
  start();
  check_kept(window_begin, window_end);
}

// The end of a communicator is that of its registrations.
TEST(communicator, "MEMPROF_OPTIONS", PAGES) {
  void **made = calloc(4, sizeof *made);
  start();
  comm = made;
  int (*destroy)(void *);
  LOAD(destroy, "ncclCommDestroy");
  check_kept(nccl_begin, NULL);
  CHECK(destroy(comm) == 0);
  CHECK_EQUAL(empty_cache(), 8 * MiB);
}

static unsigned long long handles[2];

static void retain(void *start, size_t bytes) {
  CHECK_EQUAL(bytes, 8 * MiB);
  CHECK(cuMemRetainAllocationHandle(&handles[0], start) == 0);
  CHECK(cuMemRetainAllocationHandle(&handles[1], (char *)start + 5 * MiB) == 0);
}

static void release(void *start, size_t bytes) {
  (void)start, (void)bytes;
  CHECK(cuMemRelease(handles[0]) == 0);
  if (handles[1] != 0) CHECK(cuMemRelease(handles[1]) == 0);
}

TEST(retained, "MEMPROF_OPTIONS", PAGES) {
  start();
  check_kept(retain, release);
}

// A descriptor outlasts the handle.
static void exported(void *start, size_t bytes) {
  retain(start, bytes);
  for (int i = 0; i < 2; i++) {
    int descriptor;
    CHECK(cuMemExportToShareableHandle(&descriptor, handles[i], 1, 0) == 0);
    CHECK(close(descriptor) == 0);
  }
  release(start, bytes);
}

TEST(exported, "MEMPROF_OPTIONS", PAGES) {
  start();
  check_kept(exported, NULL);
}

static void network(void *start, size_t bytes) {
  int descriptor;
  CHECK(cuMemGetHandleForAddressRange(&descriptor, (uintptr_t)start, bytes, 1, 0) == 0);
  CHECK(close(descriptor) == 0);
}

TEST(dma_buf, "MEMPROF_OPTIONS", PAGES) {
  start();
  check_kept(network, NULL);
}

static void *region;

static void verbs_begin(void *start, size_t bytes) {
  static int turn;
  void *(*call)(void *, void *, size_t, int);
  void *(*call_at)(void *, void *, size_t, uint64_t, unsigned);
  LOAD(call, "ibv_reg_mr");
  LOAD(call_at, turn == 1 ? "ibv_reg_mr_iova" : "ibv_reg_mr_iova2");
  region = turn++ == 0 ? call(NULL, start, bytes, 1) : call_at(NULL, start, bytes, 0, 1);
  CHECK(region != NULL);
  CHECK(call(NULL, start, 0, 1) == NULL);  // fails
}

static void verbs_end(void *start, size_t bytes) {
  int (*call)(void *);
  (void)start, (void)bytes;
  LOAD(call, "ibv_dereg_mr");
  CHECK(call(region) == 0);
}

static void check_verbs(void) {
  start();
  for (int i = 0; i < 3; i++) check_kept(verbs_begin, verbs_end);
}

static void ipc(void *start, size_t bytes) {
  char handle[64];
  for (size_t at = 0; at < bytes; at += 4 * MiB) CHECK(cuIpcGetMemHandle(handle, (uintptr_t)start + at) == 0);
}

TEST(ipc, "MEMPROF_OPTIONS", PAGES, "MEMPROF_SIM_IPC", "1") {
  start();
  check_kept(ipc, NULL);
}

// As NVIDIA's driver answers: nothing is registered, and the recording says why, once.
TEST(ipc_refused, "MEMPROF_OPTIONS", PAGES) {
  char handle[64];
  start();
  void *block = allocate(8 * MiB);
  CHECK(cuIpcGetMemHandle(handle, (uintptr_t)block) == 1 && cuIpcGetMemHandle(handle, (uintptr_t)block) == 1);
  const struct trail trail = so_far();
  const char *text = trail_problems(&trail);
  CHECK(strncmp(text, "cuIpcGetMemHandle: error 1 for memory that memprof serves", 57) == 0);
  CHECK(strchr(text, '\n')[1] == '\0');
  CHECK(cudaFree(block) == 0);
  CHECK_EQUAL(empty_cache(), 8 * MiB);
}

static unsigned long long group;

static void bind_address(void *start, size_t bytes) {
  CHECK(cuMulticastCreate(&group, handles) == 0);
  CHECK(cuMulticastBindAddr(group, 0, (uintptr_t)start, bytes, 0) == 0);
  CHECK(cuMulticastBindAddr(group + 1, 0, (uintptr_t)start, bytes, 0) != 0);
}

static void unbind(void *start, size_t bytes) {
  (void)start;
  CHECK(cuMulticastUnbind(group, 0, 0, bytes) == 0);
}

TEST(multicast_address, "MEMPROF_OPTIONS", PAGES) {
  start();
  check_kept(bind_address, unbind);
}

static void bind_memory(void *start, size_t bytes) {
  CHECK(cuMulticastCreate(&group, handles) == 0);
  retain(start, bytes);
  for (int i = 0; i < 2; i++) CHECK(cuMulticastBindMem(group, (size_t)i * 4 * MiB, handles[i], 0, 4 * MiB, 0) == 0);
  release(start, bytes);
}

static void unbind_memory(void *start, size_t bytes) {
  (void)start, (void)bytes;
  for (int i = 0; i < 2; i++) CHECK(cuMulticastUnbind(group, 0, (size_t)i * 4 * MiB, 4 * MiB) == 0);
}

TEST(multicast_memory, "MEMPROF_OPTIONS", PAGES) {
  start();
  check_kept(bind_memory, unbind_memory);
}

TEST(nccl, "MEMPROF_OPTIONS", PAGES) { check_nccl(); }
TEST(verbs, "MEMPROF_OPTIONS", PAGES) { check_verbs(); }
TEST(nccl_small_handles, "MEMPROF_OPTIONS", "serve=1,handle=2097152") { check_nccl(); }
TEST(verbs_small_handles, "MEMPROF_OPTIONS", "serve=1,handle=2097152") { check_verbs(); }

int main(int argc, char **argv) { return run_preloaded(argc, argv); }
