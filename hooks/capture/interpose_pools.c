// interpose_pools.c - which pools are plain, by their making.
//
// A pool cannot be asked for its properties, so each is noted when it is made. A pool that
// is not known here, one imported from another process, say, is not plain.
#include "interpose_pools.h"

#include "driver.h"
#include "interpose_internal.h"
#include "lock.h"

enum { CREATE, CU_CREATE, DESTROY, CU_DESTROY };
#define CALL(which) (&(struct call){.entry = &interpose_pools[which], .from = __builtin_return_address(0)})

enum { MOST_POOLS = 256, ON_DEVICE = 1 };

// CUmemPoolProps
struct pool_properties {
  int type;
  int handle_types;
  struct driver_location location;
};

static struct lock lock;
static struct {
  void *pool;
  int device;
} pools[MOST_POOLS];

static void set(const void *old, void *pool, int device) {
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS; i++) {
    if (pools[i].pool != old) continue;
    pools[i].pool = pool;
    pools[i].device = device;
    break;
  }
  lock_give(&lock);
}

static bool is_default(void *pool, int device) {
  static struct entry entry = {.name = "cuDeviceGetDefaultMemPool"};
  cuda_error (*get)(void **, int) = entry_real(&entry);
  void *found = NULL;
  return get != NULL && get(&found, device) == CUDA_OK && found == pool;
}

bool pool_is_plain(void *pool, int device) {
  bool found = false;
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS && !found; i++) found = pools[i].pool == pool && pools[i].device == device;
  lock_give(&lock);
  return found || is_default(pool, device);
}

static cuda_error create(struct call *call, void **pool, const struct pool_properties *properties) {
  cuda_error (*real)(void **, const struct pool_properties *) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool, properties);
  const bool plain = error == CUDA_OK && properties->handle_types == 0 && properties->location.type == ON_DEVICE;
  if (plain && call->outermost) set(NULL, *pool, properties->location.id);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolCreate(void **pool, const struct pool_properties *properties) { return create(CALL(CREATE), pool, properties); }
EXPORT cuda_error cuMemPoolCreate(void **pool, const struct pool_properties *properties) { return create(CALL(CU_CREATE), pool, properties); }

static cuda_error destroy(struct call *call, void *pool) {
  cuda_error (*real)(void *) = call_enter(call);
  if (call->outermost && pool != NULL) set(pool, NULL, 0);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolDestroy(void *pool) { return destroy(CALL(DESTROY), pool); }
EXPORT cuda_error cuMemPoolDestroy(void *pool) { return destroy(CALL(CU_DESTROY), pool); }

struct entry interpose_pools[] = {
    [CREATE] = {.name = "cudaMemPoolCreate", .ours = cudaMemPoolCreate},
    [CU_CREATE] = {.name = "cuMemPoolCreate", .ours = cuMemPoolCreate, .asked = "cuMemPoolCreate", .since = 11020},
    [DESTROY] = {.name = "cudaMemPoolDestroy", .ours = cudaMemPoolDestroy},
    [CU_DESTROY] = {.name = "cuMemPoolDestroy", .ours = cuMemPoolDestroy, .asked = "cuMemPoolDestroy", .since = 11020},
    {0},
};
