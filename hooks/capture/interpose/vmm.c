// vmm.c - physical memory that the job creates by virtual memory management.
//
// The hook's own handles never come by here: device/driver.c calls the real functions. Memory is freed when
// its handle was released as often as it was retained and its last mapping is unmapped, whichever comes
// last; many programs release a handle as soon as it is mapped. In the trace the handle stands for the
// address.
//
// A handle that the job gets of an address of an arena keeps its page there (arena/registered.h) until it is released.
//
// A handle that the job maps into a grant of a pool's source (arena/source.h) is that arena's memory from
// then on.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "arena/registered.h"
#include "arena/source.h"
#include "base/array.h"
#include "base/hook.h"
#include "base/lock.h"
#include "device/driver.h"
#include "interpose/interpose.h"

enum { BUCKETS = 4096 };

struct physical {
  driver_handle handle;
  uint32_t references, mappings;  // of the handle, which may name other memory once there are none
  bool host;
  int device;
  struct physical *next;
};

struct mapping {
  uint64_t addr, bytes;
  struct physical *of;
};

static struct lock lock;
static struct physical *buckets[BUCKETS];
static struct mapping *mappings;  // by address
static size_t mapping_count, mapping_room;

static struct physical **bucket_of(driver_handle handle) { return &buckets[(handle * 0x9e3779b97f4a7c15u) >> 52]; }

static struct physical *find(driver_handle handle) {
  for (struct physical *each = *bucket_of(handle); each != NULL; each = each->next) {
    if (each->handle == handle && each->references > 0) return each;
  }
  return NULL;
}

static void add(driver_handle handle, bool host, int device) {
  struct physical *made = malloc(sizeof *made);
  if (made == NULL) return;
  struct physical **bucket = bucket_of(handle);
  *made = (struct physical){.handle = handle, .references = 1, .host = host, .device = device, .next = *bucket};
  *bucket = made;
}

// Notes the end of memory of other libraries.
static void end(const struct call *call, struct physical *physical) {
  call_freed(call, physical->host ? MEMORY_HOST : MEMORY_DEVICE, (void *)(uintptr_t)physical->handle, physical->device, NULL);
  struct physical **link = bucket_of(physical->handle);
  while (*link != physical) link = &(*link)->next;
  *link = physical->next;
  free(physical);
}

static void end_if_unused(const struct call *call, struct physical *physical) {
  if (physical->references == 0 && physical->mappings == 0) end(call, physical);
}

// The index of the first mapping at or after addr.
static size_t first_at(uint64_t addr) {
  size_t low = 0, high = mapping_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (mappings[middle].addr < addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void add_mapping(uint64_t addr, uint64_t bytes, struct physical *of) {
  if (!array_reserve(&mappings, &mapping_room, mapping_count + 1, sizeof *mappings)) return;
  const size_t at = first_at(addr);
  memmove(mappings + at + 1, mappings + at, (mapping_count - at) * sizeof *mappings);
  mappings[at] = (struct mapping){addr, bytes, of};
  mapping_count++;
  of->mappings++;
}

static void remove_mappings(const struct call *call, uint64_t addr, uint64_t bytes) {
  const size_t first = first_at(addr);
  size_t end = first;
  for (; end < mapping_count && mappings[end].addr + mappings[end].bytes <= addr + bytes; end++) {
    mappings[end].of->mappings--;
    end_if_unused(call, mappings[end].of);
  }
  memmove(mappings + first, mappings + end, (mapping_count - end) * sizeof *mappings);
  mapping_count -= end - first;
}

WRAPPER(cuMemCreate, (driver_handle *handle, size_t bytes, const struct driver_properties *properties, unsigned long long flags), DRIVER(cuMemCreate, 10020)) {
  struct call *call = CALL(cuMemCreate);
  cuda_error (*real)(driver_handle *, size_t, const struct driver_properties *, unsigned long long) = call_enter(call);
  cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle, bytes, properties, flags);
  if (call_again(call, error, bytes)) error = real(handle, bytes, properties, flags);
  if (error == CUDA_OK && call->outermost && hook_on()) {
    const int located = driver_location_device(properties->location);
    const bool host = located < 0;
    const int device = host ? call_device() : located;
    lock_take(&lock);
    add(*handle, host, device);
    call_allocated(call, host ? MEMORY_HOST : MEMORY_DEVICE, (void *)(uintptr_t)*handle, bytes, device, NULL);
    lock_give(&lock);
  }
  call_leave();
  return error;
}

WRAPPER(cuMemRelease, (driver_handle handle), DRIVER(cuMemRelease, 10020)) {
  struct call *call = CALL(cuMemRelease);
  cuda_error (*real)(driver_handle) = call_enter(call);
  if (call->outermost && hook_on()) {
    lock_take(&lock);
    struct physical *physical = find(handle);
    if (physical != NULL) {
      physical->references--;
      end_if_unused(call, physical);
    }
    lock_give(&lock);
  }
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle);
  if (error == CUDA_OK && call->outermost) registered_remove((struct registration_key){REGISTERED_RETAINED, handle, 0});
  call_leave();
  return error;
}

WRAPPER(cuMemRetainAllocationHandle, (driver_handle *handle, void *addr), DRIVER(cuMemRetainAllocationHandle, 11000)) {
  struct call *call = CALL(cuMemRetainAllocationHandle);
  cuda_error (*real)(driver_handle *, void *) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(handle, addr);
  if (error == CUDA_OK && call->outermost && hook_on()) {
    lock_take(&lock);
    struct physical *physical = find(*handle);
    if (physical != NULL) physical->references++;
    lock_give(&lock);
    if (physical == NULL) registered_add((struct registration_key){REGISTERED_RETAINED, *handle, 0}, (uintptr_t)addr, 0, call->entry->name);
  }
  call_leave();
  return error;
}

static void note_mapping(const struct call *call, uint64_t addr, uint64_t bytes, driver_handle handle) {
  const bool of_arena = source_holds(addr);
  lock_take(&lock);
  struct physical *physical = find(handle);
  if (physical != NULL && of_arena && physical->mappings == 0)
    end(call, physical);
  else if (physical != NULL)
    add_mapping(addr, bytes, physical);
  lock_give(&lock);
  if (of_arena) source_mapped(addr, bytes);  // after the end of the handle: no instant has its bytes twice
}

WRAPPER(cuMemMap, (uint64_t addr, size_t bytes, size_t offset, driver_handle handle, unsigned long long flags), DRIVER(cuMemMap, 10020)) {
  struct call *call = CALL(cuMemMap);
  cuda_error (*real)(uint64_t, size_t, size_t, driver_handle, unsigned long long) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(addr, bytes, offset, handle, flags);
  if (error == CUDA_OK && call->outermost && hook_on()) note_mapping(call, addr, bytes, handle);
  call_leave();
  return error;
}

WRAPPER(cuMemUnmap, (uint64_t addr, size_t bytes), DRIVER(cuMemUnmap, 10020)) {
  struct call *call = CALL(cuMemUnmap);
  cuda_error (*real)(uint64_t, size_t) = call_enter(call);
  if (call->outermost && hook_on()) {
    lock_take(&lock);
    remove_mappings(call, addr, bytes);
    lock_give(&lock);
    source_unmaps(addr, bytes);
  }
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(addr, bytes);
  call_leave();
  return error;
}

