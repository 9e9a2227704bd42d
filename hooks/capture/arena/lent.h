// lent.h - when the work is over that was queued before pages of an arena were lent.
//
// An address that needs another page has its old mapping unmapped first (device/loans.c), and work on the block
// that was there may still run. To wait for the whole device would empty its queue. So the first loan of a request
// records an event on the arena's stream, with the next number, and each old mapping has the number of the event
// behind its last use. By the time that it goes the event is over, as a rule: then nothing waits. Else the request
// waits for that event alone, not for what was queued since.
#ifndef MEMPROF_LENT_H
#define MEMPROF_LENT_H

#include <stdbool.h>
#include <stdint.h>

#include "device/driver.h"

struct arena;

enum { LENT_EVENTS = 64 };

struct lent {
  driver_event events[LENT_EVENTS];  // number n is at n % LENT_EVENTS; NULL: it could not be recorded
  uint64_t fences[LENT_EVENTS];      // the number of a fence that what was queued by then on other streams is before
  uint64_t last;                     // the greatest number so far; the first is 1
  uint64_t over;                     // all numbers up to this one are over
};

// Whether a stream is captured, also by a capture that began before the hook was there to count it. The device is current.
bool stream_captured(void *stream);

// Records a new event on a stream that is not captured. The device is current. False: the driver refused.
bool stream_record(void *stream, driver_event *event);

// Records the next event and returns its number. Captures are held back.
uint64_t lent_record(struct arena *arena);

// Whether the event of that number, or a later one, is over, after waiting for it if it is not; 0 is none. Captures are
// held back. False: there is no such event, or the driver cannot wait for it.
bool lent_wait(struct arena *arena, uint64_t number);

// The number of the fence that has to be over, too, for what other streams had queued when the event of that number was recorded.
uint64_t lent_fence(const struct arena *arena, uint64_t number);

// Notes that of an event that is among the last. Before, it is the next fence that is recorded.
void lent_set_fence(struct arena *arena, uint64_t number, uint64_t fence);

// Finds the last number that is over. Captures are held back. It does not wait.
void lent_look(struct arena *arena);

// A number of its own for work that is over, as all before it is: the device was waited for.
uint64_t lent_none(struct arena *arena);

// The device was waited for: all numbers so far are over.
void lent_waited(struct arena *arena);

// Destroys the events.
void lent_drop(struct arena *arena);

#endif
