// watch.h - marks among the events of a watched allocator; see watch.c.
#ifndef MEMPROF_WATCH_H
#define MEMPROF_WATCH_H

#include <stdbool.h>
#include <stdint.h>

// A mark is about to be written: what the watched devices have freed until now comes before
// it, and so do their sums. Not to be called under a watched allocator's lock.
void watch_mark(void);

// Whether calls from a library are those of an allocator that may be watched, and whether it
// is and so tells of its segments itself.
bool watch_is_of(const char *library);
bool watch_tells(void);

// A label of a block that is none of ours. Whoever labels it holds it.
void watch_label(uint64_t addr, uint32_t context);

#endif
