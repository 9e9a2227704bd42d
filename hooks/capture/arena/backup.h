// backup.h - the content of a paused arena on the host.
//
// Copies are made of stretches of live blocks, which lie one behind the other in pinned slabs
// (host.h), and may be kept after the content is back: then a next pause of the same blocks
// needs none.
#ifndef MEMPROF_BACKUP_H
#define MEMPROF_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/host.h"

struct arena;

// Ranges of addresses, neighbours joined.
struct stretch {
  uint64_t addr, bytes;
};
struct stretches {
  struct stretch *list;
  size_t count, room;
  bool short_of_memory;  // something was left out
};

// To be called in the order of addresses.
void stretches_append(struct stretches *to, uint64_t addr, uint64_t bytes);

struct backup {
  struct stretch *copies;  // NULL: there are none
  size_t count;
  uint64_t bytes;
  struct host_room room;  // where they lie, from the start
  bool fresh;             // made by the pause that is under way
};

enum backup_result { BACKUP_OK, BACKUP_NO_HOST_MEMORY, BACKUP_FAILED };

// Copies the live blocks of an arena, and waits for that. Copies that were kept are taken for the
// content if the caller says that it is unchanged, and the blocks are the same. On failure there
// is no copy.
enum backup_result backup_take(struct arena *arena, bool unchanged);

// Copies back what is still live. False: the driver refused.
bool backup_restore(struct arena *arena);

void backup_drop(struct arena *arena);

#endif
