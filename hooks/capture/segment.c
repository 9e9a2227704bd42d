// segment.c - see segment.h.
//
// Most of what a segment costs is the faulting in of its pages, so the order of calls
// matters: a page that holds data when it is first stored into is only mapped, one that is a
// hole or merely allocated is a transaction of the file system each. Zeros written in one
// call besides let the file system take pages larger than 4 KiB.
#define _GNU_SOURCE
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { POPULATE_WRITE = 23 };  // MADV_POPULATE_WRITE, newer than some headers

enum { ZEROS = 65536, PIECES = SEGMENT_BYTES / ZEROS, SMALLEST_PAGE = 4096 };

static int write_zeros(int file) {
  static char zeros[ZEROS];
  struct iovec pieces[PIECES];
  for (int i = 0; i < PIECES; i++) pieces[i] = (struct iovec){zeros, sizeof zeros};
  const ssize_t written = pwritev(file, pieces, PIECES, 0);
  if (written < 0) return errno;
  return written == SEGMENT_BYTES ? 0 : ENOSPC;
}

// Whether a refusal says nothing of the disk: not every file system knows the call, nor lets
// every sandbox make it, nor does a signal let every call through.
static bool is_of_the_call(int error) {
  return error == EOPNOTSUPP || error == EINVAL || error == ENOSYS || error == EPERM || error == EINTR;
}

// Blocks for the whole file are had before it is mapped: a store into a hole on a full disk
// would be a SIGBUS in the job. Writing is not enough where blocks are found later.
static int preallocate(int file) {
  if (fallocate(file, 0, 0, SEGMENT_BYTES) != 0 && !is_of_the_call(errno)) return errno;
  return write_zeros(file);
}

// Faults the pages in for writing.
static int populate(struct memprof_record *records) {
  if (madvise(records, SEGMENT_BYTES, POPULATE_WRITE) == 0) return 0;
  if (errno == EFAULT) return ENOSPC;  // a store would be a SIGBUS
  // A kernel before 5.14. Nobody else has the segment yet.
  for (int i = 0; i < MEMPROF_SEGMENT_RECORDS; i += SMALLEST_PAGE / MEMPROF_RECORD_BYTES) {
    __atomic_store_n(&records[i].commit, 0, __ATOMIC_RELAXED);
  }
  return 0;
}

static struct memprof_record *map(int file, int *error) {
  struct memprof_record *records = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (records == MAP_FAILED) {
    *error = errno;
    return NULL;
  }
  madvise(records, SEGMENT_BYTES, MADV_DONTFORK);  // or children would keep the disk space
  *error = populate(records);
  if (*error == 0) return records;
  segment_unmap(records);
  return NULL;
}

struct memprof_record *segment_create(int directory, uint64_t index, int *error) {
  char name[32];
  snprintf(name, sizeof name, "%06llu.seg", (unsigned long long)index);
  const int file = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    *error = errno;
    return NULL;
  }
  *error = preallocate(file);
  struct memprof_record *records = *error == 0 ? map(file, error) : NULL;
  close(file);
  if (records == NULL) unlinkat(directory, name, 0);
  return records;
}

void segment_unmap(const struct memprof_record *records) { munmap((void *)(uintptr_t)records, SEGMENT_BYTES); }
