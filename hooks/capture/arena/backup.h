// backup.h - copies of a paused arena's live blocks, and what its memory has after a resume.
//
// The restore mode of the arena's tag decides (enum memprof_restore). Copies lie in host memory or in a file
// (device/host.h). Neighbouring live blocks are copied as one range, and the copies of all ranges lie one behind the
// other. Resume may keep the copies: a later pause of the same blocks with unchanged content needs no new ones.
#ifndef MEMPROF_BACKUP_H
#define MEMPROF_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/host.h"

struct arena;
struct gpu;

// A list of address ranges, in the order of addresses; adjacent ranges are joined.
struct byte_range {
  uint64_t addr, bytes;
};
struct byte_ranges {
  struct byte_range *list;  // freed by the owner
  size_t count, room;
  bool apart;            // no range is joined with others
  bool short_of_memory;  // a range is missing for want of host memory
};

// Adds a range that lies behind all others.
void byte_ranges_append(struct byte_ranges *to, uint64_t addr, uint64_t bytes);

// The copies of one arena. Under its device's lock.
struct backup {
  struct byte_range *copies;  // the ranges that were copied; NULL: none
  size_t count;
  uint64_t bytes;          // of all copies
  struct host_room room;   // where they lie, from byte 0 on; it may be there without copies, for the next ones
  bool fresh;              // made by the pause under way, so its failure drops them
};

enum backup_result { BACKUP_OK, BACKUP_NO_HOST_MEMORY, BACKUP_FAILED, BACKUP_NO_DISK };

// Whether a pause of the arena copies its content.
bool backup_wanted(const struct arena *arena);

// Copies the live blocks of an arena and waits for the copies. If `unchanged`, and the kept copies are of
// exactly these blocks, they are used instead. On failure the arena has no copies.
enum backup_result backup_take(struct arena *arena, bool unchanged);

// Gives the live blocks the content that their tag promises, and waits for that.
enum backup_result backup_restore(struct arena *arena);

// The arena is resumed, and its copies are not kept. Pinned memory of its own stays for its next copies.
void backup_end(struct arena *arena);

// Releases the copies, and the memory for them.
void backup_drop(struct arena *arena);

// The same for arenas of tags in which no block is live, on a device whose lock is held.
void backup_drop_unused(struct gpu *gpu);

// Where in host memory the copy of [addr, addr+bytes) begins. NULL: there is none, it is not in one piece, or it is in a file.
void *backup_at(const struct arena *arena, uint64_t addr, uint64_t bytes);

#endif
