// pools.h - the driver's memory pools, as far as serving and the books must know
// them.
#ifndef MEMPROF_INTERPOSE_POOLS_H
#define MEMPROF_INTERPOSE_POOLS_H

#include <stdbool.h>
#include <stdint.h>

// Whether memory of the pool is plain memory of `device`: not to be exported, not imported,
// not the host's.
bool pool_is_plain(void *pool, int device);

// Whether its memory is the host's.
bool pool_is_host(void *pool);

// Bytes of the device that the pools hold, used or not. False: that cannot be known, or no
// memory came from one yet.
bool pools_reserved(int device, int64_t *bytes);
void pools_used(int device);  // memory came from one

#endif
