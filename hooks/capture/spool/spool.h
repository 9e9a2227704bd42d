// spool.h - writes events to the process's directory, in the format of record.h.
//
// spool_start makes the directory at the first use of CUDA. From then on a writer claims a slot by
// an atomic add, fills it, and commits it by storing its last word; only the change from one
// segment to the next takes a lock. No call fails the caller. If a segment cannot be made (a full
// disk), recording stops at a slot that the process page names, and later events are dropped.
#ifndef MEMPROF_SPOOL_H
#define MEMPROF_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spool/record.h"

// An event. The spool adds its time and its thread.
struct spool_event {
  enum memprof_kind kind;
  int device;       // ordinal, or -1: no device
  uint32_t arena;   // id, or MEMPROF_NO_ARENA
  int64_t stream;
  uint64_t addr, requested, provided;
  uint32_t context;  // string id, 0 = none
};

// Makes the process's directory and first segment, once; later calls return at once. True while
// events are recorded. spool_started: whether that was done, successfully or not.
bool spool_start(void);
bool spool_started(void);

// Whether events are recorded, and of this process: not so in a child that was made without fork's handlers.
bool spool_owned(void);

// Writes an event of now.
void spool_write(const struct spool_event *event);

// The same for an event of time `time_ns`, nanoseconds of clock_now.
void spool_write_at(const struct spool_event *event, uint64_t time_ns);

// Writes an event whose `addr` is the number of events before it.
void spool_write_number(struct spool_event event);

// The string's id, for spool_event.context; equal texts have one id. 0 for NULL and "", and for a
// new text if there is no host memory or there are 2^20 texts. Texts are cut at 4,096 bytes and
// made UTF-8 (text.h).
uint32_t spool_string(const char *text);

// Copies the text of an id, cut to fit into `size` bytes with a zero, and returns its length; 0 if
// there is no such id.
size_t spool_string_text(uint32_t id, char *text, size_t size);

// Adds a text to the frameworks of the process page, or keeps it until there is a page.
void spool_note_framework(const char *text);

// Sets in the process page which libraries of enum memprof_library are loaded by now.
void spool_note_libraries(void);

#endif
