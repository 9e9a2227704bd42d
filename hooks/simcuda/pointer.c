// pointer.c - attributes of an address. Mapped memory belongs to no context, and its range is
// the whole mapping.
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>

enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12, MAPPED = 13 };
enum { TYPE_DEVICE = 2 };

// The size of an attribute's value in bytes; 0 if there is no such attribute.
static size_t value_of(uint64_t addr, int attribute, uint64_t *value) {
  uint64_t start, size;
  const struct sim_extent *extent = sim_mapping(addr, &start, &size);
  if (extent == NULL) return 0;
  switch (attribute) {
    case CONTEXT: *value = sim_plain(start) ? (uint64_t)(uintptr_t)sim_device(extent->device) : 0; return sizeof(void *);
    case MEMORY_TYPE: *value = TYPE_DEVICE; return sizeof(unsigned);
    case DEVICE_POINTER: *value = addr; return sizeof addr;
    case IS_MANAGED: *value = 0; return sizeof(unsigned);
    case DEVICE_ORDINAL: *value = (uint64_t)extent->device; return sizeof(int);
    case RANGE_START: *value = start; return sizeof start;
    case RANGE_SIZE: *value = size; return sizeof size;
    case MAPPED: *value = 1; return sizeof(char);
    default: return 0;
  }
}

SIM_API CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr addr) {
  CUresult result = sim_enter("cuPointerGetAttribute", true);
  uint64_t value = 0;
  size_t size = value_of(addr, attribute, &value);
  if (result == CUDA_SUCCESS && (out == NULL || size == 0)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) memcpy(out, &value, size);  // little-endian, as all that CUDA runs on
  return sim_leave("cuPointerGetAttribute", result, "attribute=%d addr=0x%llx", attribute, addr);
}

// A host address has no attributes; asking is not an error.
SIM_API CUresult cuPointerGetAttributes(unsigned int count, const int *attributes, void **out, CUdeviceptr addr) {
  CUresult result = sim_enter("cuPointerGetAttributes", true);
  if (result == CUDA_SUCCESS && (attributes == NULL || out == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++) {
    uint64_t value = 0;
    memcpy(out[i], &value, value_of(addr, attributes[i], &value));
  }
  return sim_leave("cuPointerGetAttributes", result, "count=%u addr=0x%llx", count, addr);
}
