// extent.c - physical device memory: extents of one sparse memfd for each device.
//
// A handle is not a file, so thousands of handles need no descriptors, and extents mapped side
// by side are one mapping to the kernel. Offsets in the memfd are never reused: 63 bits are
// enough for any run. When the last handle and the last mapping of an extent are gone, its
// pages are punched out of the memfd and its bytes are free on the device, as on a card.
// A handle's number contains the generation of its slot, so a stale number is detected.
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct slot {
  struct sim_extent *extent;  // NULL if the slot is free
  uint32_t generation;        // of the slot's extent, or of its last one
  uint32_t next_free;
};

static struct slot *slots;
static uint32_t slot_count, slot_capacity, first_free = UINT32_MAX;

static bool take_slot(struct sim_extent *extent) {
  if (first_free == UINT32_MAX) {
    if (slot_count == slot_capacity) {
      uint32_t capacity = slot_capacity == 0 ? 256 : 2 * slot_capacity;
      struct slot *grown = realloc(slots, capacity * sizeof *grown);
      if (grown == NULL) return false;
      slots = grown;
      slot_capacity = capacity;
    }
    slots[slot_count] = (struct slot){.next_free = UINT32_MAX};
    first_free = slot_count++;
  }
  extent->slot = first_free;
  first_free = slots[extent->slot].next_free;
  slots[extent->slot].extent = extent;
  slots[extent->slot].generation++;
  return true;
}

// The file is sparse, so it grows by much at a time, up to the limit of the process: a signal ends one that goes beyond.
static bool make_room(struct CUctx_st *device, uint64_t size) {
  const uint64_t step = (uint64_t)16 << 30, needed = device->end + size;
  const int file = sim_memfd(device);
  if (file < 0 || needed <= device->length) return file >= 0;
  struct rlimit limit;
  uint64_t length = needed + step;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && length > limit.rlim_cur) length = needed;
  if (ftruncate(file, (off_t)length) != 0) return false;
  device->length = length;
  return true;
}

CUresult sim_extent_create(struct CUctx_st *device, uint64_t size, struct sim_extent **out) {
  if (size > sim_settings()->memory - device->used) return CUDA_ERROR_OUT_OF_MEMORY;
  struct sim_extent *extent = calloc(1, sizeof *extent);
  if (extent == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!make_room(device, size) || !take_slot(extent)) {
    free(extent);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  extent->device = device->ordinal;
  extent->offset = device->end;
  extent->size = size;
  extent->handles = 1;
  device->end += size;
  device->used += size;
  *out = extent;
  return CUDA_SUCCESS;
}

// Memory of another process counts there, not here: a card has it once.
CUresult sim_extent_import(int device, int file, uint64_t offset, struct sim_extent **out) {
  struct sim_extent *extent = calloc(1, sizeof *extent);
  const int copy = extent != NULL ? fcntl(file, F_DUPFD_CLOEXEC, 0) : -1;
  if (copy < 0 || !take_slot(extent)) {
    if (copy >= 0) close(copy);
    free(extent);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  extent->device = device;
  extent->offset = offset;
  extent->handles = 1;
  extent->foreign = true;
  extent->file = copy;
  *out = extent;
  return CUDA_SUCCESS;
}

int sim_extent_file(const struct sim_extent *extent) { return extent->foreign ? extent->file : sim_memfd(sim_device(extent->device)); }

static void free_pages(struct sim_extent *extent) {
  struct CUctx_st *device = sim_device(extent->device);
  // If punching fails, the host keeps unreachable pages, which does not affect the simulation.
  (void)fallocate(sim_memfd(device), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)extent->offset, (off_t)extent->size);
  device->used -= extent->size;
}

void sim_extent_release(struct sim_extent *extent) {
  if (extent->handles != 0 || extent->mappings != 0) return;
  if (extent->foreign)
    close(extent->file);
  else
    free_pages(extent);
  slots[extent->slot].extent = NULL;
  slots[extent->slot].next_free = first_free;
  first_free = extent->slot;
  free(extent);
}

CUmemGenericAllocationHandle sim_handle(const struct sim_extent *extent) {
  return (CUmemGenericAllocationHandle)slots[extent->slot].generation << 32 | extent->slot;
}

struct sim_extent *sim_extent_of(CUmemGenericAllocationHandle handle) {
  uint32_t slot = (uint32_t)handle;
  if (slot >= slot_count || slots[slot].generation != handle >> 32) return NULL;
  struct sim_extent *extent = slots[slot].extent;
  return extent != NULL && extent->handles > 0 ? extent : NULL;
}

struct sim_extent *sim_extent_at(int device, uint64_t offset) {
  for (uint32_t i = 0; i < slot_count; i++) {
    struct sim_extent *extent = slots[i].extent;
    if (extent != NULL && !extent->foreign && extent->device == device && extent->offset == offset) return extent;
  }
  return NULL;
}
