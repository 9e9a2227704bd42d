// pool.c - memory pools and arrays.
//
// A pool keeps freed memory up to its release threshold, as a number of bytes that the next
// allocations use first. Arrays use bytes of the device and have no address.
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>

enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5, USED_CURRENT = 7 };  // CU_MEMPOOL_ATTR_...

struct CUmemPoolHandle_st {
  int device;
  bool made;  // by cuMemPoolCreate, not a device's default
  uint64_t used, kept, threshold;
  struct sim_extent *idle;  // of `kept` bytes
};

// The live allocations of pools.
struct pooled {
  uint64_t addr, size;
  CUmemoryPool pool;
  struct pooled *next;
};

static struct CUmemPoolHandle_st defaults[SIM_MAX_DEVICES];
static struct pooled *all_pooled;

static void keep(CUmemoryPool pool, uint64_t bytes) {
  sim_uncharge(&pool->idle);
  pool->kept = bytes;
  if (sim_charge(sim_device(pool->device), bytes, &pool->idle) != CUDA_SUCCESS) pool->kept = 0;
}

// Allocates, from the kept bytes first. The size is that of the mapping.
static CUresult allocate(CUmemoryPool pool, size_t size, uint64_t *addr) {
  uint64_t start, taken = 0;
  struct pooled *entry = calloc(1, sizeof *entry);
  if (entry == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t kept = pool->kept;
  keep(pool, 0);
  CUresult result = sim_allocate(size, addr);
  if (result == CUDA_SUCCESS) sim_mapping(*addr, &start, &taken);
  keep(pool, kept > taken ? kept - taken : 0);
  if (result != CUDA_SUCCESS) {
    free(entry);
    return result;
  }
  pool->used += taken;
  *entry = (struct pooled){*addr, taken, pool, all_pooled};
  all_pooled = entry;
  return CUDA_SUCCESS;
}

void sim_freed(uint64_t addr) {
  for (struct pooled **link = &all_pooled; *link != NULL; link = &(*link)->next) {
    struct pooled *entry = *link;
    if (entry->addr != addr) continue;
    *link = entry->next;
    entry->pool->used -= entry->size;
    const uint64_t kept = entry->pool->kept + entry->size;
    keep(entry->pool, kept < entry->pool->threshold ? kept : entry->pool->threshold);
    free(entry);
    return;
  }
}

CUresult sim_allocate_pooled(uint64_t size, uint64_t *addr) {
  struct CUctx_st *device = sim_current();
  if (device == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  defaults[device->ordinal].device = device->ordinal;
  return allocate(&defaults[device->ordinal], size, addr);
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
  CUresult result = sim_enter("cuMemPoolGetAttribute", true);
  if (result == CUDA_SUCCESS) result = sim_forbidden();
  if (result == CUDA_SUCCESS && (pool == NULL || value == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    switch (attribute) {
      case RELEASE_THRESHOLD: *(uint64_t *)value = pool->threshold; break;
      case RESERVED_CURRENT: *(uint64_t *)value = pool->used + pool->kept; break;
      case USED_CURRENT: *(uint64_t *)value = pool->used; break;
      default: result = CUDA_ERROR_INVALID_VALUE;
    }
  }
  return sim_leave("cuMemPoolGetAttribute", result, "attribute=%d", attribute);
}

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, const void *value) {
  CUresult result = sim_enter("cuMemPoolSetAttribute", true);
  if (result == CUDA_SUCCESS && (pool == NULL || value == NULL || attribute != RELEASE_THRESHOLD)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) pool->threshold = *(const uint64_t *)value;
  return sim_leave("cuMemPoolSetAttribute", result, "attribute=%d", attribute);
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  CUresult result = sim_enter("cuDeviceGetDefaultMemPool", true);
  if (result == CUDA_SUCCESS && pool == NULL) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && sim_device(device) == NULL) result = CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS) {
    defaults[device].device = device;
    *pool = &defaults[device];
  }
  return sim_leave("cuDeviceGetDefaultMemPool", result, "device=%d", device);
}

// The driver's own pool for a place and a kind of memory. What is not a device's is taken from device 0.
static CUmemoryPool pool_for(const CUmemLocation *location, int type) {
  static struct CUmemPoolHandle_st managed, of_host, of_domains[SIM_MAX_DEVICES][2];
  const struct CUctx_st *device = sim_located(location);
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return &managed;
  if (device == NULL) return &of_host;
  CUmemoryPool pool = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? &defaults[device->ordinal] : &of_domains[device->ordinal][location->id >> 8];
  pool->device = device->ordinal;
  return pool;
}

SIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
  CUresult result = sim_enter("cuMemGetDefaultMemPool", true);
  if (result == CUDA_SUCCESS && (pool == NULL || location == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *pool = pool_for(location, type);
  return sim_leave("cuMemGetDefaultMemPool", result, "type=%d", type);
}

// No call sets another pool here.
SIM_API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
  CUresult result = sim_enter("cuMemGetMemPool", true);
  if (result == CUDA_SUCCESS && (pool == NULL || location == NULL)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *pool = pool_for(location, type);
  return sim_leave("cuMemGetMemPool", result, "type=%d", type);
}

SIM_API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  CUresult result = sim_enter("cuMemPoolCreate", true);
  if (result == CUDA_SUCCESS && (pool == NULL || props == NULL || props->allocType < CU_MEM_ALLOCATION_TYPE_PINNED || props->allocType > CU_MEM_ALLOCATION_TYPE_MANAGED))
    result = CUDA_ERROR_INVALID_VALUE;
  const struct CUctx_st *device = result == CUDA_SUCCESS ? sim_located(&props->location) : NULL;
  const bool on_device = result == CUDA_SUCCESS && (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE || props->location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN);
  if (on_device && device == NULL) result = CUDA_ERROR_INVALID_DEVICE;
  if (result == CUDA_SUCCESS && (*pool = calloc(1, sizeof **pool)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) **pool = (struct CUmemPoolHandle_st){.device = device != NULL ? device->ordinal : 0, .made = true};
  return sim_leave("cuMemPoolCreate", result, "%s", "");
}

// Plain memory is accessible to every device already.
SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
  CUresult result = sim_enter("cuMemPoolSetAccess", true);
  if (result == CUDA_SUCCESS && (pool == NULL || (access == NULL && count > 0))) result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    if (sim_device(access[i].location.id) == NULL) result = CUDA_ERROR_INVALID_DEVICE;
  return sim_leave("cuMemPoolSetAccess", result, "count=%zu", count);
}

SIM_API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  CUresult result = sim_enter("cuMemPoolDestroy", true);
  if (result == CUDA_SUCCESS && (pool == NULL || !pool->made)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && pool->used > 0) result = CUDA_ERROR_NOT_SUPPORTED;  // a card would wait for the frees to complete
  if (result == CUDA_SUCCESS) {
    keep(pool, 0);
    free(pool);
  }
  return sim_leave("cuMemPoolDestroy", result, "%s", "");
}

SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *addr, size_t size, CUmemoryPool pool, CUstream stream) {
  CUresult result = sim_enter("cuMemAllocFromPoolAsync", true);
  uint64_t start = 0;
  if (result == CUDA_SUCCESS && (addr == NULL || pool == NULL || !sim_is_stream(stream))) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = allocate(pool, size, &start);
  if (result == CUDA_SUCCESS) *addr = start;
  return sim_leave("cuMemAllocFromPoolAsync", result, "size=%zu addr=0x%llx", size, (unsigned long long)start);
}

SIM_API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *addr, size_t size, CUmemoryPool pool, CUstream stream) {
  return cuMemAllocFromPoolAsync(addr, size, pool, stream);
}

struct CUarray_st {
  struct sim_extent *extent;
};

static size_t at_least_one(size_t value) { return value == 0 ? 1 : value; }

static size_t format_bytes(int format) {
  switch (format) {
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 1;
  }
}

static CUresult create_array(const char *name, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted) {
  CUresult result = sim_enter(name, true);
  size_t size = 0;
  if (result == CUDA_SUCCESS && sim_current() == NULL) result = CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS && (array == NULL || wanted == NULL || wanted->Width == 0)) result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (*array = calloc(1, sizeof **array)) == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    size = wanted->Width * at_least_one(wanted->Height) * at_least_one(wanted->Depth) * wanted->NumChannels * format_bytes(wanted->Format);
    result = sim_charge(sim_current(), (size + 65535) / 65536 * 65536, &(*array)->extent);
    if (result != CUDA_SUCCESS) free(*array);
  }
  return sim_leave(name, result, "size=%zu", size);
}

SIM_API CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted) {
  return create_array("cuArray3DCreate", array, wanted);
}

SIM_API CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted) {
  CUDA_ARRAY3D_DESCRIPTOR whole = {0};
  if (wanted != NULL)
    whole = (CUDA_ARRAY3D_DESCRIPTOR){.Width = wanted->Width, .Height = wanted->Height, .Format = wanted->Format, .NumChannels = wanted->NumChannels};
  return create_array("cuArrayCreate", array, wanted != NULL ? &whole : NULL);
}

SIM_API CUresult cuArrayDestroy(CUarray array) {
  CUresult result = sim_enter("cuArrayDestroy", true);
  if (result == CUDA_SUCCESS && array == NULL) result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    sim_uncharge(&array->extent);
    free(array);
  }
  return sim_leave("cuArrayDestroy", result, "%s", "");
}
