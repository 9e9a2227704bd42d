// driver_pools.h - memory pools of the driver (cuMemPool), which it fills and empties itself.
//
// A pool cannot be asked for its properties, so each is noted when the job makes it or is given it.
// A pool that is not known here, one imported from another process, say, is not plain.
#ifndef MEMPROF_DRIVER_POOLS_H
#define MEMPROF_DRIVER_POOLS_H

#include <stdbool.h>
#include <stdint.h>

enum { DRIVER_POOL_HOST = -1, DRIVER_POOL_MANAGED = -2, DRIVER_POOL_UNKNOWN = -3 };

// The job has made a pool of `device` (DRIVER_POOL_HOST: of host memory, DRIVER_POOL_MANAGED: of managed), or has destroyed one.
// Plain: its memory is anywhere on the device, and can be neither exported nor imported.
void driver_pool_made(void *pool, int device, bool plain);
void driver_pool_destroyed(void *pool);

// The driver has given the job one of its own pools, perhaps not for the first time.
void driver_pool_given(void *pool, int device);

// The device whose memory the pool hands out, or one of the numbers above.
int driver_pool_device(void *pool);

// Whether memory of the pool is plain memory of `device`. The device's default pool is.
bool driver_pool_is_plain(void *pool, int device);
bool driver_pool_is_default(void *pool, int device);

// Memory came from a pool of the device.
void driver_pools_used(int device);

// Bytes of the device that the pools hold, used or not. False: that cannot be known, or no
// memory came from one yet.
bool driver_pools_reserved(int device, int64_t *bytes);

#endif
