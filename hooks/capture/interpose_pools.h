// interpose_pools.h - the driver's memory pools, as far as serving must know them.
#ifndef MEMPROF_INTERPOSE_POOLS_H
#define MEMPROF_INTERPOSE_POOLS_H

#include <stdbool.h>

// Whether memory of the pool is plain memory of `device`: not to be exported, not imported,
// not the host's.
bool pool_is_plain(void *pool, int device);

#endif
