// nccl.c - wrappers of NCCL's functions, so that its memory can be counted by communicator.
//
// They pass every call on as it is. A process without NCCL never calls them. NCCL allocates for a communicator where that is
// made, and where its first collective connects it, on threads of its own too: an allocation by NCCL while such a call is under
// way has that communicator.
#define _GNU_SOURCE
#include "interpose/nccl.h"

#include <stdatomic.h>
#include <stddef.h>

#include "arena/registered.h"
#include "interpose/interpose.h"

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

static void *real(struct entry *entry, const void *from) {
  const struct call call = {.entry = entry, .from = from};
  const uintptr_t key = (uintptr_t)from << 16 ^ ((uintptr_t)entry >> 3 & 0xffff);  // addresses have 48 bits, and the entries lie close together
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

#define REAL(function) real(&function##_entry, __builtin_return_address(0))

// Ids are random but for a few bytes.
static struct nccl_key key_of(const struct unique_id *id) {
  struct nccl_key key = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
  for (int i = 0; i < ID_BYTES; i++) {
    key.a = (key.a ^ (unsigned char)id->bytes[i]) * 0x100000001b3u;
    key.b = (key.b << 7 | key.b >> 57) ^ (unsigned char)id->bytes[i];
  }
  return key;
}

#define NO_KEY ((struct nccl_key){0})

// MAKER wraps a function that makes the communicator *made, of so many ranks, 0 where only NCCL knows, and named by key: all
// zero where none names it.
#define MAKER(function, PARAMETERS, ARGUMENTS, made, name, ranks)       \
  WRAPPER_OF(int, function, PARAMETERS, RUNTIME) {                      \
    int(*call) PARAMETERS = REAL(function);                             \
    struct nccl_work work;                                              \
    if (call == NULL) return NO_NCCL;                                   \
    const struct nccl_key key_of_made = name;                           \
    nccl_make(&work, key_of_made, ranks);                               \
    const int result = call ARGUMENTS;                                  \
    nccl_made(&work, key_of_made, made != NULL ? *made : NULL, result); \
    return result;                                                      \
  }

MAKER(ncclCommInitRank, (void **comm, int count, struct unique_id id, int rank), (comm, count, id, rank), comm, key_of(&id), count)
MAKER(ncclCommInitRankConfig, (void **comm, int count, struct unique_id id, int rank, void *config), (comm, count, id, rank, config), comm, key_of(&id), count)
MAKER(ncclCommInitRankScalable, (void **comm, int count, int rank, int ids, struct unique_id *id, void *config), (comm, count, rank, ids, id, config), comm,
      id != NULL && ids > 0 ? key_of(id) : NO_KEY, count)
// The ranks of a split are those with the same color.
MAKER(ncclCommSplit, (void *comm, int color, int key, void **more, void *config), (comm, color, key, more, config), more, NO_KEY, 0)
MAKER(ncclCommShrink, (void *comm, int *excluded, int count, void **more, void *config, int flags), (comm, excluded, count, more, config, flags), more, NO_KEY, 0)

WRAPPER_OF(int, ncclCommInitAll, (void **comms, int count, const int *devices), RUNTIME) {
  int (*call)(void **, int, const int *) = REAL(ncclCommInitAll);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_make(&work, NO_KEY, count);
  const int result = call(comms, count, devices);
  for (int i = 1; result == 0 && i < count; i++) nccl_add(&work, comms[i]);
  nccl_made(&work, NO_KEY, result == 0 && count > 0 ? comms[0] : NULL, result);
  return result;
}

static int end(struct entry *entry, const void *from, void *comm) {
  int (*call)(void *) = real(entry, from);
  if (call == NULL) return NO_NCCL;
  nccl_forget(comm);
  const int result = call(comm);
  while (registered_end_of(REGISTERED_NCCL, (uint64_t)(uintptr_t)comm)) continue;
  return result;
}

WRAPPER_OF(int, ncclCommDestroy, (void *comm), RUNTIME) { return end(&ncclCommDestroy_entry, __builtin_return_address(0), comm); }
WRAPPER_OF(int, ncclCommAbort, (void *comm), RUNTIME) { return end(&ncclCommAbort_entry, __builtin_return_address(0), comm); }

WRAPPER_OF(int, ncclGroupStart, (void), RUNTIME) {
  int (*call)(void) = REAL(ncclGroupStart);
  if (call == NULL) return NO_NCCL;
  nccl_group_begin();
  return call();
}

WRAPPER_OF(int, ncclGroupEnd, (void), RUNTIME) {
  int (*call)(void) = REAL(ncclGroupEnd);
  struct nccl_work work;
  if (call == NULL) return NO_NCCL;
  nccl_group_end(&work);
  const int result = call();
  nccl_group_ended(&work);
  return result;
}

// COLLECTIVE wraps a function that works on a communicator: memory that NCCL allocates until it returns is comm's. PARAMETERS
// and ARGUMENTS are those of the function, in parentheses.
#define COLLECTIVE(function, PARAMETERS, ARGUMENTS) \
  WRAPPER_OF(int, function, PARAMETERS, RUNTIME) {  \
    int(*call) PARAMETERS = REAL(function);         \
    struct nccl_work work;                          \
    if (call == NULL) return NO_NCCL;               \
    nccl_use(&work, comm);                          \
    const int result = call ARGUMENTS;              \
    nccl_leave(&work);                              \
    return result;                                  \
  }

COLLECTIVE(ncclAllReduce, (const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream), (from, to, count, type, operation, comm, stream))
COLLECTIVE(ncclReduceScatter, (const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream), (from, to, count, type, operation, comm, stream))
COLLECTIVE(ncclReduce, (const void *from, void *to, size_t count, int type, int operation, int root, void *comm, void *stream), (from, to, count, type, operation, root, comm, stream))
COLLECTIVE(ncclAllGather, (const void *from, void *to, size_t count, int type, void *comm, void *stream), (from, to, count, type, comm, stream))
COLLECTIVE(ncclAlltoAll, (const void *from, void *to, size_t count, int type, void *comm, void *stream), (from, to, count, type, comm, stream))
COLLECTIVE(ncclBroadcast, (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream), (from, to, count, type, root, comm, stream))
COLLECTIVE(ncclBcast, (void *data, size_t count, int type, int root, void *comm, void *stream), (data, count, type, root, comm, stream))
COLLECTIVE(ncclSend, (const void *from, size_t count, int type, int peer, void *comm, void *stream), (from, count, type, peer, comm, stream))
COLLECTIVE(ncclRecv, (void *to, size_t count, int type, int peer, void *comm, void *stream), (to, count, type, peer, comm, stream))

