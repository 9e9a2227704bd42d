// nccl.c - a stand-in for NCCL, as far as the hook knows it: communicators have memory, get more at their first
// collective, on a thread of the library's own, and let peers map what is registered. Beside it stand-ins for libibverbs.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuMemRetainAllocationHandle(unsigned long long *handle, void *addr);
int cuMemExportToShareableHandle(void *shareable, unsigned long long handle, int type, unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cudaMalloc(void **ptr, unsigned long bytes);
int cudaFree(void *ptr);

enum { SYSTEM_ERROR = 2 };
struct unique_id {
  char bytes[128];
};
struct comm {
  void *buffers, *channels;
};
static int depth;
static struct comm *pending;

static int make(struct comm **out) {
  struct comm *comm = calloc(1, sizeof *comm);
  const int error = cudaMalloc(&comm->buffers, 24 << 20);
  *out = comm;
  return error == 0 ? 0 : SYSTEM_ERROR;
}

static void *connect(void *self) {
  struct comm *comm = self;
  return cudaMalloc(&comm->channels, 4 << 20) == 0 ? NULL : comm;
}

static int connected(struct comm *comm) {
  pthread_t thread;
  void *failed = NULL;
  if (comm == NULL || comm->channels != NULL) return 0;
  return pthread_create(&thread, NULL, connect, comm) != 0 || pthread_join(thread, &failed) != 0 || failed != NULL ? SYSTEM_ERROR : 0;
}

int ncclCommInitRankConfig(struct comm **comm, int ranks, struct unique_id id, int rank, void *config) {
  (void)ranks, (void)id, (void)rank, (void)config;
  const int result = make(comm);
  return result;
}

int ncclCommSplit(struct comm *comm, int color, int key, struct comm **more, void *config) {
  (void)comm, (void)color, (void)key, (void)config;
  const int result = make(more);
  return result;
}

int ncclGroupStart(void) {
  depth++;
  return 0;
}

int ncclGroupEnd(void) {
  depth--;
  if (depth > 0) return 0;
  const int result = connected(pending);
  pending = NULL;
  return result;
}

int ncclAllReduce(const void *from, void *to, unsigned long count, int type, int operation, struct comm *comm, void *stream) {
  (void)from, (void)to, (void)count, (void)type, (void)operation, (void)stream;
  if (depth > 0) pending = comm;
  const int result = depth > 0 ? 0 : connected(comm);
  return result;
}

int ncclCommDestroy(struct comm *comm) {
  cudaFree(comm->buffers);
  if (comm->channels != NULL) cudaFree(comm->channels);
  free(comm);
  return 0;
}

// Shares the memory with a peer, as NCCL does: the descriptor is the peer's affair.
static int share(void *start) {
  unsigned long long handle;
  int descriptor;
  if (cuMemRetainAllocationHandle(&handle, start) != 0) return SYSTEM_ERROR;
  const int error = cuMemExportToShareableHandle(&descriptor, handle, 1, 0);
  if (cuMemRelease(handle) != 0 || error != 0) return SYSTEM_ERROR;
  close(descriptor);
  return 0;
}

static int make_name(void *start, void **name) {
  const int result = share(start);
  if (result == 0) *name = malloc(1);
  return result;
}

int ncclCommRegister(struct comm *comm, void *start, unsigned long bytes, void **handle) {
  (void)comm, (void)bytes;
  const int result = make_name(start, handle);
  return result;
}

int ncclCommDeregister(struct comm *comm, void *handle) {
  (void)comm;
  free(handle);
  return 0;
}

int ncclCommWindowRegister(struct comm *comm, void *start, unsigned long bytes, void **window, int flags) {
  (void)comm, (void)bytes, (void)flags;
  const int result = make_name(start, window);
  return result;
}

int ncclCommWindowDeregister(struct comm *comm, void *window) {
  (void)comm;
  free(window);
  return 0;
}

void *ibv_reg_mr(void *domain, void *start, unsigned long bytes, int access) {
  (void)domain, (void)access;
  return bytes == 0 ? NULL : strdup(start == NULL ? "" : "region");
}

void *ibv_reg_mr_iova(void *domain, void *start, unsigned long bytes, unsigned long at, int access) {
  (void)domain, (void)start, (void)at, (void)access;
  return bytes == 0 ? NULL : strdup("region");
}

void *ibv_reg_mr_iova2(void *domain, void *start, unsigned long bytes, unsigned long at, unsigned access) {
  (void)domain, (void)start, (void)at, (void)access;
  return bytes == 0 ? NULL : strdup("region");
}

int ibv_dereg_mr(void *region) {
  free(region);
  return 0;
}
