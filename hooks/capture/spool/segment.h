// segment.h - makes the files of records, so that a store into one neither fails nor waits.
#ifndef MEMPROF_SEGMENT_H
#define MEMPROF_SEGMENT_H

#include <stdint.h>

#include "base/directory.h"
#include "spool/record.h"

enum { SEGMENT_BYTES = MEMPROF_SEGMENT_RECORDS * MEMPROF_RECORD_BYTES };

// Makes and maps segment `index` of a directory: all zeros, its disk space allocated and its pages
// faulted in. NULL with *error, an errno: no such file is left.
struct memprof_record *segment_create(const struct directory *directory, uint64_t index, int *error);

void segment_unmap(const struct memprof_record *records);

#endif
