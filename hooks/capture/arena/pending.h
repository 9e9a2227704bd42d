// pending.h - blocks that were freed while other streams may still use them.
//
// torch's record_stream says that a block is also used on another stream. When the block is freed, an
// event is recorded on each such stream, and the chunk stays in use until all events have completed; or until a fence is over
// (fence.h), where the streams are not known or take no event.
// The events are queried when the arena gets its next request, oldest entry first; an entry behind
// one that waits for a slow stream is freed as soon as its own streams are done. While a stream is
// captured, events may be neither recorded nor queried, so entries wait without events.
#ifndef MEMPROF_PENDING_H
#define MEMPROF_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/driver.h"

struct arena;

// The other streams that use a live block. The note of its chunk points to it.
struct stream_uses {
  uint32_t count, capacity;
  void *streams[];
};

// A pending block.
struct pending_entry {
  uint64_t addr;
  struct stream_uses *uses;  // freed with the entry; events[i] is of streams[i]
  driver_event *events;      // freed with the entry; NULL: not recorded yet
  uint64_t fence;            // the number of the fence that it waits for instead; 0: none
};

// The pending blocks of an arena, oldest first. Under its device's lock.
struct pending {
  struct pending_entry *entries;  // those in use are [first, first + count)
  size_t first, count, room;
};

// Notes that the live block at `addr` is used on `stream`; where there is no host memory for that, that it may be used on any.
// False, with nothing noted: no live block is there, or the stream is the arena's own or is noted already.
bool pending_use(struct arena *arena, uint64_t addr, void *stream);

// Frees what was noted of a block.
void pending_forget_uses(struct stream_uses *uses);

// Adds a freed block. Where there is no host memory for an entry the chunk is never reused.
void pending_add(struct arena *arena, uint64_t addr, struct stream_uses *uses);

// Frees the chunks whose streams are done. `all`: however many are not.
void pending_poll(struct arena *arena, bool all);

#endif
