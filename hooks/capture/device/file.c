// file.c - see file.h.
#define _GNU_SOURCE
#include "device/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/lock.h"
#include "base/problem.h"
#include "base/thread_own.h"

enum { TMPFS = 0x01021994 };  // f_type of the file system in memory

static struct lock lock;
static char folder[PATH_MAX];  // "": not set
static bool warned;

const char *file_message(void) { return thread_texts()->file; }

static void failed(const char *call, int error) { snprintf(thread_texts()->file, sizeof thread_texts()->file, "%s of a backup file in %s: %s", call, folder, strerror(error)); }

static void set_folder(const char *path) {
  snprintf(folder, sizeof folder, "%s", path);
  warned = false;
}

void file_set_folder(const char *path) {
  lock_take(&lock);
  set_folder(path == NULL ? "" : path);
  lock_give(&lock);
}

static const char *folder_of_environment(void) {
  const char *saver = getenv("TMS_DISK_BACKUP_DIR"), *temporary = getenv("TMPDIR");
  if (saver != NULL && saver[0] != '\0') return saver;
  return temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp";
}

static void warn_of_memory(int fd) {
  struct statfs system;
  if (!warned && fstatfs(fd, &system) == 0 && system.f_type == TMPFS) problem("backup files go to %s, which is a file system in memory: they take host memory", folder);
  warned = true;
}

// The descriptor of a new file of `bytes` without a name; -1: it cannot be made. Under `lock`.
static int make(uint64_t bytes) {
  char path[PATH_MAX + 64];
  if (folder[0] == '\0') set_folder(folder_of_environment());
  mkdir(folder, 0700);
  snprintf(path, sizeof path, "%s/memprof-backup-%d-XXXXXX", folder, (int)getpid());
  const int fd = mkostemp(path, O_CLOEXEC);
  if (fd < 0) {
    failed("the creation", errno);
    return -1;
  }
  unlink(path);
  warn_of_memory(fd);
  int error = posix_fallocate(fd, 0, (off_t)bytes);
  if (error == EOPNOTSUPP || error == EINVAL) error = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
  if (error == 0) return fd;
  failed("the allocation", error);
  close(fd);
  return -1;
}

// The descriptor is closed at once, since the job may close descriptors that it does not know.
void *file_map(uint64_t bytes) {
  lock_take(&lock);
  const int fd = make(bytes);
  void *piece = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0 && piece == MAP_FAILED) failed("the mapping", errno);
  if (fd >= 0) close(fd);
  lock_give(&lock);
  return piece == MAP_FAILED ? NULL : piece;
}

bool file_write(void *piece, uint64_t bytes) {
  if (msync(piece, bytes, MS_SYNC) != 0) {
    const int error = errno;
    lock_take(&lock);
    failed("the writing", error);
    lock_give(&lock);
    return false;
  }
  madvise(piece, bytes, MADV_DONTNEED);  // the pages are the disk's now, and no part of the process's resident memory
  return true;
}

static void forget(void) { lock = (struct lock){0}; }

HOOK_PART(.order = HOOK_REST, .forget = forget);
