// captures.h - how many streams are being captured into graphs, in the whole process.
//
// While one is captured, no thread may wait for the device or query an event: that would end the
// capture. Unmapping needs such a wait, so nothing is unmapped either. Another thread may begin a
// capture right after `capturing` has answered no. So whoever waits or queries holds captures back
// meanwhile.
#ifndef MEMPROF_CAPTURES_H
#define MEMPROF_CAPTURES_H

#include <stdbool.h>

// Whether a stream is being captured, by the calls that interpose/ sees.
bool capturing(void);

// A capture is about to begin: counts it, and waits while captures are held back.
void captures_begin(void);

// A capture has ended, or did not begin after all. Returns how many are left.
int captures_end(void);
int captures_count(void);

// Between the two no capture begins: a thread that wants to begin one waits in captures_begin, where
// `capturing` counts it already. So who holds for long asks `capturing` every few handles, and lets go
// if it is true. captures_hold returns false, and holds nothing, if a stream is being captured. A
// thread may hold several times, and lets go as often; only the first time is refused.
bool captures_hold(void);
void captures_let(void);

#endif
