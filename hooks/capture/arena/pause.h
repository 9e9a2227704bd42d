// pause.h - pauses: the memory of a tag is unmapped, and later mapped again at the same addresses.
//
// What a thread allocates inside a region belongs to the region's tag, which has arenas of its own,
// so no handle holds blocks of two tags. A pause releases the tag's physical memory; its addresses
// stay reserved and its blocks stay allocated. A resume maps new memory there. Each is done for all
// named tags or for none:
//
//   pause    copy the content of backed-up tags to the host ▸ unmap all ▸ release the handles
//   resume   create and map all handles ▸ copy the content back ▸ release the copies
//                                       └ a failure before this point undoes what was done
//
// While a tag is paused its blocks may be freed; requests under it get memory of a new arena. A resume
// does not map pages in which no block is left.
#ifndef MEMPROF_PAUSE_H
#define MEMPROF_PAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/backup.h"

struct gpu;

// What an arena with a tag has for its pauses. Under its device's lock.
struct pause {
  struct byte_range *ranges;  // while paused: what resume maps
  size_t range_count;
  struct backup backup;       // copies of the blocks: while paused, or kept by resume
};

// Made at the first region with the name and the restore mode, never freed. All tags with a name are paused and resumed
// together.
struct tag {
  const char *name;
  const char *label;     // the name in the trace: its blanks are underscores, 100 bytes at most
  int asked;             // enum memprof_restore of its regions; NONE stands for NONE, DISCARD and HOST
  _Atomic int restore;   // the mode that counts: asked, or for NONE the strongest of these three so far
  _Atomic bool offloaded; // the allocator that its memory is from copies it to the host (memprof_tag_offloaded)
  _Atomic bool exact;    // its chunks are split to the granule: torch_memory_saver's users compare used memory
  struct tag *next;      // in the list of all tags, newest first
};

// The tag of the calling thread's innermost region. A thread without a region gets the tag that another
// thread shares (memprof_region_share). NULL: none.
struct tag *tag_current(void);

// The tag with that name and restore mode, made now if there is none. NULL: no host memory.
struct tag *tag_get(const char *name, int restore);

// How many regions of memprof_region_begin the calling thread is in.
int tag_depth(void);

// Whether a region with that tag was ever begun.
bool tag_known(const char *name);

// Ends arenas of tags that have no block and whose key another arena has, too: such an arena was made
// for requests while the tag was paused. The device's lock is held.
void tag_drop_spares(struct gpu *gpu);

// Has messages say that torch's allocations are served by another allocator while `serves`
// returns true. Then there is nothing that can be paused.
void pause_set_other_allocator(bool (*serves)(void));
bool pause_other_allocator(void);

#endif
