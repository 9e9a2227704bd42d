// interpose_pools.h - the driver's memory pools, as far as serving and the books must know
// them.
#ifndef MEMPROF_INTERPOSE_POOLS_H
#define MEMPROF_INTERPOSE_POOLS_H

#include <stdbool.h>
#include <stdint.h>

// Whether memory of the pool is plain memory of `device`: not to be exported, not imported,
// not the host's.
bool pool_is_plain(void *pool, int device);

// Bytes of the device that the pools hold, used or not. 0 unless memory came from one.
uint64_t pools_reserved(int device);
void pools_used(int device);  // memory came from one

#endif
