// file.h - memory in a file, for copies of paused memory that the host has no room for.
//
// The file has no name, so that nobody can change it and it ends with its mapping, however the process ends. It is
// preallocated before anything is copied, so that a full disk is found while nothing has changed.
#ifndef MEMPROF_FILE_H
#define MEMPROF_FILE_H

#include <stdbool.h>
#include <stdint.h>

// Sets the folder of files that are made from now on; it is made if it does not exist. NULL: $TMS_DISK_BACKUP_DIR, else
// $TMPDIR, else /tmp.
void file_set_folder(const char *folder);

// Maps a new file of `bytes`; munmap ends it. NULL: file_message() says why.
void *file_map(uint64_t bytes);

// Writes what was stored there to the disk; the host may then use its pages for other things. False: the disk did not take it.
bool file_write(void *piece, uint64_t bytes);

// Which call failed in which folder, and why, in the calling thread's last call that failed.
const char *file_message(void);

#endif
