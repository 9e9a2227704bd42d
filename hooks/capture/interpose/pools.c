// pools.c - which pools there are, and which are plain, by their making.
//
// A pool cannot be asked for its properties, so each is noted when it is made. A pool that
// is not known here, one imported from another process, say, is not plain.
#include "interpose/pools.h"

#include "base/lock.h"
#include "base/options.h"
#include "device/driver.h"
#include "base/hook.h"
#include "interpose/internal.h"
#include "memprof.h"

enum { CREATE, CU_CREATE, DESTROY, CU_DESTROY, ACCESS, CU_ACCESS };
#define CALL(which) (&(struct call){.entry = &interpose_pools[which], .from = __builtin_return_address(0)})

enum { MOST_POOLS = 256, ON_DEVICE = 1, READ_AND_WRITE = 3 };

// CUmemPoolProps
struct pool_properties {
  int type;
  int handle_types;
  struct driver_location location;
};

enum { DEVICES = 64, RESERVED_CURRENT = 5 };  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT

struct pool {
  void *pool;
  int device;  // -1: the host
  bool plain;
};

static struct lock lock;
static struct pool pools[MOST_POOLS];
static _Atomic bool used[DEVICES];

static void set(const void *old, struct pool pool) {
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS; i++) {
    if (pools[i].pool != old) continue;
    pools[i] = pool;
    break;
  }
  lock_give(&lock);
}

static void *default_pool(int device) {
  static struct entry entry = {.name = "cuDeviceGetDefaultMemPool"};
  cuda_error (*get)(void **, int) = entry_real(&entry);
  void *pool = NULL;
  return get != NULL && get(&pool, device) == CUDA_OK ? pool : NULL;
}

bool pool_is_plain(void *pool, int device) {
  bool found = false;
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS && !found; i++) found = pools[i].pool == pool && pools[i].device == device && pools[i].plain;
  lock_give(&lock);
  return found || default_pool(device) == pool;
}

bool pool_is_host(void *pool) {
  bool found = false;
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS && !found; i++) found = pools[i].pool == pool && pools[i].device < 0;
  lock_give(&lock);
  return found;
}

void pools_used(int device) {
  if (device >= 0 && device < DEVICES) atomic_store_explicit(&used[device], true, memory_order_relaxed);
}

bool pools_reserved(int device, int64_t *bytes) {
  static struct entry entry = {.name = "cuMemPoolGetAttribute"};
  if (device < 0 || device >= DEVICES || !atomic_load_explicit(&used[device], memory_order_relaxed)) return false;
  cuda_error (*get)(void *, int, void *) = entry_real(&entry);
  void *const common = default_pool(device);
  uint64_t reserved = 0;
  if (get == NULL || common == NULL || get(common, RESERVED_CURRENT, &reserved) != CUDA_OK) return false;
  *bytes = (int64_t)reserved;
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS; i++) {
    if (pools[i].pool == NULL || pools[i].device != device) continue;
    if (get(pools[i].pool, RESERVED_CURRENT, &reserved) == CUDA_OK) *bytes += (int64_t)reserved;
  }
  lock_give(&lock);
  return true;
}

static cuda_error create(struct call *call, void **pool, const struct pool_properties *properties) {
  cuda_error (*real)(void **, const struct pool_properties *) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool, properties);
  if (error == CUDA_OK && call->outermost) {
    const bool on_device = properties->location.type == ON_DEVICE;
    set(NULL, (struct pool){*pool, on_device ? properties->location.id : -1, on_device && properties->handle_types == 0});
  }
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolCreate(void **pool, const struct pool_properties *properties) { return create(CALL(CREATE), pool, properties); }
EXPORT cuda_error cuMemPoolCreate(void **pool, const struct pool_properties *properties) { return create(CALL(CU_CREATE), pool, properties); }

static cuda_error destroy(struct call *call, void *pool) {
  cuda_error (*real)(void *) = call_enter(call);
  if (call->outermost && pool != NULL) set(pool, (struct pool){0});
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolDestroy(void *pool) { return destroy(CALL(DESTROY), pool); }
EXPORT cuda_error cuMemPoolDestroy(void *pool) { return destroy(CALL(CU_DESTROY), pool); }

// Memory that is served in the pool's place is open to the same devices.
static void open_to(void *pool, const struct driver_access *access, size_t count) {
  int device = -1;
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS; i++) {
    if (pools[i].pool == pool) device = pools[i].device;
  }
  lock_give(&lock);
  if (device < 0 && default_pool(call_device()) == pool) device = call_device();
  for (size_t i = 0; i < count && device >= 0; i++) {
    if (access[i].location.type == ON_DEVICE && access[i].flags == READ_AND_WRITE) memprof_enable_peer(device, access[i].location.id);
  }
}

static cuda_error set_access(struct call *call, void *pool, const struct driver_access *access, size_t count) {
  cuda_error (*real)(void *, const struct driver_access *, size_t) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool, access, count);
  if (error == CUDA_OK && call->outermost && hook_on() && options_get()->serve) open_to(pool, access, count);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolSetAccess(void *pool, const struct driver_access *access, size_t count) {
  return set_access(CALL(ACCESS), pool, access, count);
}
EXPORT cuda_error cuMemPoolSetAccess(void *pool, const struct driver_access *access, size_t count) {
  return set_access(CALL(CU_ACCESS), pool, access, count);
}

struct entry interpose_pools[] = {
    [CREATE] = {.name = "cudaMemPoolCreate", .ours = cudaMemPoolCreate},
    [CU_CREATE] = {.name = "cuMemPoolCreate", .ours = cuMemPoolCreate, .asked = "cuMemPoolCreate", .since = 11020},
    [DESTROY] = {.name = "cudaMemPoolDestroy", .ours = cudaMemPoolDestroy},
    [CU_DESTROY] = {.name = "cuMemPoolDestroy", .ours = cuMemPoolDestroy, .asked = "cuMemPoolDestroy", .since = 11020},
    [ACCESS] = {.name = "cudaMemPoolSetAccess", .ours = cudaMemPoolSetAccess},
    [CU_ACCESS] = {.name = "cuMemPoolSetAccess", .ours = cuMemPoolSetAccess, .asked = "cuMemPoolSetAccess", .since = 11020},
    {0},
};
