// devices.h - the devices of the process, by their ordinals.
#ifndef MEMPROF_DEVICES_H
#define MEMPROF_DEVICES_H

#include <stdbool.h>

// The hook serves and measures devices with ordinals [0, MOST_DEVICES). A set of them is a
// uint64_t.
enum { MOST_DEVICES = 64 };

static inline bool device_valid(int device) { return device >= 0 && device < MOST_DEVICES; }

// The job has used the device: memory was asked for on it, or a context of it was seen. Stays so.
// Code that only inspects devices skips those that the job has not used, since a call of the driver would
// initialise them.
void device_note_use(int device);
bool device_used(int device);

#endif
