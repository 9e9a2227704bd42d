// driver_pools.c - see driver_pools.h.
#include "device/driver_pools.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/lock.h"
#include "device/devices.h"
#include "device/driver.h"

enum { MOST_POOLS = 256 };

struct pool {
  void *pool;  // NULL: the place is free
  int device;  // or DRIVER_POOL_HOST, DRIVER_POOL_MANAGED
  bool plain;
};

static struct lock lock;
static struct pool pools[MOST_POOLS];
static _Atomic bool used[MOST_DEVICES];

// The place of a pool, or of none if pool is NULL: without a free place a pool stays unknown. The caller has the lock.
static struct pool *place_of(const void *pool) {
  for (int i = 0; i < MOST_POOLS; i++) {
    if (pools[i].pool == pool) return &pools[i];
  }
  return NULL;
}

static void replace(const void *old, struct pool pool) {
  lock_take(&lock);
  struct pool *place = place_of(old);
  if (place != NULL) *place = pool;
  lock_give(&lock);
}

void driver_pool_made(void *pool, int device, bool plain) { replace(NULL, (struct pool){pool, device, plain}); }

void driver_pool_destroyed(void *pool) { replace(pool, (struct pool){0}); }

static struct pool find(const void *pool) {
  struct pool found = {.device = DRIVER_POOL_UNKNOWN};
  lock_take(&lock);
  const struct pool *place = pool != NULL ? place_of(pool) : NULL;
  if (place != NULL) found = *place;
  lock_give(&lock);
  return found;
}

static void *default_pool(int device) {
  const struct driver *driver = driver_get();
  void *pool = NULL;
  return driver != NULL && driver->default_pool != NULL && driver->default_pool(&pool, device) == DRIVER_OK ? pool : NULL;
}

void driver_pool_given(void *pool, int device) {
  if (device >= 0 && default_pool(device) == pool) return;
  lock_take(&lock);
  struct pool *place = place_of(pool) == NULL ? place_of(NULL) : NULL;
  if (place != NULL) *place = (struct pool){pool, device, false};
  lock_give(&lock);
}

int driver_pool_device(void *pool) { return find(pool).device; }

bool driver_pool_is_default(void *pool, int device) { return default_pool(device) == pool; }

bool driver_pool_is_plain(void *pool, int device) {
  const struct pool found = find(pool);
  return (found.device == device && found.plain) || driver_pool_is_default(pool, device);
}

void driver_pools_used(int device) {
  if (device_valid(device)) atomic_store_explicit(&used[device], true, memory_order_relaxed);
}

bool driver_pools_reserved(int device, int64_t *bytes) {
  if (!device_valid(device) || !atomic_load_explicit(&used[device], memory_order_relaxed)) return false;
  const struct driver *driver = driver_get();
  void *const common = default_pool(device);
  uint64_t reserved = 0;
  if (common == NULL || driver->pool_attribute == NULL || driver->pool_attribute(common, DRIVER_POOL_RESERVED, &reserved) != DRIVER_OK) return false;
  *bytes = (int64_t)reserved;
  lock_take(&lock);
  for (int i = 0; i < MOST_POOLS; i++) {
    if (pools[i].pool == NULL || pools[i].device != device) continue;
    if (driver->pool_attribute(pools[i].pool, DRIVER_POOL_RESERVED, &reserved) == DRIVER_OK) *bytes += (int64_t)reserved;
  }
  lock_give(&lock);
  return true;
}
