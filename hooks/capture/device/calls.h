// calls.h - how many driver calls the allocator makes, how long they take, and how long it waits for the GPU.
//
// Where a job is slower than with another allocator, the driver is the first suspect: a map of new memory takes 30 to 100 times
// as long as a request that is served from free memory. So each call of the table in driver.h that maps, unmaps, or
// asks for the GPU's progress is counted, from whatever thread it comes. A call that the driver answers when work of
// the GPU is over counts as waiting, and not as a call.
#ifndef MEMPROF_CALLS_H
#define MEMPROF_CALLS_H

#include <stdint.h>

struct driver;

// So far.
struct calls {
  uint64_t count, ns;  // calls, and their duration
  uint64_t waited_ns;
};

// Replaces functions of the table by ones that count and call them.
void calls_count(struct driver *table);

// The table as it was before, whose functions are the vendor's.
const struct driver *calls_uncounted(void);

struct calls calls_so_far(void);

#endif
