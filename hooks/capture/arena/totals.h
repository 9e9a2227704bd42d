// totals.h - what the hook has counted itself, as `totals` events.
//
// A reader can sum up the events of a recording, but not know whether one is missing. So the hook says at each iteration mark, and at
// the end of the process, how many events it has written, and of each device how many requests and frees with how many
// bytes. `memprof verify` compares. The counters are those of the statistics: an allocation and its free pay nothing.
#ifndef MEMPROF_TOTALS_H
#define MEMPROF_TOTALS_H

struct gpu;

// Under gpu->lock: requests and frees of the device, unless there were none since this was last called.
void totals_of_gpu(struct gpu *gpu);

// Driver calls, and the number of this event among all.
void totals_of_process(void);

#endif
