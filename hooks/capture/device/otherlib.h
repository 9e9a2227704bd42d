// otherlib.h - memory of other libraries: CUDA memory of each device that no arena of the hook has.
//
// interpose/ reports each allocation and free of the job that the hook does not serve. The sums by
// device let overhead.c separate what the driver takes from what other libraries take.
#ifndef MEMPROF_OTHERLIB_H
#define MEMPROF_OTHERLIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// `bytes` at `addr` of a device were allocated, or freed. `pooled`: from a memory pool of the driver,
// which maps and keeps physical memory by rules of its own.
void otherlib_add(uint64_t addr, size_t bytes, int device, bool pooled);
void otherlib_remove(uint64_t addr);

// The device was reset, and all its memory is gone: calls `ended` for each block and removes it.
void otherlib_end_all(int device, void *self, void (*ended)(void *self, uint64_t addr, int device));

// Before and after a call of the job that may allocate or free. In between, the device's use and the
// sums below may differ.
void otherlib_call_begin(void);
void otherlib_call_end(void);

// How many such calls have begun so far. *quiet: no thread but the calling one is inside one. If two
// readings return the same number and are quiet, no other thread made a call in between.
unsigned otherlib_calls(bool *quiet);

// Bytes requested and not yet freed: of plain memory, and of memory from the driver's pools.
int64_t otherlib_bytes(int device);
int64_t otherlib_pooled_bytes(int device);

#endif
