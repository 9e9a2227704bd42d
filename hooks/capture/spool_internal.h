// spool_internal.h - claiming and committing slots, for the two files that fill records.
#ifndef MEMPROF_SPOOL_INTERNAL_H
#define MEMPROF_SPOOL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "record.h"

struct spool_slot {
  _Atomic(uint32_t) *filled;  // of the slot's segment
  uint64_t segment;
  bool half;  // this slot is the one at which the next segment is prepared
};

// The next record to fill, or NULL when nothing is recorded (any more).
struct memprof_record *spool_claim(struct spool_slot *slot);
void spool_commit(struct memprof_record *record, enum memprof_kind kind, const struct spool_slot *slot);

// Writes the strings interned before there was a spool.
void spool_write_strings(void);

// In a forked child: the table's lock may have been another thread's.
void spool_forget_strings(void);

#endif
