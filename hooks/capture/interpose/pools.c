// pools.c - the job makes, destroys and opens memory pools of the driver.
#include "base/hook.h"
#include "base/options.h"
#include "device/driver.h"
#include "device/driver_pools.h"
#include "interpose/interpose.h"
#include "memprof.h"

enum { CREATE, CU_CREATE, DESTROY, CU_DESTROY, ACCESS, CU_ACCESS };
#define CALL(which) (&(struct call){.entry = &interpose_pools[which], .from = __builtin_return_address(0)})

enum { MANAGED = 2, READ_AND_WRITE = 3 };

// CUmemPoolProps
struct pool_properties {
  int type;
  int handle_types;
  struct driver_location location;
};

static int device_of(const struct pool_properties *properties) {
  const int device = driver_location_device(properties->location);
  if (properties->type == MANAGED) return DRIVER_POOL_MANAGED;
  return device < 0 ? DRIVER_POOL_HOST : device;
}

static cuda_error create(struct call *call, void **pool, const struct pool_properties *properties) {
  cuda_error (*real)(void **, const struct pool_properties *) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool, properties);
  if (error == CUDA_OK && call->outermost)
    driver_pool_made(*pool, device_of(properties), properties->location.type == DRIVER_ON_DEVICE && properties->handle_types == 0);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolCreate(void **pool, const struct pool_properties *properties) { return create(CALL(CREATE), pool, properties); }
EXPORT cuda_error cuMemPoolCreate(void **pool, const struct pool_properties *properties) { return create(CALL(CU_CREATE), pool, properties); }

static cuda_error destroy(struct call *call, void *pool) {
  cuda_error (*real)(void *) = call_enter(call);
  if (call->outermost && pool != NULL) driver_pool_destroyed(pool);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool);
  call_leave();
  return error;
}

EXPORT cuda_error cudaMemPoolDestroy(void *pool) { return destroy(CALL(DESTROY), pool); }
EXPORT cuda_error cuMemPoolDestroy(void *pool) { return destroy(CALL(CU_DESTROY), pool); }

// Memory that is served in the pool's place is open to the same devices.
static void open_to(void *pool, const struct driver_access *access, size_t count) {
  int device = driver_pool_device(pool);
  if (device < 0 && driver_pool_is_default(pool, call_device())) device = call_device();
  for (size_t i = 0; i < count && device >= 0; i++) {
    if (access[i].location.type == DRIVER_ON_DEVICE && access[i].flags == READ_AND_WRITE) memprof_enable_peer(device, access[i].location.id);
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
