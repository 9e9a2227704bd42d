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
  uint64_t last;                     // the greatest number so far; the first is 1
  uint64_t over;                     // all numbers up to this one are over
};

// Records the next event and returns its number. Captures are held back.
uint64_t lent_record(struct arena *arena);

// Whether the event of that number, or a later one, is over, after waiting for it if it is not; 0 is none. Captures are
// held back. False: there is no such event, or the driver cannot wait for it.
bool lent_wait(struct arena *arena, uint64_t number);

// Finds the last number that is over. Captures are held back. It does not wait.
void lent_look(struct arena *arena);

// The device was waited for: all numbers so far are over.
void lent_waited(struct arena *arena);

// Destroys the events.
void lent_drop(struct arena *arena);

#endif
