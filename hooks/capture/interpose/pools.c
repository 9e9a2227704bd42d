// pools.c - the job makes, is given, destroys and opens memory pools of the driver.
#include "base/hook.h"
#include "base/options.h"
#include "device/driver.h"
#include "device/driver_pools.h"
#include "interpose/interpose.h"
#include "memprof.h"

enum { MANAGED = 2, READ_AND_WRITE = 3 };

// CUmemPoolProps
struct pool_properties {
  int type;
  int handle_types;
  struct driver_location location;
};

static int device_of(struct driver_location location, int type) {
  const int device = driver_location_device(location);
  if (type == MANAGED) return DRIVER_POOL_MANAGED;
  return device < 0 ? DRIVER_POOL_HOST : device;
}

static cuda_error create(struct call *call, void **pool, const struct pool_properties *properties) {
  cuda_error (*real)(void **, const struct pool_properties *) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool, properties);
  if (error == CUDA_OK && call->outermost)
    driver_pool_made(*pool, device_of(properties->location, properties->type), properties->location.type == DRIVER_ON_DEVICE && properties->handle_types == 0);
  call_leave();
  return error;
}

WRAPPER(cudaMemPoolCreate, (void **pool, const struct pool_properties *properties), RUNTIME) { return create(CALL(cudaMemPoolCreate), pool, properties); }
WRAPPER(cuMemPoolCreate, (void **pool, const struct pool_properties *properties), DRIVER(cuMemPoolCreate, 11020)) { return create(CALL(cuMemPoolCreate), pool, properties); }

// The driver's own pool, or the current one, for a place and a kind of memory; since CUDA 13.0.
static cuda_error get(struct call *call, void **pool, const struct driver_location *location, int type) {
  cuda_error (*real)(void **, const struct driver_location *, int) = call_enter(call);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool, location, type);
  if (error == CUDA_OK && call->outermost) driver_pool_given(*pool, device_of(*location, type));
  call_leave();
  return error;
}

WRAPPER(cudaMemGetDefaultMemPool, (void **pool, const struct driver_location *location, int type), RUNTIME) { return get(CALL(cudaMemGetDefaultMemPool), pool, location, type); }
WRAPPER(cuMemGetDefaultMemPool, (void **pool, const struct driver_location *location, int type), DRIVER(cuMemGetDefaultMemPool, 13000)) { return get(CALL(cuMemGetDefaultMemPool), pool, location, type); }
WRAPPER(cudaMemGetMemPool, (void **pool, const struct driver_location *location, int type), RUNTIME) { return get(CALL(cudaMemGetMemPool), pool, location, type); }
WRAPPER(cuMemGetMemPool, (void **pool, const struct driver_location *location, int type), DRIVER(cuMemGetMemPool, 13000)) { return get(CALL(cuMemGetMemPool), pool, location, type); }

static cuda_error destroy(struct call *call, void *pool) {
  cuda_error (*real)(void *) = call_enter(call);
  if (call->outermost && pool != NULL) driver_pool_destroyed(pool);
  const cuda_error error = real == NULL ? CUDA_NOT_FOUND : real(pool);
  call_leave();
  return error;
}

WRAPPER(cudaMemPoolDestroy, (void *pool), RUNTIME) { return destroy(CALL(cudaMemPoolDestroy), pool); }
WRAPPER(cuMemPoolDestroy, (void *pool), DRIVER(cuMemPoolDestroy, 11020)) { return destroy(CALL(cuMemPoolDestroy), pool); }

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

WRAPPER(cudaMemPoolSetAccess, (void *pool, const struct driver_access *access, size_t count), RUNTIME) {
  return set_access(CALL(cudaMemPoolSetAccess), pool, access, count);
}
WRAPPER(cuMemPoolSetAccess, (void *pool, const struct driver_access *access, size_t count), DRIVER(cuMemPoolSetAccess, 11020)) {
  return set_access(CALL(cuMemPoolSetAccess), pool, access, count);
}
