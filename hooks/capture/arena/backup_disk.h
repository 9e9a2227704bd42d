// backup_disk.h - copies of live blocks in files.
//
// A range of at least DISK_APART bytes has a file of its own; smaller neighbours in the order of addresses share one.
// Blocks go through one pinned buffer, in chunks; each chunk has a checksum, which is kept in memory. So a file
// that was changed or cut on the disk is found, and the resume fails instead of returning other content.
#ifndef MEMPROF_BACKUP_DISK_H
#define MEMPROF_BACKUP_DISK_H

#include "arena/backup.h"

enum { DISK_APART = 1 << 20 };  // bytes

// Makes the files of backup->copies. With BACKUP_NO_DISK, disk_message() says why.
enum backup_result backup_disk_take(struct backup *backup);

// Copies on a stream of the current device; `in` only to the parts that are live. They wait for the copies.
enum backup_result backup_disk_out(struct backup *backup, const struct byte_ranges *live, void *stream);
enum backup_result backup_disk_in(struct backup *backup, const struct byte_ranges *live, void *stream);

#endif
