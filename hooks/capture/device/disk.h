// disk.h - files for copies of paused memory.
//
// Files are named memprof-backup-PID-..., of mode 0600, and deleted when the copy is not needed any more or the
// process ends in order. Each is preallocated before the first byte is copied, so that a full disk is found
// while nothing has changed. Written bytes leave the page cache: the copies cost the host no memory.
#ifndef MEMPROF_DISK_H
#define MEMPROF_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disk_file {
  char *path;
  uint64_t from, bytes;  // of the room's bytes, those that the file has
};

// Room for copies, as consecutive bytes from 0 that lie in files, one after the other.
struct disk_room {
  struct disk_file *files;
  size_t count;
  int open;    // the file descriptor of the file that is read or written; -1: none
  size_t file; // which file that is
};

// Sets the folder of files that are made from now on; it is made if it does not exist. NULL: $TMS_DISK_BACKUP_DIR, else
// $MEMPROF_BACKUP_DIR, else $TMPDIR, else /tmp.
void disk_set_folder(const char *folder);

// Makes a file for each of `count` sizes. False, with nothing made: disk_message() says why.
bool disk_take(struct disk_room *room, const uint64_t *sizes, size_t count);
void disk_give(struct disk_room *room);  // deletes the files

// Writes or reads bytes that lie in one file. False: disk_message() says why.
bool disk_write(struct disk_room *room, uint64_t place, const void *data, uint64_t bytes);
bool disk_read(struct disk_room *room, uint64_t place, void *data, uint64_t bytes);

// Closes the file that was written or read last. False: the disk did not take what was written.
bool disk_close(struct disk_room *room);

// Which call failed on which file, and why, in the calling thread's last call that failed.
const char *disk_message(void);

#endif
