// capture_name.h - the name and the pool of a graph capture, for its events.
#ifndef MEMPROF_CAPTURE_NAME_H
#define MEMPROF_CAPTURE_NAME_H

#include <stdbool.h>
#include <stdint.h>

// The string id of the fields name=, pool= and inputs= of a capture that the calling thread begins, as
// far as they are known; 0: none is.
uint32_t capture_context(void);

// From now on requests of the calling thread go to the pool, or no longer.
void capture_pool_begun(uint64_t pool0, uint64_t pool1);
void capture_pool_ended(uint64_t pool0, uint64_t pool1);

#endif
