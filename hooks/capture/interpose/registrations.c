// registrations.c - wrappers of the calls by which others come to know the physical pages of memory.
//
// They pass every call on as it is. Memory of an arena stays mapped where it is from before the call until the one that
// ends it; where nothing ends it (a descriptor for another process or a network card was made), for good. What a card's
// driver learns without a call that is wrapped here, as by gdrcopy, is not seen.
#define _GNU_SOURCE
#include <errno.h>

#include "arena/arena.h"
#include "arena/registered.h"
#include "interpose/interpose.h"

enum {
  EXPORT_HANDLE, RANGE_HANDLE, IPC_HANDLE, BIND_ADDRESS, BIND_ADDRESS_2, BIND_MEMORY, BIND_MEMORY_2, UNBIND,
  NCCL_REGISTER, NCCL_DEREGISTER, WINDOW_REGISTER, WINDOW_DEREGISTER, VERBS_REGISTER, VERBS_REGISTER_IOVA, VERBS_REGISTER_IOVA_2, VERBS_DEREGISTER,
};
enum { NO_NCCL = 2 };  // ncclSystemError
#define CALL(which) (&(struct call){.entry = &interpose_registrations[which], .from = __builtin_return_address(0)})

// While a call is under way its registration has the address of a variable on the caller's stack as its key.
static struct registration_key under_way(enum registrar by, const void *frame) { return (struct registration_key){by, (uint64_t)(uintptr_t)frame, UINT64_MAX}; }

static void finish(bool registered, struct registration_key from, struct registration_key to, bool ok) {
  if (!registered) return;
  if (ok)
    registered_rename(from, to);
  else
    registered_remove(from);
}

// The driver's calls.

EXPORT cuda_error cuMemExportToShareableHandle(void *shareable, driver_handle handle, int type, unsigned long long flags) {
  struct call *call = CALL(EXPORT_HANDLE);
  cuda_error (*real)(void *, driver_handle, int, unsigned long long) = call_enter(call);
  uint64_t addr, bytes;
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(shareable, handle, type, flags);
  // The job has the handle of an arena's memory only if it asked for it.
  if (error == CUDA_OK && registered_find((struct registration_key){REGISTERED_RETAINED, handle, 0}, &addr, &bytes)) registered_keep(addr, bytes, call->entry->name);
  call_leave();
  return error;
}

EXPORT cuda_error cuMemGetHandleForAddressRange(void *handle, uint64_t addr, size_t bytes, int type, unsigned long long flags) {
  struct call *call = CALL(RANGE_HANDLE);
  cuda_error (*real)(void *, uint64_t, size_t, int, unsigned long long) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle, addr, bytes, type, flags);
  if (error == CUDA_OK) registered_keep(addr, bytes, call->entry->name);
  call_leave();
  return error;
}

// Drivers so far refuse it for memory that is mapped by handles.
EXPORT cuda_error cuIpcGetMemHandle(void *handle, uint64_t addr) {
  struct call *call = CALL(IPC_HANDLE);
  cuda_error (*real)(void *, uint64_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle, addr);
  if (error == CUDA_OK) registered_keep(addr, 0, call->entry->name);
  call_leave();
  return error;
}

// Groups of several devices of a process have the same offsets.
static struct registration_key bound(uint64_t group, size_t offset, int device) {
  return (struct registration_key){REGISTERED_MULTICAST, group, (uint64_t)device << 56 | offset};
}

static int device_of(uint64_t addr) {
  const struct arena *arena = arena_of(addr);
  return arena == NULL ? 0 : arena->gpu->vmm.device;
}

EXPORT cuda_error cuMulticastBindAddr(uint64_t group, size_t offset, uint64_t addr, size_t bytes, unsigned long long flags) {
  struct call *call = CALL(BIND_ADDRESS);
  cuda_error (*real)(uint64_t, size_t, uint64_t, size_t, unsigned long long) = call_enter(call);
  const bool ours = registered_add(under_way(REGISTERED_MULTICAST, call), addr, bytes, call->entry->name);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(group, offset, addr, bytes, flags);
  finish(ours, under_way(REGISTERED_MULTICAST, call), bound(group, offset, device_of(addr)), error == CUDA_OK);
  call_leave();
  return error;
}

EXPORT cuda_error cuMulticastBindAddr_v2(uint64_t group, int device, size_t offset, uint64_t addr, size_t bytes, unsigned long long flags) {
  struct call *call = CALL(BIND_ADDRESS_2);
  cuda_error (*real)(uint64_t, int, size_t, uint64_t, size_t, unsigned long long) = call_enter(call);
  const bool ours = registered_add(under_way(REGISTERED_MULTICAST, call), addr, bytes, "cuMulticastBindAddr");
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(group, device, offset, addr, bytes, flags);
  finish(ours, under_way(REGISTERED_MULTICAST, call), bound(group, offset, device), error == CUDA_OK);
  call_leave();
  return error;
}

// Registers memory of a handle that the job got of an address. The whole handle, since its address is not known exactly.
static bool add_handle(const struct call *call, driver_handle handle, uint64_t *addr) {
  uint64_t bytes;
  return registered_find((struct registration_key){REGISTERED_RETAINED, handle, 0}, addr, &bytes) &&
         registered_add(under_way(REGISTERED_MULTICAST, call), *addr, bytes, "cuMulticastBindMem");
}

EXPORT cuda_error cuMulticastBindMem(uint64_t group, size_t offset, driver_handle handle, size_t from, size_t bytes, unsigned long long flags) {
  struct call *call = CALL(BIND_MEMORY);
  cuda_error (*real)(uint64_t, size_t, driver_handle, size_t, size_t, unsigned long long) = call_enter(call);
  uint64_t addr = 0;
  const bool ours = add_handle(call, handle, &addr);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(group, offset, handle, from, bytes, flags);
  finish(ours, under_way(REGISTERED_MULTICAST, call), bound(group, offset, device_of(addr)), error == CUDA_OK);
  call_leave();
  return error;
}

EXPORT cuda_error cuMulticastBindMem_v2(uint64_t group, int device, size_t offset, driver_handle handle, size_t from, size_t bytes, unsigned long long flags) {
  struct call *call = CALL(BIND_MEMORY_2);
  cuda_error (*real)(uint64_t, int, size_t, driver_handle, size_t, size_t, unsigned long long) = call_enter(call);
  uint64_t addr = 0;
  const bool ours = add_handle(call, handle, &addr);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(group, device, offset, handle, from, bytes, flags);
  finish(ours, under_way(REGISTERED_MULTICAST, call), bound(group, offset, device), error == CUDA_OK);
  call_leave();
  return error;
}

EXPORT cuda_error cuMulticastUnbind(uint64_t group, int device, size_t offset, size_t bytes) {
  struct call *call = CALL(UNBIND);
  cuda_error (*real)(uint64_t, int, size_t, size_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(group, device, offset, bytes);
  if (error == CUDA_OK) registered_remove(bound(group, offset, device));
  call_leave();
  return error;
}

// NCCL's. A window that is registered within a group of calls gets its name when the group ends; until its communicator
// is destroyed it then stays registered.

EXPORT int ncclCommRegister(void *comm, void *start, size_t bytes, void **handle) {
  struct call *call = CALL(NCCL_REGISTER);
  int (*real)(void *, void *, size_t, void **) = call_real(call);
  if (real == NULL) return NO_NCCL;
  const bool ours = registered_add(under_way(REGISTERED_NCCL, call), (uintptr_t)start, bytes, call->entry->name);
  const int result = real(comm, start, bytes, handle);
  const uint64_t name = result == 0 && handle != NULL ? (uint64_t)(uintptr_t)*handle : 0;
  finish(ours, under_way(REGISTERED_NCCL, call), (struct registration_key){REGISTERED_NCCL, name, (uint64_t)(uintptr_t)comm}, result == 0);
  return result;
}

EXPORT int ncclCommDeregister(void *comm, void *handle) {
  int (*real)(void *, void *) = call_real(CALL(NCCL_DEREGISTER));
  const int result = real == NULL ? NO_NCCL : real(comm, handle);
  if (result == 0) registered_remove((struct registration_key){REGISTERED_NCCL, (uint64_t)(uintptr_t)handle, (uint64_t)(uintptr_t)comm});
  return result;
}

EXPORT int ncclCommWindowRegister(void *comm, void *start, size_t bytes, void **window, int flags) {
  struct call *call = CALL(WINDOW_REGISTER);
  int (*real)(void *, void *, size_t, void **, int) = call_real(call);
  if (real == NULL) return NO_NCCL;
  const bool ours = registered_add(under_way(REGISTERED_NCCL, call), (uintptr_t)start, bytes, call->entry->name);
  const int result = real(comm, start, bytes, window, flags);
  const uint64_t name = result == 0 && window != NULL ? (uint64_t)(uintptr_t)*window : 0;
  finish(ours, under_way(REGISTERED_NCCL, call), (struct registration_key){REGISTERED_NCCL, name, (uint64_t)(uintptr_t)comm}, result == 0);
  return result;
}

EXPORT int ncclCommWindowDeregister(void *comm, void *window) {
  int (*real)(void *, void *) = call_real(CALL(WINDOW_DEREGISTER));
  const int result = real == NULL ? NO_NCCL : real(comm, window);
  if (result == 0) registered_remove((struct registration_key){REGISTERED_NCCL, (uint64_t)(uintptr_t)window, (uint64_t)(uintptr_t)comm});
  return result;
}

// Those of libibverbs, which network cards reach GPU memory by (nvidia-peermem).

static struct registration_key region(const void *region) { return (struct registration_key){REGISTERED_NETWORK, (uint64_t)(uintptr_t)region, 0}; }

EXPORT void *ibv_reg_mr(void *domain, void *start, size_t bytes, int access) {
  struct call *call = CALL(VERBS_REGISTER);
  void *(*real)(void *, void *, size_t, int) = call_real(call);
  if (real == NULL) return errno = ENOSYS, NULL;
  const bool ours = registered_add(under_way(REGISTERED_NETWORK, call), (uintptr_t)start, bytes, call->entry->name);
  void *made = real(domain, start, bytes, access);
  finish(ours, under_way(REGISTERED_NETWORK, call), region(made), made != NULL);
  return made;
}

static void *register_at(struct call *call, void *domain, void *start, size_t bytes, uint64_t at, unsigned access) {
  void *(*real)(void *, void *, size_t, uint64_t, unsigned) = call_real(call);
  if (real == NULL) return errno = ENOSYS, NULL;
  const bool ours = registered_add(under_way(REGISTERED_NETWORK, call), (uintptr_t)start, bytes, call->entry->name);
  void *made = real(domain, start, bytes, at, access);
  finish(ours, under_way(REGISTERED_NETWORK, call), region(made), made != NULL);
  return made;
}

EXPORT void *ibv_reg_mr_iova(void *domain, void *start, size_t bytes, uint64_t at, int access) {
  return register_at(CALL(VERBS_REGISTER_IOVA), domain, start, bytes, at, (unsigned)access);
}

EXPORT void *ibv_reg_mr_iova2(void *domain, void *start, size_t bytes, uint64_t at, unsigned access) {
  return register_at(CALL(VERBS_REGISTER_IOVA_2), domain, start, bytes, at, access);
}

EXPORT int ibv_dereg_mr(void *made) {
  int (*real)(void *) = call_real(CALL(VERBS_DEREGISTER));
  if (real == NULL) return ENOSYS;
  const int error = real(made);
  if (error == 0) registered_remove(region(made));
  return error;
}

#define DRIVER(function, since_) {.name = #function, .ours = function, .asked = #function, .since = since_}
#define VARIANT(function, asked_, since_) {.name = #function, .ours = function, .asked = asked_, .since = since_, .exact = true}
#define LIBRARY(function) {.name = #function, .ours = function}
struct entry interpose_registrations[] = {
    [EXPORT_HANDLE] = DRIVER(cuMemExportToShareableHandle, 10020),
    [RANGE_HANDLE] = DRIVER(cuMemGetHandleForAddressRange, 11070),
    [IPC_HANDLE] = DRIVER(cuIpcGetMemHandle, 4010),
    [BIND_ADDRESS] = VARIANT(cuMulticastBindAddr, "cuMulticastBindAddr", 12010),
    [BIND_ADDRESS_2] = VARIANT(cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010),
    [BIND_MEMORY] = VARIANT(cuMulticastBindMem, "cuMulticastBindMem", 12010),
    [BIND_MEMORY_2] = VARIANT(cuMulticastBindMem_v2, "cuMulticastBindMem", 13010),
    [UNBIND] = DRIVER(cuMulticastUnbind, 12010),
    [NCCL_REGISTER] = LIBRARY(ncclCommRegister),
    [NCCL_DEREGISTER] = LIBRARY(ncclCommDeregister),
    [WINDOW_REGISTER] = LIBRARY(ncclCommWindowRegister),
    [WINDOW_DEREGISTER] = LIBRARY(ncclCommWindowDeregister),
    [VERBS_REGISTER] = LIBRARY(ibv_reg_mr),
    [VERBS_REGISTER_IOVA] = LIBRARY(ibv_reg_mr_iova),
    [VERBS_REGISTER_IOVA_2] = LIBRARY(ibv_reg_mr_iova2),
    [VERBS_DEREGISTER] = LIBRARY(ibv_dereg_mr),
    {0},
};

INTERPOSED(interpose_registrations);
