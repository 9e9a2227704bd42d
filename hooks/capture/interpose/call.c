// call.c - what all wrappers share: nesting, the caller's name, events, and a second attempt.
//
// If another library's allocation fails for want of memory, free memory of the arenas is unmapped and the
// call is made once more: a job that fits on the card without memprof must fit with it.
#define _GNU_SOURCE
#include "interpose/interpose.h"

#include <stdio.h>
#include <string.h>

#include "api.h"
#include "arena/arena.h"
#include "arena/reclaim.h"
#include "base/hook.h"
#include "base/library.h"
#include "device/driver_pools.h"
#include "device/otherlib.h"
#include "device/overhead.h"
#include "device/own_calls.h"
#include "memprof.h"
#include "spool/spool.h"
#include "watch/watch.h"

static __thread int depth;  // of wrappers

void *call_enter(struct call *call) {
  call->outermost = depth++ == 0 && !own_calls();
  if (depth == 1) otherlib_call_begin();
  return call_real(call);
}

void call_leave(void) {
  if (--depth == 0) otherlib_call_end();
}

int call_device(void) {
  static struct entry entry = {.name = "cudaGetDevice"};
  int device = 0;
  const struct driver *driver = driver_get();
  if (driver != NULL && driver->context_device(&device) == DRIVER_OK) return device;
  cuda_error (*chosen)(int *) = entry_real(&entry);
  return chosen != NULL && chosen(&device) == CUDA_OK ? device : 0;
}

int call_stream_device(const void *stream) {
  const struct driver *driver = driver_get();
  void *context, *current = NULL;
  int device = 0;
  if (driver == NULL || (uintptr_t)stream <= STREAM_PER_THREAD) return call_device();
  if (driver->stream_context((void *)(uintptr_t)stream, &context) != DRIVER_OK) return call_device();
  driver->context_get(&current);
  if (context == current || driver->context_push(context) != DRIVER_OK) return call_device();
  driver->context_device(&device);
  driver->context_pop(&current);
  return device;
}

// Callers, by return address, entry and kind of memory: the context of their events, and whether their memory
// may be served. A slot is written once and read without a lock. A library that is loaded where another
// one was unloaded is taken for the old one.
enum { CALLERS = 4096, PROBES = 16 };
struct caller {
  _Atomic uintptr_t key;
  _Atomic uint32_t known;  // KNOWN | COMMUNICATION | string id, written last
};
static struct caller callers[CALLERS];
#define KNOWN 0x80000000u
#define COMMUNICATION 0x40000000u
#define NATIVE 0x20000000u

static bool communicates(const char *library) {
  static const char *const prefixes[] = {"libnccl", "libnvshmem", "libucx", "libucp", "libuct"};
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
    if (strncmp(library, prefixes[i], strlen(prefixes[i])) == 0) return true;
  }
  return false;
}

// What is known of a caller: flags and the string id of its context.
static uint32_t describe(const struct call *call, enum call_memory memory) {
  static const char *const fields[] = {
      [MEMORY_DEVICE] = "", [MEMORY_MANAGED] = "\tmanaged=1", [MEMORY_HOST] = "\thost=1", [MEMORY_POOL] = "\tpool=1"};
  char library[LIBRARY_NAME], text[512];
  if (!library_name(call->from, library)) strcpy(library, "unknown");
  const char *name = call->entry->asked != NULL ? call->entry->asked : call->entry->name;
  const size_t length = strlen(name);
  const bool suffix = length > 5 && strcmp(name + length - 5, "_ptsz") == 0;
  snprintf(text, sizeof text, "call=%.*s\tlibrary=%s%s", (int)(suffix ? length - 5 : length), name, library, fields[memory]);
  if (communicates(library)) spool_note_libraries();
  return KNOWN | (communicates(library) ? COMMUNICATION : 0) | (watch_is_of(library) ? NATIVE : 0) | spool_string(text);
}

// Set by memprof_call_as: replaces what is known of every caller of this thread; 0: not set.
static __thread uint32_t repeated;

// Whether the context names a communication library.
static bool names_communication(const char *context) {
  const char *library = strstr(context, "library=");
  return library != NULL && communicates(library + strlen("library="));
}

void memprof_call_as(const char *context) {
  repeated = 0;
  if (context != NULL && hook_on()) repeated = KNOWN | (names_communication(context) ? COMMUNICATION : 0) | spool_string(context);
}

static uint32_t caller_of(const struct call *call, enum call_memory memory) {
  if (repeated != 0) return repeated;
  // Addresses have 48 bits; the entries lie side by side in the library's data; kinds are few.
  const uintptr_t key = (uintptr_t)call->from << 16 ^ ((uintptr_t)call->entry >> 3 & 0x3fff) << 2 ^ memory;
  size_t at = (key * 0x9e3779b97f4a7c15u) >> 52;
  for (int i = 0; i < PROBES; i++, at = (at + 1) % CALLERS) {
    uintptr_t found = atomic_load_explicit(&callers[at].key, memory_order_relaxed);
    if (found == 0 && atomic_compare_exchange_strong(&callers[at].key, &found, key)) found = key;
    if (found != key) continue;
    uint32_t known = atomic_load_explicit(&callers[at].known, memory_order_acquire);
    if (known == 0) {
      known = describe(call, memory);
      atomic_store_explicit(&callers[at].known, known, memory_order_release);
    }
    return known;
  }
  return describe(call, memory);
}

bool call_from_communication(const struct call *call) { return (caller_of(call, MEMORY_DEVICE) & COMMUNICATION) != 0; }

// Writes an event of a call, unless a native allocator made it, which reports its segments itself.
static void note(const struct call *call, enum memprof_kind kind, enum call_memory memory, const void *ptr, size_t bytes, int device,
                 const void *stream) {
  hook_start();
  const uint32_t caller = caller_of(call, memory);
  if ((caller & NATIVE) != 0 && watch_reports()) return;
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = device,
      .arena = MEMPROF_NO_ARENA,
      .stream = (int64_t)(intptr_t)stream,
      .addr = (uintptr_t)ptr,
      .requested = bytes,
      .provided = bytes,
      .context = caller & ~(KNOWN | COMMUNICATION | NATIVE),
  });
}

void call_allocated(const struct call *call, enum call_memory memory, const void *ptr, size_t bytes, int device, const void *stream) {
  if (!call->outermost || ptr == NULL || !hook_on()) return;
  if (device < 0) device = call_stream_device(stream);
  note(call, MEMPROF_EXTERNAL_ALLOC, memory, ptr, bytes, device, stream);
  if (memory == MEMORY_DEVICE || memory == MEMORY_POOL) otherlib_add((uintptr_t)ptr, bytes, device, memory == MEMORY_POOL);
  if (memory == MEMORY_POOL) {
    driver_pools_used(device);
    overhead_pools(device);
  }
}

void call_freed(const struct call *call, enum call_memory memory, const void *ptr, int device, const void *stream) {
  if (!call->outermost || ptr == NULL || !hook_on()) return;
  note(call, MEMPROF_EXTERNAL_FREE, memory, ptr, 0, device < 0 ? call_stream_device(stream) : device, stream);
  otherlib_remove((uintptr_t)ptr);
}

cuda_error call_allocate_flags(struct call *call, enum call_memory memory, void **ptr, size_t bytes, unsigned flags) {
  cuda_error (*real)(void **, size_t, unsigned) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(ptr, bytes, flags);
  if (error == CUDA_OK) call_allocated(call, memory, *ptr, bytes, -1, NULL);
  call_leave();
  return error;
}

cuda_error call_release(struct call *call, enum call_memory memory, void *ptr) {
  cuda_error (*real)(void *) = call_enter(call);
  cuda_error error = CUDA_NOT_FOUND;
  if (real != NULL) {
    // Before the call: afterwards another thread may be given the address.
    call_freed(call, memory, ptr, -1, NULL);
    error = real(ptr);
  }
  call_leave();
  return error;
}

void call_ended(const struct call *call, const void *ptr, int device) {
  note(call, MEMPROF_EXTERNAL_FREE, MEMORY_DEVICE, ptr, 0, device, NULL);
}

// Clears the error of the first attempt, which the runtime remembers: a framework that asks for errors after
// its next kernel would take it for the kernel's. The driver remembers no errors.
static void forget_error(const struct call *call) {
  cuda_error (*last)(void) = call_sibling(call, "cudaGetLastError");
  if (last != NULL) last();
}

bool call_again(const struct call *call, cuda_error error, size_t bytes) {
  if (error != CUDA_OUT_OF_MEMORY || !call->outermost || !hook_on() || !reclaim_for_other_library(call_device(), bytes)) return false;
  if (call->entry->asked == NULL) forget_error(call);
  return true;
}

// Memory of the runtime for devices that api.c cannot serve. It is recorded as another library's.

static _Atomic bool handed_out;

static void *fall_back_malloc(size_t bytes, int device) {
  static struct entry set_entry = {.name = "cudaSetDevice"};
  static struct entry entry = {.name = "cudaMalloc"};
  struct call call = {.entry = &entry, .from = __builtin_return_address(0)};
  cuda_error (*set)(int) = entry_real(&set_entry);
  cuda_error (*real)(void **, size_t) = entry_real(&entry);
  if (set == NULL || real == NULL) return NULL;
  const int before = call_device();
  void *ptr = NULL;
  if (depth++ == 0) otherlib_call_begin();
  if (set(device) == CUDA_OK && real(&ptr, bytes) == CUDA_OK) {
    note(&call, MEMPROF_EXTERNAL_ALLOC, MEMORY_DEVICE, ptr, bytes, device, NULL);
    otherlib_add((uintptr_t)ptr, bytes, device, false);
    atomic_store(&handed_out, true);
  }
  if (before != device) set(before);
  call_leave();
  return ptr;
}

static bool fall_back_free(void *ptr) {
  static struct entry entry = {.name = "cudaFree"};
  struct call call = {.entry = &entry, .from = __builtin_return_address(0)};
  if (!atomic_load(&handed_out)) return false;
  cuda_error (*real)(void *) = entry_real(&entry);
  if (real == NULL) return false;
  if (depth++ == 0) otherlib_call_begin();
  note(&call, MEMPROF_EXTERNAL_FREE, MEMORY_DEVICE, ptr, 0, call_device(), NULL);
  otherlib_remove((uintptr_t)ptr);
  real(ptr);
  call_leave();
  return true;
}

static void offer(void) {
  static const struct api_fallback fallback = {fall_back_malloc, fall_back_free};
  api_set_fallback(&fallback);
}

HOOK_PART(.order = HOOK_REST, .start = offer);
