// own_file.h - a descriptor of the hook's in a process whose descriptors are the job's.
//
// A job may close any number, and give it to a file of its own, at any moment: daemons close
// all that they do not know. So the hook holds nothing by a descriptor; a mapping stays when
// its file is closed. It opens a file for one use, out of the way of the job's own. Calls that
// could change a file of the job's that took the number are not made: files get their size by
// path, and a mapping is used only if the number was the file's after it was made.
#ifndef MEMPROF_OWN_FILE_H
#define MEMPROF_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct own_file {
  int number;  // -1: none
  dev_t device;
  ino_t inode;
};

#define NO_FILE ((struct own_file){.number = -1})

// Takes a descriptor that was just opened, under another number; closed at exec. False, with
// errno unchanged, when `number` is negative.
bool own_file_take(struct own_file *file, int number);

// Whether the number still is that file.
bool own_file_is_there(const struct own_file *file);

// Maps a file of so many bytes, shared; forked children do not have the mapping. NULL with errno
// set; EBADF when the job has closed it meanwhile, ESTALE when the number is another file's.
void *own_file_map(const struct own_file *file, size_t bytes);

// Faults the pages of such a mapping in for writing; whole pages of zeros, which nobody else has
// yet. 0, or an errno: then a store would be a SIGBUS.
int own_file_populate(void *start, size_t bytes);

// Closes it, unless the job has done so.
void own_file_close(struct own_file *file);

#endif
