// capture_name.h - what a capture is called in the trace.
#ifndef MEMPROF_CAPTURE_NAME_H
#define MEMPROF_CAPTURE_NAME_H

#include <stdbool.h>
#include <stdint.h>

// The context of a capture that the calling thread begins: "name=…\tpool=…\tinputs=…", each where it is
// known; 0: none is.
uint32_t capture_context(void);

// The calling thread's requests go to a pool from now on, or no more.
void capture_pool_begun(uint64_t pool0, uint64_t pool1);
void capture_pool_ended(uint64_t pool0, uint64_t pool1);

#endif
