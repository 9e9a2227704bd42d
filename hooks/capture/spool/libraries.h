// libraries.h - which libraries the process has loaded, of those that `memprof record` sets
// environment variables for.
#ifndef MEMPROF_LIBRARIES_H
#define MEMPROF_LIBRARIES_H

#include <stdint.h>

// A set of enum memprof_library. Empty while a thread forks.
uint32_t libraries_loaded(void);

#endif
