// pause.h - memory of a tag, given back and taken again at the same addresses.
//
// What a thread allocates inside a region belongs to the region's tag, which has arenas of its
// own: no handle holds blocks of two tags. Pausing a tag gives its physical memory back to
// the device; the addresses, and the blocks as far as anybody can tell, stay. Resuming maps
// new memory there. All or nothing, in the order of addresses:
//
//   pause    copy what is backed up to the host ▸ unmap all ▸ release the handles
//   resume   create and map all ▸ copy back ▸ let go of the copies
//                                └ before this point a failure restores what was
//
// While a tag is paused its blocks may be freed, and requests under it are served from a new
// arena. What was freed meanwhile is not mapped again by resume.
#ifndef MEMPROF_PAUSE_H
#define MEMPROF_PAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu;

struct tag {
  const char *name;
  const char *label;  // the name as it stands in the trace: without blanks
  _Atomic bool backed_up;  // pause copies the content to the host; never taken back
  struct tag *next;
};

// The tag of the innermost region of the calling thread, or of the region that lends itself to
// threads without one; NULL: none.
struct tag *tag_current(void);

// Whether a region with that tag was ever opened.
bool tag_known(const char *name);

// Ends arenas of tags that have nothing in use where another arena is there for the same: what was
// asked for under a sleeping tag has one of its own. The device's lock is held.
void tag_drop_spares(struct gpu *gpu);

// Has messages say that torch's allocations are served by another allocator while `serves`
// returns true. Then there is nothing that can be paused.
void pause_set_other_allocator(bool (*serves)(void));

#endif
