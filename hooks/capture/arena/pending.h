// pending.h - blocks that were freed while other streams may still use them.
//
// torch's record_stream says that a block is also used on another stream. When it is freed,
// an event is recorded on each such stream, and the chunk stays in use until all have
// completed. Entries are looked at when their arena is next asked for memory, oldest
// first; where one stream is slow, the blocks of others behind it do not wait for it. While a stream is being captured into a graph no event may be queried or
// recorded, so entries wait without events until the capture has ended.
#ifndef MEMPROF_PENDING_H
#define MEMPROF_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/driver.h"

struct arena;

// The other streams of a live block; hangs on the chunk's note.
struct stream_uses {
  uint32_t count, capacity;
  void *streams[];
};

struct pending_entry {
  uint64_t addr;
  struct stream_uses *uses;  // owned; events[i] belongs to streams[i]
  driver_event *events;      // owned; NULL until recorded
};

// First in, first out.
struct pending {
  struct pending_entry *entries;  // [first, first + count) are in use
  size_t first, count, room;
};

// Notes that the live block at `addr` is used on `stream`. False: it is no live block, that
// was known or needs no care, or host memory is short.
bool pending_use(struct arena *arena, uint64_t addr, void *stream);

// Takes a freed block with its uses. False when host memory is short: then the device has
// been waited for, and the block may be freed at once. If that was not possible either, the
// block is never reused.
bool pending_add(struct arena *arena, uint64_t addr, struct stream_uses *uses);

// Frees what has become reusable. `waited`: the device has just been waited for.
void pending_poll(struct arena *arena, bool waited);

#endif
