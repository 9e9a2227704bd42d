// nccl.c - wrappers of NCCL's functions, so that its memory can be counted by communicator.
//
// They pass every call on as it is. A process without NCCL never calls them.
#define _GNU_SOURCE
#include "interpose/nccl.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "arena/registered.h"
#include "base/real_dlsym.h"
#include "interpose/interpose.h"

enum { INIT_RANK, INIT_CONFIG, INIT_SCALABLE, INIT_ALL, SPLIT, SHRINK, DESTROY, ABORT, GROUP_START, GROUP_END, ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, ALL_TO_ALL, BROADCAST, BCAST, SEND, RECEIVE };
enum { NO_NCCL = 2, ID_BYTES = 128 };  // ncclSystemError

struct unique_id {
  char bytes[ID_BYTES];
};

// The function that a caller means, by its address: a process may have several copies of NCCL, and call_real asks the
// loader, which is slow for what every step calls. A slot is written once.
enum { CALLERS = 256 };
static struct {
  _Atomic uintptr_t key;
  void *_Atomic function;
} known[CALLERS];

static void *real(int which, const void *from) {
  const struct call call = {.entry = &interpose_nccl[which], .from = from};
  const uintptr_t key = (uintptr_t)from << 8 | (uintptr_t)which;
  const size_t at = (key * 0x9e3779b97f4a7c15u) >> 56;
  uintptr_t found = atomic_load_explicit(&known[at].key, memory_order_relaxed);
  if (found == key) {
    void *function = atomic_load_explicit(&known[at].function, memory_order_acquire);
    if (function != NULL) return function;
  }
  void *function = call_real(&call);
  if (function != NULL && found == 0 && atomic_compare_exchange_strong(&known[at].key, &found, key)) atomic_store_explicit(&known[at].function, function, memory_order_release);
  return function;
}
#define REAL(which) real(which, __builtin_return_address(0))

void *nccl_real(const char *name) {
  static const char *const libraries[] = {"libnccl.so.2", "libnccl.so"};
  const struct call call = {.entry = &interpose_nccl[INIT_CONFIG], .from = (const void *)nccl_real};
  void *found = call_sibling(&call, name);
  for (size_t i = 0; found == NULL && i < sizeof libraries / sizeof *libraries; i++) {
    void *handle = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) continue;
    found = real_dlsym(handle, name);
    dlclose(handle);  // it was loaded before and stays
  }
  return found;
}

// Ids are random but for a few bytes.
static struct nccl_key key_of(const struct unique_id *id) {
  struct nccl_key key = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
  for (int i = 0; i < ID_BYTES; i++) {
    key.a = (key.a ^ (unsigned char)id->bytes[i]) * 0x100000001b3u;
    key.b = (key.b << 7 | key.b >> 57) ^ (unsigned char)id->bytes[i];
  }
  return key;
}

EXPORT int ncclCommInitRank(void **comm, int count, struct unique_id id, int rank) {
  int (*call)(void **, int, struct unique_id, int) = REAL(INIT_RANK);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_make(&work, key_of(&id), count);
  const int result = call(comm, count, id, rank);
  nccl_made(&work, key_of(&id), comm != NULL ? *comm : NULL, result);
  return result;
}

EXPORT int ncclCommInitRankConfig(void **comm, int count, struct unique_id id, int rank, void *config) {
  int (*call)(void **, int, struct unique_id, int, void *) = REAL(INIT_CONFIG);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_make(&work, key_of(&id), count);
  const int result = call(comm, count, id, rank, config);
  nccl_made(&work, key_of(&id), comm != NULL ? *comm : NULL, result);
  return result;
}

EXPORT int ncclCommInitRankScalable(void **comm, int count, int rank, int ids, struct unique_id *id, void *config) {
  int (*call)(void **, int, int, int, struct unique_id *, void *) = REAL(INIT_SCALABLE);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  const struct nccl_key key = id != NULL && ids > 0 ? key_of(id) : (struct nccl_key){0};
  nccl_make(&work, key, count);
  const int result = call(comm, count, rank, ids, id, config);
  nccl_made(&work, key, comm != NULL ? *comm : NULL, result);
  return result;
}

EXPORT int ncclCommInitAll(void **comms, int count, const int *devices) {
  int (*call)(void **, int, const int *) = REAL(INIT_ALL);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_make(&work, (struct nccl_key){0}, count);
  const int result = call(comms, count, devices);
  for (int i = 1; result == 0 && i < count; i++) nccl_add(&work, comms[i]);
  nccl_made(&work, (struct nccl_key){0}, result == 0 && count > 0 ? comms[0] : NULL, result);
  return result;
}

// The new communicator's ranks are those with the same color, whose number only NCCL knows.
EXPORT int ncclCommSplit(void *comm, int color, int key, void **more, void *config) {
  int (*call)(void *, int, int, void **, void *) = REAL(SPLIT);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_make(&work, (struct nccl_key){0}, 0);
  const int result = call(comm, color, key, more, config);
  nccl_made(&work, (struct nccl_key){0}, more != NULL ? *more : NULL, result);
  return result;
}

EXPORT int ncclCommShrink(void *comm, int *excluded, int count, void **more, void *config, int flags) {
  int (*call)(void *, int *, int, void **, void *, int) = REAL(SHRINK);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_make(&work, (struct nccl_key){0}, 0);
  const int result = call(comm, excluded, count, more, config, flags);
  nccl_made(&work, (struct nccl_key){0}, more != NULL ? *more : NULL, result);
  return result;
}

static int end(int which, const void *from, void *comm) {
  int (*call)(void *) = real(which, from);
  if (call == NULL) return NO_NCCL;
  nccl_forget(comm);
  const int result = call(comm);
  while (registered_end_of(REGISTERED_NCCL, (uint64_t)(uintptr_t)comm)) continue;
  return result;
}

EXPORT int ncclCommDestroy(void *comm) { return end(DESTROY, __builtin_return_address(0), comm); }
EXPORT int ncclCommAbort(void *comm) { return end(ABORT, __builtin_return_address(0), comm); }

EXPORT int ncclGroupStart(void) {
  int (*call)(void) = REAL(GROUP_START);
  if (call == NULL) return NO_NCCL;
  nccl_group_begin();
  return call();
}

EXPORT int ncclGroupEnd(void) {
  int (*call)(void) = REAL(GROUP_END);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_group_end(&work);
  const int result = call();
  nccl_group_ended(&work);
  return result;
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream) {
  int (*call)(const void *, void *, size_t, int, int, void *, void *) = REAL(ALL_REDUCE);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, to, count, type, operation, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream) {
  int (*call)(const void *, void *, size_t, int, int, void *, void *) = REAL(REDUCE_SCATTER);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, to, count, type, operation, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, void *comm, void *stream) {
  int (*call)(const void *, void *, size_t, int, int, int, void *, void *) = REAL(REDUCE);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, to, count, type, operation, root, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream) {
  int (*call)(const void *, void *, size_t, int, void *, void *) = REAL(ALL_GATHER);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, to, count, type, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int type, void *comm, void *stream) {
  int (*call)(const void *, void *, size_t, int, void *, void *) = REAL(ALL_TO_ALL);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, to, count, type, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream) {
  int (*call)(const void *, void *, size_t, int, int, void *, void *) = REAL(BROADCAST);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, to, count, type, root, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclBcast(void *data, size_t count, int type, int root, void *comm, void *stream) {
  int (*call)(void *, size_t, int, int, void *, void *) = REAL(BCAST);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(data, count, type, root, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream) {
  int (*call)(const void *, size_t, int, int, void *, void *) = REAL(SEND);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(from, count, type, peer, comm, stream);
  nccl_leave(&work);
  return result;
}

EXPORT int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream) {
  int (*call)(void *, size_t, int, int, void *, void *) = REAL(RECEIVE);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_use(&work, comm);
  const int result = call(to, count, type, peer, comm, stream);
  nccl_leave(&work);
  return result;
}

#define NCCL(function) {.name = #function, .ours = function}
struct entry interpose_nccl[] = {
    [INIT_RANK] = NCCL(ncclCommInitRank),
    [INIT_CONFIG] = NCCL(ncclCommInitRankConfig),
    [INIT_SCALABLE] = NCCL(ncclCommInitRankScalable),
    [INIT_ALL] = NCCL(ncclCommInitAll),
    [SPLIT] = NCCL(ncclCommSplit),
    [SHRINK] = NCCL(ncclCommShrink),
    [DESTROY] = NCCL(ncclCommDestroy),
    [ABORT] = NCCL(ncclCommAbort),
    [GROUP_START] = NCCL(ncclGroupStart),
    [GROUP_END] = NCCL(ncclGroupEnd),
    [ALL_REDUCE] = NCCL(ncclAllReduce),
    [REDUCE_SCATTER] = NCCL(ncclReduceScatter),
    [REDUCE] = NCCL(ncclReduce),
    [ALL_GATHER] = NCCL(ncclAllGather),
    [ALL_TO_ALL] = NCCL(ncclAlltoAll),
    [BROADCAST] = NCCL(ncclBroadcast),
    [BCAST] = NCCL(ncclBcast),
    [SEND] = NCCL(ncclSend),
    [RECEIVE] = NCCL(ncclRecv),
    {0},
};

INTERPOSED(interpose_nccl);
