// directory.c - see directory.h.
#define _GNU_SOURCE
#include "base/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TABLE_OF_ITS_OWN = 2 };  // CLOSE_RANGE_UNSHARE
#ifndef SYS_close_range
#define SYS_close_range 436  // newer than some headers
#endif

bool directory_make(struct directory *directory, const char *path) {
  if (strlen(path) >= sizeof directory->path) {
    errno = ENAMETOOLONG;
    return false;
  }
  if (mkdir(path, 0700) != 0) return false;
  if (path[0] == '/' || realpath(path, directory->path) == NULL) strcpy(directory->path, path);  // absolute: the job may change its working directory
  directory->apart = false;
  directory->opened = NO_FILE;
  return true;
}

void directory_apart(struct directory *mine, const struct directory *directory) {
  *mine = *directory;
  if (syscall(SYS_close_range, 0, ~0u, TABLE_OF_ITS_OWN) != 0) return;
  mine->apart = own_file_take(&mine->opened, open(mine->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Whether an error is about the call, and not about a full disk: the file system lacks the call, a sandbox forbids
// it, or a signal interrupted it.
static bool is_of_the_call(int error) {
  return error == EOPNOTSUPP || error == EINVAL || error == ENOSYS || error == EPERM || error == EINTR;
}

static bool allocate(int file, size_t bytes) {
  return fallocate(file, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0 || is_of_the_call(errno);
}

bool directory_create(const struct directory *directory, const char *name, size_t bytes, struct own_file *file) {
  enum { FLAGS = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC };
  char path[sizeof directory->path + 64];
  snprintf(path, sizeof path, "%s/%s", directory->path, name);
  const int number = directory->apart ? openat(directory->opened.number, name, FLAGS, 0600) : open(path, FLAGS, 0600);
  if (number < 0) return false;
  const bool taken = own_file_take(file, number);
  const bool sized = taken && (directory->apart ? ftruncate(file->number, (off_t)bytes) : truncate(path, (off_t)bytes)) == 0;
  if (sized && allocate(file->number, bytes)) return true;
  const int error = taken && !own_file_is_there(file) ? EBADF : errno;  // the job has closed the descriptor
  own_file_close(file);
  directory_remove(directory, name);
  errno = error;
  return false;
}

void directory_remove(const struct directory *directory, const char *name) {
  char path[sizeof directory->path + 64];
  snprintf(path, sizeof path, "%s/%s", directory->path, name);
  if (directory->apart) {
    unlinkat(directory->opened.number, name, 0);
  } else {
    unlink(path);
  }
}
