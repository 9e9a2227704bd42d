// nvml.h - NVIDIA's management library: how much of a device is in use, and by which process.
//
// The driver answers only a process with a context on the device; NVML answers any. It is loaded
// at the first use. Initialising it takes 10 ms, a list of processes after that some 15 us.
#ifndef MEMPROF_NVML_H
#define MEMPROF_NVML_H

#include <stdbool.h>
#include <stdint.h>

// The device in NVML, which stays initialised until nvml_close; NULL if NVML does not know it.
// Each open of the same device returns the same pointer.
void *nvml_open(int device);
void nvml_close(void);

// Bytes in use on the device, whoever uses them. False: NVML does not say.
bool nvml_used(void *device, uint64_t *bytes);

// Bytes that this process uses of the device, 0 if it is not listed; -1 if NVML does not say.
// *others is the number of entries that are not of this process. A process has an entry for each
// part of a card (MIG) that it uses.
int64_t nvml_own(void *device, unsigned *others);

#endif
