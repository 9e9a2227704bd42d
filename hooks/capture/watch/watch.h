// watch.h - what other files need of native allocators: marks, labels, and whether there is one.
#ifndef MEMPROF_WATCH_H
#define MEMPROF_WATCH_H

#include <stdbool.h>
#include <stdint.h>

// To be called before a mark is written: first writes the frees that native allocators have reported so
// far, and their sums. The caller does not hold a native allocator's lock.
void watch_mark(void);

// Whether a library has a native allocator that can be observed, and whether it is observed and so
// reports its segments itself: then its CUDA calls are not recorded a second time.
bool watch_is_of(const char *library);
bool watch_reports(void);

// Labels a block of a native allocator. The caller holds the block, so it is live.
void watch_label(uint64_t addr, uint32_t context);

#endif
