// own_calls.h - calls of CUDA that the hook makes itself, or has a library make for it.
//
// interpose/ sees the job's calls of CUDA and would see these, too. Calls that a thread makes
// between own_calls_begin and own_calls_end are neither recorded nor served, nor made again
// after a reclaim, which would wait for the device's lock that the caller may hold. Calls
// through the table of driver.h need none of this: they reach the driver directly.
#ifndef MEMPROF_OWN_CALLS_H
#define MEMPROF_OWN_CALLS_H

#include <stdbool.h>

// They nest.
void own_calls_begin(void);
void own_calls_end(void);

// Whether the calling thread is between the two.
bool own_calls(void);

#endif
