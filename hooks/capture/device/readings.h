// readings.h - what the devices have in use, read from within the process.
//
// The books of a run hold what its events explain against what a card has in use. NVML tells
// that from outside, whoever uses the card; where there is no NVML only the driver can be
// asked, by cuMemGetInfo, and only by a process that has a context on the device. So
// `memprof record` then has each process ask for itself (readings=1): a thread of the hook's
// own reads every 100 ms and writes device_used events without an arena.
//
//   time      0    100    200    300    400  ...
//   used     5 G   5 G    5 G    7 G    7 G
//   written   x            x,     x                 5 G at 0 and at 200, 7 G at 300
//
// A number is written when it differs from the one before, and so is the time of the last
// reading at which it was still the old one: between the two events of a stretch every
// reading gave that number. A stretch that lasts is told of again every 10 s, and once more
// when the process exits, so that a killed one loses no more than that.
//
// The number is that of all who use the card, and has in it what the driver keeps for itself.
// No context is made to learn it: a device is read once memory was asked for on it, or a
// context of it was seen, and as long as its primary context is there. cuMemGetInfo neither
// waits for the device nor belongs to a stream, so it is allowed while graphs are captured,
// in every mode.
#ifndef MEMPROF_READINGS_H
#define MEMPROF_READINGS_H

// Starts the thread if the options want readings and events are recorded.
void readings_start(void);

// In a forked child: there is no such thread.
void readings_forget(void);

#endif
