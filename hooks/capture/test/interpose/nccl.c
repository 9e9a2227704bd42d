// nccl.c - a stand-in for NCCL, as far as the hook knows it: peers map what is registered with communicators. Beside it
// stand-ins for libibverbs.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuMemRetainAllocationHandle(unsigned long long *handle, void *addr);
int cuMemExportToShareableHandle(void *shareable, unsigned long long handle, int type, unsigned long long flags);
int cuMemRelease(unsigned long long handle);

enum { SYSTEM_ERROR = 2 };

int ncclCommDestroy(void *comm) {
  (void)comm;
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

int ncclCommRegister(void *comm, void *start, unsigned long bytes, void **handle) {
  (void)comm, (void)bytes;
  const int result = make_name(start, handle);
  return result;
}

int ncclCommDeregister(void *comm, void *handle) {
  (void)comm;
  free(handle);
  return 0;
}

int ncclCommWindowRegister(void *comm, void *start, unsigned long bytes, void **window, int flags) {
  (void)comm, (void)bytes, (void)flags;
  const int result = make_name(start, window);
  return result;
}

int ncclCommWindowDeregister(void *comm, void *window) {
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
