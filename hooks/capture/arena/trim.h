// trim.h - unmaps free memory at the times that --trim names, without a request.
//
//   iteration  at the end of an iteration: free pages that no block touched in it (bfc_excess), when the
//              work queued so far has finished
//   idle       all free memory, once there was no request or free for a while
//
// A thread of the hook, the trimmer, does that in slices of a few handles, so that a request waits
// for one slice at most. It does nothing while a stream is captured, and never unmaps
// memory of graphs: arenas of pools and tags are not trimmed by iterations, and reclaim, which does
// the rest, skips pools that are held.
#ifndef MEMPROF_TRIM_H
#define MEMPROF_TRIM_H

#include <stdbool.h>
#include <stdint.h>

// The end of an iteration.
struct trim_mark {
  uint64_t fence;  // behind what was freed before; 0: there is no mark
  uint32_t ended;  // iterations that had ended then
};

// What an arena has that is trimmed by iterations. Under its device's lock.
struct trim {
  struct trim_mark now;   // whose pages are unmapped when its fence is over
  struct trim_mark next;  // the last one since
};

// An iteration has ended. With all devices locked, so that no other event comes between: calls `mark`,
// which writes the event, and ends the iteration in all arenas.
void trim_iteration(void (*mark)(void *self), void *self);

#endif
