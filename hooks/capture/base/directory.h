// directory.h - the directory that this process records into.
#ifndef MEMPROF_DIRECTORY_H
#define MEMPROF_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/own_file.h"

struct directory {
  char path[4200];  // absolute; "" for none
  // Of a thread with a table of descriptors of its own, which the job cannot reach: the
  // directory, opened. Then files may be written by their descriptors, and are found when
  // the job has changed its root.
  bool apart;
  struct own_file opened;
};

// Makes the directory, for this user only. False with errno set.
bool directory_make(struct directory *directory, const char *path);

// The directory as the calling thread has it from now on, with a table of descriptors of its
// own where the kernel has it do so. The thread then has none of the job's descriptors.
void directory_apart(struct directory *mine, const struct directory *directory);

// Makes a file in it of so many bytes, with disk space for them as far as the file system
// knows, and opens it for one use. False with errno set: then there is no such file.
bool directory_create(const struct directory *directory, const char *name, size_t bytes, struct own_file *file);

void directory_remove(const struct directory *directory, const char *name);

#endif
