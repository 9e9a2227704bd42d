// trim.h - physical memory of free granules goes back to the device without anybody asking.
//
//   iteration  when an iteration has ended: what the coming one will not need, as far as the
//              last ones tell (bfc_excess), once an event recorded at the end has completed.
//              What was given back and will be needed is mapped ahead (bfc_ahead).
//   idle       everything that is free, once nothing was asked or freed for a while
//   pressure   as much as the device lacks of the headroom, whoever took it
//
// A thread of the hook's own does that, the trimmer, in slices of a few handles: a request waits
// for one slice at most. An iteration that repeats the one before leaves it nothing to do, and
// then nothing is asked of the driver at all. Nothing is done while a stream is being captured,
// and never to the memory of graphs: no arena of a pool or a region is trimmed by iterations,
// and reclaim, which does the rest, leaves pools alone that are held.
#ifndef MEMPROF_TRIM_H
#define MEMPROF_TRIM_H

#include "arena/arena.h"

// An iteration has ended: writes its event and tells all arenas, at one instant. The mark is
// written by `mark` with all devices locked.
void trim_iteration(void (*mark)(void *self), void *self);

#endif
