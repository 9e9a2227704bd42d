// libraries.h - which libraries the process has loaded, of those that `memprof record` sets
// environment variables for.
#ifndef MEMPROF_LIBRARIES_H
#define MEMPROF_LIBRARIES_H

#include <stdint.h>

// A set of enum memprof_library. Empty while a thread forks.
uint32_t libraries_loaded(void);

// Around fork, in the parent; and in the child.
void libraries_before_fork(void);
void libraries_after_fork(void);
void libraries_forget(void);

#endif
