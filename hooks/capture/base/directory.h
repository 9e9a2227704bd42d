// directory.h - the directory that this process records into, and files made in it.
#ifndef MEMPROF_DIRECTORY_H
#define MEMPROF_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/own_file.h"

struct directory {
  char path[4200];  // absolute; "" for none
  // True for a thread that has a table of descriptors of its own, which the job cannot change. Then
  // `opened` is the directory: files in it are found even if the job changes its root, and may be
  // written through their descriptors.
  bool apart;
  struct own_file opened;
};

// Makes the directory with mode 0700. False with errno set.
bool directory_make(struct directory *directory, const char *path);

// Gives the calling thread a table of descriptors of its own if the kernel can (from Linux 5.9), and
// fills *mine in for it. The thread then has none of the job's descriptors.
void directory_apart(struct directory *mine, const struct directory *directory);

// Makes a new file of `bytes` bytes in it, allocates its disk space if the file system can, and opens
// it for one use. False with errno set: no such file is left.
bool directory_create(const struct directory *directory, const char *name, size_t bytes, struct own_file *file);

void directory_remove(const struct directory *directory, const char *name);

#endif
