// own_file.h - the hook's descriptors, in a process where the job may close any descriptor.
//
// A daemon, for one, closes all descriptors that it does not know, and opens files of its own under
// the same numbers. So the hook keeps no file open that it needs later: it maps the file, and a
// mapping stays when the descriptor is closed. A file is opened for one use, under a number from
// 500 up. The hook makes no call through a descriptor that could change a file of the job's under
// that number: files get their size by path, and a mapping is used only if the number still was
// the hook's file afterwards.
#ifndef MEMPROF_OWN_FILE_H
#define MEMPROF_OWN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct own_file {
  int number;  // of the descriptor; -1: none
  dev_t device;  // with inode: which file was opened
  ino_t inode;
};

#define NO_FILE ((struct own_file){.number = -1})

// Moves a descriptor that was just opened to a number from 500 up; it is closed at exec. False, with
// errno unchanged, if `number` is negative.
bool own_file_take(struct own_file *file, int number);

// Whether the number is still a descriptor of that file.
bool own_file_is_there(const struct own_file *file);

// Maps a file of `bytes` bytes, shared and writable; forked children do not have the mapping. NULL
// with errno set: EBADF if the job has closed the descriptor meanwhile, ESTALE if the number is
// another file's.
void *own_file_map(const struct own_file *file, size_t bytes);

// Faults all pages of such a mapping in for writing. They must hold zeros, and no other thread may
// use them yet. Returns 0, or an errno: then a store could end in SIGBUS.
int own_file_populate(void *start, size_t bytes);

// Closes it, unless the job has closed it already.
void own_file_close(struct own_file *file);

#endif
