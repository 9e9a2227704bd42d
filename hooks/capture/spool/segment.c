// segment.c - see segment.h.
//
// Most of the cost of a segment are its page faults. A page that holds data is only mapped at its fault; a
// page that is a hole, or only allocated, costs a transaction of the file system. So zeros are written
// first, in one call, which also lets the file system use pages larger than 4 KiB.
#define _GNU_SOURCE
#include "spool/segment.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { ZEROS = 65536, PIECES = SEGMENT_BYTES / ZEROS };

// Writes zeros through the descriptor. Only a thread with its own table of descriptors may do that: elsewhere
// the job may have given the number to a file of its own.
static int write_zeros(const struct own_file *file) {
  static char zeros[ZEROS];
  struct iovec pieces[PIECES];
  for (int i = 0; i < PIECES; i++) pieces[i] = (struct iovec){zeros, sizeof zeros};
  const ssize_t written = pwritev(file->number, pieces, PIECES, 0);
  if (written < 0) return errno;
  return written == SEGMENT_BYTES ? 0 : ENOSPC;
}

static struct memprof_record *map(const struct own_file *file, int *error) {
  struct memprof_record *records = own_file_map(file, SEGMENT_BYTES);
  *error = records == NULL ? errno : own_file_populate(records, SEGMENT_BYTES);
  if (*error == 0) return records;
  if (records != NULL) segment_unmap(records);
  return NULL;
}

// All blocks of the file exist before it is mapped: a store into a hole on a full disk would be a SIGBUS in
// the job. Allocating them is not enough on file systems that choose blocks later, so all pages are
// faulted in as well.
static struct memprof_record *create(const struct directory *directory, const char *name, int *error) {
  struct own_file file;
  if (!directory_create(directory, name, SEGMENT_BYTES, &file)) {
    *error = errno;
    return NULL;
  }
  *error = directory->apart ? write_zeros(&file) : 0;
  struct memprof_record *records = *error == 0 ? map(&file, error) : NULL;
  own_file_close(&file);
  if (records == NULL) directory_remove(directory, name);
  return records;
}

struct memprof_record *segment_create(const struct directory *directory, uint64_t index, int *error) {
  enum { MOST_OTHERS = 100 };
  char name[32];
  struct memprof_record *records;
  int others = 0;  // attempts at which the number was another file's: the job's, or on file systems that change the inode always
  snprintf(name, sizeof name, "%06llu.seg", (unsigned long long)index);
  do {
    records = create(directory, name, error);
  } while (records == NULL && (*error == EBADF || (*error == ESTALE && others++ < MOST_OTHERS)));  // the job has closed it
  return records;
}

void segment_unmap(const struct memprof_record *records) { munmap((void *)(uintptr_t)records, SEGMENT_BYTES); }
