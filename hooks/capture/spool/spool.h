// spool.h - events leave the process: the writer of the format in record.h.
//
// The directory is made at spool_start, which the first CUDA allocation of the process
// calls. Everything after that is lock-free but for the change of segments: a slot is
// claimed by an atomic add, filled, and committed by its last word. No call fails the
// caller. When a segment cannot be had (a full disk), recording ends at a slot that the
// process page names, and later events are dropped.
#ifndef MEMPROF_SPOOL_H
#define MEMPROF_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spool/record.h"

// What an event says beside its time and thread, which the spool adds.
struct spool_event {
  enum memprof_kind kind;
  int device;       // CUDA ordinal, or -1
  uint32_t arena;   // id, or MEMPROF_NO_ARENA
  int64_t stream;
  uint64_t addr, requested, provided;
  uint32_t context;  // string id, 0 = none
};

// Makes the process's directory and first segment, once; later calls return at once.
// True while events are recorded.
bool spool_start(void);
bool spool_started(void);

void spool_write(const struct spool_event *event);

// The same for an event that was at `time_ns`, by clock.h.
void spool_write_at(const struct spool_event *event, uint64_t time_ns);

// The string's id, for spool_event.context: the same text gets the same id. NULL and ""
// are 0, and so is any string once host memory or recording has ended. Texts are cut at
// 4,096 bytes, and made valid (text.h).
uint32_t spool_string(const char *text);

// Copies the text of a string, cut to fit, and returns its length; 0 when there is none.
size_t spool_string_text(uint32_t id, char *text, size_t size);

// Adds to the frameworks line of the process page; kept until there is one.
void spool_note_framework(const char *text);

// Notes in the process page which libraries are loaded by now, of those that readers ask for.
void spool_note_libraries(void);

#endif
