// spool_internal.h - claiming and committing slots, for the two files that fill records.
#ifndef MEMPROF_SPOOL_INTERNAL_H
#define MEMPROF_SPOOL_INTERNAL_H

#include "record.h"

// The next record to fill, or NULL when nothing is recorded (any more).
struct memprof_record *spool_claim(void);
void spool_commit(struct memprof_record *record, enum memprof_kind kind);

// Writes the strings interned before there was a spool.
void spool_write_strings(void);

// In a forked child: the table's lock may have been another thread's.
void spool_forget_strings(void);

#endif
