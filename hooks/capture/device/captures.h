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

// Between captures_hold and captures_let no capture begins: a thread that is about to begin one waits in
// captures_begin. `capturing` is true for it already, so that a caller with much to do checks it every few
// handles, and ends early. captures_hold returns false, and holds nothing, if a stream is being captured.
// Calls of a thread nest, each with its captures_let; only the outermost can return false.
bool captures_hold(void);
void captures_let(void);

#endif
