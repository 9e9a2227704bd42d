// backup.h - copies of a paused arena's live blocks in host memory.
//
// Neighbouring live blocks are copied as one range; the copies of all ranges lie one behind the
// other in pinned slabs (device/host.h). Resume may keep the copies: a later pause of the same blocks
// with unchanged content needs no new ones.
#ifndef MEMPROF_BACKUP_H
#define MEMPROF_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/host.h"

struct arena;

// A list of address ranges, in the order of addresses; adjacent ranges are joined.
struct byte_range {
  uint64_t addr, bytes;
};
struct byte_ranges {
  struct byte_range *list;  // freed by the owner
  size_t count, room;
  bool short_of_memory;  // a range is missing for want of host memory
};

// Adds a range that lies behind all others.
void byte_ranges_append(struct byte_ranges *to, uint64_t addr, uint64_t bytes);

// The copies of one arena. Under its device's lock.
struct backup {
  struct byte_range *copies;  // the ranges that were copied; NULL: none
  size_t count;
  uint64_t bytes;          // of all copies
  struct host_room room;   // where they lie, from byte 0 on
  bool fresh;              // made by the pause under way, so its failure drops them
};

enum backup_result { BACKUP_OK, BACKUP_NO_HOST_MEMORY, BACKUP_FAILED };

// Copies the live blocks of an arena and waits for the copies. If `unchanged`, and the kept copies are of
// exactly these blocks, they are used instead. On failure the arena has no copies.
enum backup_result backup_take(struct arena *arena, bool unchanged);

// Copies back the blocks that are still live, and waits for that. False: the driver refused.
bool backup_restore(struct arena *arena);

// Releases the copies.
void backup_drop(struct arena *arena);

#endif
