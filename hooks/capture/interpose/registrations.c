// registrations.c - wrappers of the calls by which others come to know the physical pages of memory.
//
// They pass every call on as it is. Memory of an arena stays mapped where it is from before the call until the one that
// ends it; where nothing ends it (a descriptor for another process or a network card was made), for good. What a card's
// driver learns without a call that is wrapped here, as by gdrcopy, is not seen.
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>

#include "arena/arena.h"
#include "arena/registered.h"
#include "base/hook.h"
#include "base/problem.h"
#include "interpose/interpose.h"

enum { NO_NCCL = 2 };  // ncclSystemError

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

WRAPPER(cuMemExportToShareableHandle, (void *shareable, driver_handle handle, int type, unsigned long long flags), DRIVER(cuMemExportToShareableHandle, 10020)) {
  struct call *call = CALL(cuMemExportToShareableHandle);
  cuda_error (*real)(void *, driver_handle, int, unsigned long long) = call_enter(call);
  uint64_t addr, bytes;
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(shareable, handle, type, flags);
  // The job has the handle of an arena's memory only if it asked for it.
  if (error == CUDA_OK && registered_find((struct registration_key){REGISTERED_RETAINED, handle, 0}, &addr, &bytes)) registered_keep(addr, bytes, call->entry->name);
  call_leave();
  return error;
}

WRAPPER(cuMemGetHandleForAddressRange, (void *handle, uint64_t addr, size_t bytes, int type, unsigned long long flags), DRIVER(cuMemGetHandleForAddressRange, 11070)) {
  struct call *call = CALL(cuMemGetHandleForAddressRange);
  cuda_error (*real)(void *, uint64_t, size_t, int, unsigned long long) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle, addr, bytes, type, flags);
  if (error == CUDA_OK) registered_keep(addr, bytes, call->entry->name);
  call_leave();
  return error;
}

// The caller gets nothing but an invalid argument.
static void report_ipc(uint64_t addr, cuda_error error) {
  static atomic_bool reported;
  if (!hook_on() || arena_of(addr) == NULL || atomic_exchange(&reported, true)) return;
  problem("cuIpcGetMemHandle: error %d for memory that memprof serves, since CUDA shares no memory that is mapped by handles this way; "
          "start vLLM or SGLang with --disable-custom-all-reduce, or record --allocator native", error);
}

// Drivers so far refuse it for memory that is mapped by handles.
WRAPPER(cuIpcGetMemHandle, (void *handle, uint64_t addr), DRIVER(cuIpcGetMemHandle, 4010)) {
  struct call *call = CALL(cuIpcGetMemHandle);
  cuda_error (*real)(void *, uint64_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle, addr);
  if (error == CUDA_OK)
    registered_keep(addr, 0, call->entry->name);
  else
    report_ipc(addr, error);
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

// Registers memory that is about to be bound: of an address, or of a handle that the job got of one. The whole handle, since its address
// is not known exactly. *addr is where it begins.
static bool add_address(const struct call *call, uint64_t at, uint64_t bytes, uint64_t *addr) {
  *addr = at;
  return registered_add(under_way(REGISTERED_MULTICAST, call), at, bytes, "cuMulticastBindAddr");
}

static bool add_handle(const struct call *call, driver_handle handle, uint64_t bytes, uint64_t *addr) {
  return registered_find((struct registration_key){REGISTERED_RETAINED, handle, 0}, addr, &bytes) &&
         registered_add(under_way(REGISTERED_MULTICAST, call), *addr, bytes, "cuMulticastBindMem");
}

// BINDS wraps a function that binds memory, which `add` registers, to a multicast group. PARAMETERS and ARGUMENTS are those of the
// function, in parentheses; `on` is the device.
#define BINDS(function, kind, PARAMETERS, ARGUMENTS, add, memory, on)                                \
  WRAPPER(function, PARAMETERS, kind) {                                                              \
    struct call *call = CALL(function);                                                              \
    cuda_error(*real) PARAMETERS = call_enter(call);                                                 \
    uint64_t at = 0;                                                                                 \
    const bool ours = add(call, memory, bytes, &at);                                                 \
    const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real ARGUMENTS;                         \
    finish(ours, under_way(REGISTERED_MULTICAST, call), bound(group, offset, on), error == CUDA_OK); \
    call_leave();                                                                                    \
    return error;                                                                                    \
  }

BINDS(cuMulticastBindAddr, DRIVER(cuMulticastBindAddr, 12010), (uint64_t group, size_t offset, uint64_t addr, size_t bytes, unsigned long long flags),
      (group, offset, addr, bytes, flags), add_address, addr, device_of(at))
BINDS(cuMulticastBindAddr_v2, DRIVER(cuMulticastBindAddr, 13010), (uint64_t group, int device, size_t offset, uint64_t addr, size_t bytes, unsigned long long flags),
      (group, device, offset, addr, bytes, flags), add_address, addr, device)
BINDS(cuMulticastBindMem, DRIVER(cuMulticastBindMem, 12010), (uint64_t group, size_t offset, driver_handle handle, size_t from, size_t bytes, unsigned long long flags),
      (group, offset, handle, from, bytes, flags), add_handle, handle, device_of(at))
BINDS(cuMulticastBindMem_v2, DRIVER(cuMulticastBindMem, 13010), (uint64_t group, int device, size_t offset, driver_handle handle, size_t from, size_t bytes, unsigned long long flags),
      (group, device, offset, handle, from, bytes, flags), add_handle, handle, device)

WRAPPER(cuMulticastUnbind, (uint64_t group, int device, size_t offset, size_t bytes), DRIVER(cuMulticastUnbind, 12010)) {
  struct call *call = CALL(cuMulticastUnbind);
  cuda_error (*real)(uint64_t, int, size_t, size_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(group, device, offset, bytes);
  if (error == CUDA_OK) registered_remove(bound(group, offset, device));
  call_leave();
  return error;
}

// NCCL's. A window that is registered within a group of calls gets its name when the group ends; until its communicator
// is destroyed it then stays registered.

// REGISTERS wraps a function that registers memory under *out, and ENDS the one that undoes that. PARAMETERS and ARGUMENTS are those
// of the function, in parentheses.
#define REGISTERS(function, PARAMETERS, ARGUMENTS, out)                                                                   \
  WRAPPER_OF(int, function, PARAMETERS, RUNTIME) {                                                                        \
    struct call *call = CALL(function);                                                                                   \
    int(*real) PARAMETERS = call_real(call);                                                                              \
    if (real == NULL) return NO_NCCL;                                                                                     \
    const bool ours = registered_add(under_way(REGISTERED_NCCL, call), (uintptr_t)start, bytes, call->entry->name);       \
    const int result = real ARGUMENTS;                                                                                    \
    finish(ours, under_way(REGISTERED_NCCL, call), named(result == 0 && out != NULL ? *out : NULL, comm), result == 0); \
    return result;                                                                                                        \
  }
#define ENDS(function)                                            \
  WRAPPER_OF(int, function, (void *comm, void *name), RUNTIME) {  \
    int (*real)(void *, void *) = call_real(CALL(function));      \
    const int result = real == NULL ? NO_NCCL : real(comm, name); \
    if (result == 0) registered_remove(named(name, comm));        \
    return result;                                                \
  }

static struct registration_key named(const void *name, const void *comm) {
  return (struct registration_key){REGISTERED_NCCL, (uint64_t)(uintptr_t)name, (uint64_t)(uintptr_t)comm};
}

REGISTERS(ncclCommRegister, (void *comm, void *start, size_t bytes, void **handle), (comm, start, bytes, handle), handle)
REGISTERS(ncclCommWindowRegister, (void *comm, void *start, size_t bytes, void **window, int flags), (comm, start, bytes, window, flags), window)
ENDS(ncclCommDeregister)
ENDS(ncclCommWindowDeregister)

// RELEASES wraps a function that ends a communicator, and its registrations with it.
#define RELEASES(function)                                                          \
  WRAPPER_OF(int, function, (void *comm), RUNTIME) {                                \
    int (*real)(void *) = call_real(CALL(function));                                \
    const int result = real == NULL ? NO_NCCL : real(comm);                         \
    while (registered_end_of(REGISTERED_NCCL, (uint64_t)(uintptr_t)comm)) continue; \
    return result;                                                                  \
  }

RELEASES(ncclCommDestroy)
RELEASES(ncclCommAbort)

// Those of libibverbs, which network cards reach GPU memory by (nvidia-peermem).

static struct registration_key region(const void *region) { return (struct registration_key){REGISTERED_NETWORK, (uint64_t)(uintptr_t)region, 0}; }

// REGION wraps a function that makes a memory region. PARAMETERS and ARGUMENTS are those of the function, in parentheses.
#define REGION(function, PARAMETERS, ARGUMENTS)                                                                         \
  WRAPPER_OF(void *, function, PARAMETERS, RUNTIME) {                                                                   \
    struct call *call = CALL(function);                                                                                 \
    void *(*real) PARAMETERS = call_real(call);                                                                         \
    if (real == NULL) return errno = ENOSYS, NULL;                                                                      \
    const bool ours = registered_add(under_way(REGISTERED_NETWORK, call), (uintptr_t)start, bytes, call->entry->name);  \
    void *made = real ARGUMENTS;                                                                                        \
    finish(ours, under_way(REGISTERED_NETWORK, call), region(made), made != NULL);                                      \
    return made;                                                                                                        \
  }

REGION(ibv_reg_mr, (void *domain, void *start, size_t bytes, int access), (domain, start, bytes, access))
REGION(ibv_reg_mr_iova, (void *domain, void *start, size_t bytes, uint64_t at, int access), (domain, start, bytes, at, access))
REGION(ibv_reg_mr_iova2, (void *domain, void *start, size_t bytes, uint64_t at, unsigned access), (domain, start, bytes, at, access))

WRAPPER_OF(int, ibv_dereg_mr, (void *made), RUNTIME) {
  int (*real)(void *) = call_real(CALL(ibv_dereg_mr));
  if (real == NULL) return ENOSYS;
  const int error = real(made);
  if (error == 0) registered_remove(region(made));
  return error;
}

