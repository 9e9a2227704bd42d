// captures.h - how many streams are being captured into graphs, in the whole process.
//
// While one is captured, no thread may wait for the device or query an event: that would end the
// capture. Unmapping needs such a wait, so nothing is unmapped either. Another thread may begin a
// capture right after `capturing` has answered no. So whoever waits or queries holds captures back
// meanwhile. The other thread is counted before it waits for that, so that those who come later do not
// hold captures back again and again.
//
// What is legal while a stream is captured, by the mode of the capture and the thread that calls (tried on an H200, driver
// 580.159.04, torch 2.11.0+cu130: python3 samples/gpu_check.py capture_legality). The simulated driver ends captures by this table:
//
//   call                                                        global    thread-local                  relaxed
//   reserve, create, map, set access, export, unmap, release    legal     legal                         legal
//   cuMemGetInfo; create, record, destroy an event; create,     legal     legal                         legal
//     destroy a stream, ask for its context; copies
//   query or wait for an event or a stream, whichever it is     ends it   ends it from its own thread   legal
//   cuMemAlloc, cuMemFree, pinned memory, cuMemPoolGetAttribute ends it   ends it from its own thread   legal
//   cuCtxSynchronize                                            ends it   ends it                       ends it
//
// So arenas grow during a capture, and need not map memory before it.
#ifndef MEMPROF_CAPTURES_H
#define MEMPROF_CAPTURES_H

#include <stdbool.h>

// Whether a stream is being captured, or is about to be, by the calls that interpose/ sees. False for a thread
// that holds captures back.
bool capturing(void);

// A capture is about to begin: counts it, and waits while captures are held back.
void captures_begin(void);

// A capture has ended, or did not begin after all. Returns how many are left.
int captures_end(void);

// How many there are. To a thread that holds captures back: how many threads wait to begin one. A caller with much to do asks
// every few handles, and ends early.
int captures_count(void);

// Between captures_hold and captures_let no capture begins: a thread that is about to begin one waits in
// captures_begin. captures_hold returns false, and holds nothing, if a stream is being captured or about to be.
// Calls of a thread nest, each with its captures_let; only the outermost can return false.
bool captures_hold(void);
void captures_let(void);

#endif
