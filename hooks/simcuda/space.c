// space.c - the devices' address space: reservations, and the mappings in them.
//
// A reservation is a range of this process's addresses without access (PROT_NONE). A mapping
// replaces a part of it by pages of the device's memfd. So two mappings of one extent show the
// same bytes, and an access before the mapping or after it faults, as on a card. Both lists are
// arrays sorted by address.
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
  uint64_t addr, size;
  struct sim_extent *extent;  // of a mapping; NULL for a reservation
  uint32_t readers, writers;  // devices with access, a bit each
};

struct ranges {
  struct range *items;
  size_t count, capacity;
};

static struct ranges reservations, mappings;

// The number of ranges that end at or before addr: the index of the first that could contain it.
static size_t before(const struct ranges *list, uint64_t addr) {
  size_t low = 0, high = list->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (list->items[middle].addr + list->items[middle].size <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static struct range *containing(const struct ranges *list, uint64_t addr) {
  size_t i = before(list, addr);
  return i < list->count && list->items[i].addr <= addr ? &list->items[i] : NULL;
}

static bool room_for_one(struct ranges *list) {
  if (list->count < list->capacity) return true;
  size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
  struct range *grown = realloc(list->items, capacity * sizeof *grown);
  if (grown == NULL) return false;
  list->items = grown;
  list->capacity = capacity;
  return true;
}

static void insert(struct ranges *list, struct range range) {
  size_t i = before(list, range.addr);
  memmove(list->items + i + 1, list->items + i, (list->count - i) * sizeof range);
  list->items[i] = range;
  list->count++;
}

static void erase(struct ranges *list, size_t first, size_t count) {
  if (count == 0) return;  // `items` may be NULL
  memmove(list->items + first, list->items + first + count, (list->count - first - count) * sizeof *list->items);
  list->count -= count;
}

static void *hold(void *at, uint64_t size, int fixed) {
  return mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

CUresult sim_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *addr) {
  if (size >= (uint64_t)1 << 47 || alignment >= (uint64_t)1 << 47) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!room_for_one(&reservations)) return CUDA_ERROR_OUT_OF_MEMORY;
  char *start = MAP_FAILED;
  if (hint != 0 && hint % alignment == 0) start = hold((void *)(uintptr_t)hint, size, MAP_FIXED_NOREPLACE);
  if (start == MAP_FAILED) {
    char *wide = hold(NULL, size + alignment, 0);
    if (wide == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t lead = -(uint64_t)(uintptr_t)wide & (alignment - 1);
    start = wide + lead;
    if (lead > 0) munmap(wide, lead);
    munmap(start + size, alignment - lead);
  }
  insert(&reservations, (struct range){.addr = (uint64_t)(uintptr_t)start, .size = size});
  *addr = (uint64_t)(uintptr_t)start;
  return CUDA_SUCCESS;
}

CUresult sim_unreserve(uint64_t addr, uint64_t size) {
  struct range *found = containing(&reservations, addr);
  if (found == NULL || found->addr != addr || found->size != size) return CUDA_ERROR_INVALID_VALUE;
  size_t first = before(&mappings, addr);
  if (first < mappings.count && mappings.items[first].addr < addr + size) return CUDA_ERROR_INVALID_VALUE;
  munmap((void *)(uintptr_t)addr, size);
  erase(&reservations, (size_t)(found - reservations.items), 1);
  return CUDA_SUCCESS;
}

CUresult sim_map(uint64_t addr, struct sim_extent *extent) {
  struct range *home = containing(&reservations, addr);
  if (home == NULL || extent->size > home->addr + home->size - addr) return CUDA_ERROR_INVALID_VALUE;
  size_t at = before(&mappings, addr);
  if (at < mappings.count && mappings.items[at].addr < addr + extent->size) return CUDA_ERROR_INVALID_VALUE;
  if (!room_for_one(&mappings)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (mmap((void *)(uintptr_t)addr, extent->size, PROT_NONE, MAP_SHARED | MAP_FIXED,
           sim_extent_file(extent), (off_t)extent->offset) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  insert(&mappings, (struct range){.addr = addr, .size = extent->size, .extent = extent});
  extent->mappings++;
  return CUDA_SUCCESS;
}

// The mappings within [addr, addr+size), which must not cut one. There may be gaps between them.
static bool whole_mappings(uint64_t addr, uint64_t size, size_t *first, size_t *count) {
  *first = before(&mappings, addr);
  size_t end = *first;
  while (end < mappings.count && mappings.items[end].addr < addr + size) {
    if (mappings.items[end].addr < addr) return false;
    if (mappings.items[end].addr + mappings.items[end].size > addr + size) return false;
    end++;
  }
  *count = end - *first;
  return true;
}

static uint64_t end_of(size_t mapping) { return mappings.items[mapping].addr + mappings.items[mapping].size; }

// The host accesses memory for every device, so a page is accessible if it is to one device.
static int protection_of(const struct range *range) { return range->writers != 0 ? PROT_READ | PROT_WRITE : range->readers != 0 ? PROT_READ : PROT_NONE; }

// Of mappings that lie side by side and have one protection, the one behind the last: the kernel is called once for all of them.
static size_t run_end(size_t first, size_t end) {
  size_t i = first + 1;
  while (i < end && mappings.items[i].addr == end_of(i - 1) && protection_of(&mappings.items[i]) == protection_of(&mappings.items[first])) i++;
  return i;
}

CUresult sim_unmap(uint64_t addr, uint64_t size) {
  size_t first, count;
  if (containing(&reservations, addr) == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (!whole_mappings(addr, size, &first, &count)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = first; i < first + count;) {
    const size_t end = run_end(i, first + count);
    const uint64_t start = mappings.items[i].addr;
    if (hold((void *)(uintptr_t)start, end_of(end - 1) - start, MAP_FIXED) == MAP_FAILED) return CUDA_ERROR_UNMAP_FAILED;
    for (; i < end; i++) {
      mappings.items[i].extent->mappings--;
      sim_extent_release(mappings.items[i].extent);
    }
  }
  erase(&mappings, first, count);
  return CUDA_SUCCESS;
}

CUresult sim_protect(uint64_t addr, uint64_t size, int device, int flags) {
  size_t first, count;
  if (!whole_mappings(addr, size, &first, &count) || count == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t covered = 0;
  for (size_t i = first; i < first + count; i++) covered += mappings.items[i].size;
  if (covered != size) return CUDA_ERROR_INVALID_VALUE;
  uint32_t bit = (uint32_t)1 << device;
  for (size_t i = first; i < first + count; i++) {
    struct range *range = &mappings.items[i];
    range->readers = (flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0 ? range->readers | bit : range->readers & ~bit;
    range->writers = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? range->writers | bit : range->writers & ~bit;
  }
  for (size_t i = first, end; i < first + count; i = end) {
    const uint64_t start = mappings.items[i].addr;
    end = run_end(i, first + count);
    if (mprotect((void *)(uintptr_t)start, end_of(end - 1) - start, protection_of(&mappings.items[i])) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

bool sim_accessible(uint64_t addr, uint64_t size, bool write) {
  while (size > 0) {
    struct range *range = containing(&mappings, addr);
    if (range == NULL || (write ? range->writers : range->readers) == 0) return false;
    uint64_t here = range->addr + range->size - addr;
    if (here >= size) return true;
    addr += here;
    size -= here;
  }
  return true;
}

bool sim_reserved(uint64_t addr) { return containing(&reservations, addr) != NULL; }

struct sim_extent *sim_mapping(uint64_t addr, uint64_t *start, uint64_t *size) {
  struct range *range = containing(&mappings, addr);
  if (range == NULL) return NULL;
  *start = range->addr;
  *size = range->size;
  return range->extent;
}

int sim_access_of(uint64_t addr, int device) {
  struct range *range = containing(&mappings, addr);
  if (range == NULL) return -1;
  if ((range->writers >> device & 1) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return (range->readers >> device & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}
