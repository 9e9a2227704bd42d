// outside.h - what others than our arenas hold of each device, by the calls seen.
//
// Sums by device, for whoever has to tell the growth of one thing from that of another.
#ifndef MEMPROF_OUTSIDE_H
#define MEMPROF_OUTSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Memory at `addr` was allocated or freed. `pooled`: by a memory pool of the driver, which
// takes and keeps physical memory on its own terms.
void outside_add(uint64_t addr, size_t bytes, int device, bool pooled);
void outside_remove(uint64_t addr);

// Everything of the device is gone at once: each block is told to `ended` and forgotten.
void outside_end_all(int device, void *self, void (*ended)(void *self, uint64_t addr, int device));

// Around a call that may take or give memory. Meanwhile the device and these sums may differ.
void outside_enter(void);
void outside_leave(void);

// Changes with each such call; true in *quiet while no other thread has one under way.
unsigned outside_turn(bool *quiet);

// Bytes held now, as they were asked for.
int64_t outside_bytes(int device);
int64_t outside_pooled_bytes(int device);

#endif
