// libraries.h - which libraries are loaded of those that `memprof record` sets environment variables
// for (enum memprof_library).
#ifndef MEMPROF_LIBRARIES_H
#define MEMPROF_LIBRARIES_H

#include <stdint.h>

// The set of those that are loaded now; empty while a thread forks.
uint32_t libraries_loaded(void);

#endif
