// own_file.c - see own_file.h.
#define _GNU_SOURCE
#include "base/own_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// A number that the job's own files rarely reach, since a new file gets the lowest free one. If the limit of
// descriptors is lower, the file keeps its number.
enum { OUT_OF_THE_WAY = 500 };

enum { POPULATE_WRITE = 23, SMALLEST_PAGE = 4096 };  // MADV_POPULATE_WRITE is newer than some headers

bool own_file_take(struct own_file *file, int number) {
  struct stat about;
  *file = NO_FILE;
  if (number < 0) return false;
  const int high = fcntl(number, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  if (high >= 0) {
    close(number);
    number = high;
  }
  if (fstat(number, &about) != 0) return false;
  *file = (struct own_file){number, about.st_dev, about.st_ino};
  return true;
}

bool own_file_is_there(const struct own_file *file) {
  struct stat about;
  const int saved = errno;
  const bool there = file->number >= 0 && fstat(file->number, &about) == 0 && about.st_dev == file->device && about.st_ino == file->inode;
  errno = saved;
  return there;
}

void *own_file_map(const struct own_file *file, size_t bytes) {
  void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->number, 0);
  if (start == MAP_FAILED) return NULL;
  struct stat about;
  const bool open = fstat(file->number, &about) == 0;
  // If the number is another file's now, it may have been so when it was mapped. If the size differs, the
  // job gave the number to a file of its own before own_file_take.
  if (!open || about.st_dev != file->device || about.st_ino != file->inode || about.st_size != (off_t)bytes) {
    munmap(start, bytes);
    errno = open ? ESTALE : EBADF;
    return NULL;
  }
  madvise(start, bytes, MADV_DONTFORK);
  return start;
}

int own_file_populate(void *start, size_t bytes) {
  if (madvise(start, bytes, POPULATE_WRITE) == 0) return 0;
  if (errno == EFAULT) return ENOSPC;
  // A kernel before 5.14. A system call that writes into the page, as that of the signal mask does, fails
  // where a store would be a SIGBUS.
  enum { MASK = 8 };
  for (char *at = (char *)start + SMALLEST_PAGE - MASK; at < (char *)start + bytes; at += SMALLEST_PAGE) {
    if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, at, MASK) != 0) return ENOSPC;
    memset(at, 0, MASK);
  }
  return 0;
}

void own_file_close(struct own_file *file) {
  const int saved = errno;
  if (own_file_is_there(file)) close(file->number);
  errno = saved;
  *file = NO_FILE;
}
