// captures.h - how many streams are being captured into graphs, in the whole process.
//
// While there is one, no thread may wait for the device, query an event or unmap memory: that
// would end the capture. Who wants to do so asks `capturing` first. Another thread may begin a
// capture right after the answer; who needs certainty holds captures back.
#ifndef MEMPROF_CAPTURES_H
#define MEMPROF_CAPTURES_H

#include <stdbool.h>

// Whether a stream is being captured, as far as the calls tell that interpose/ sees.
bool capturing(void);

// A capture is about to begin: counts it, and waits while captures are held back.
void captures_begin(void);

// A capture has ended, or did not begin after all. Returns how many are left.
int captures_end(void);
int captures_count(void);

// Between the two no capture begins: the job's thread that wants to begin one waits. So the
// holder asks `capturing` now and then, which counts those that wait, and lets go soon after.
// False: a capture is under way, and nothing is held.
bool captures_hold(void);
void captures_let(void);

#endif
