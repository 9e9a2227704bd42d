// trim.h - unmaps free memory at the times that --trim names, without a request.
//
//   iteration  at the end of an iteration: free pages that the next one will not use, as predicted
//              from the last ones (bfc_excess), when the work queued so far has finished. Unmapped
//              pages that it will use are mapped ahead (bfc_ahead).
//   idle       all free memory, once there was no request or free for a while
//   pressure   as many bytes as the device lacks of the headroom, whoever uses the memory
//
// A thread of the hook, the trimmer, does that in slices of a few handles, so that a request waits
// for one slice at most. If iterations repeat, nothing is left to do after the first ones, and the
// trimmer makes no call of the driver. It does nothing while a stream is captured, and never unmaps
// memory of graphs: arenas of pools and tags are not trimmed by iterations, and reclaim, which does
// the rest, skips pools that are held.
//
// The trimmer may come late: its fence (fence.h) has to be over, or its thread gets no core. If the program has emptied the
// cache by then, or anybody has lacked memory of the device, it maps nothing ahead before the next iteration ends:
// it would take what was just unmapped for them.
#ifndef MEMPROF_TRIM_H
#define MEMPROF_TRIM_H

#include "arena/arena.h"

// An iteration has ended. With all devices locked, so that no other event comes between: calls `mark`,
// which writes the event, and ends the iteration in all arenas.
void trim_iteration(void (*mark)(void *self), void *self);

#endif
