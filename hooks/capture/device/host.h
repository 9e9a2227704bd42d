// host.h - host memory for copies of paused memory.
//
// Copies to memory that is not pinned are slow, and so is pinning. There are four kinds of room:
//
//   slabs     pinned pieces of HOST_SLAB bytes, which are kept for later copies of any tag
//   pinned    one pinned piece, unpinned when it is given back: its bytes are one C array
//   pageable  one piece that is not pinned; giving it back lowers the resident memory of the process at once
//   file      one piece that is mapped from a file (file.h)
//
// backup_limit of the options bounds the sum of all but files.
#ifndef MEMPROF_HOST_H
#define MEMPROF_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_SLAB = 64 << 20 };  // bytes

enum host_kind { HOST_SLABS, HOST_PINNED, HOST_PAGEABLE, HOST_FILE };

// Room for copies, as consecutive bytes from 0 that lie in `count` pieces of `piece` bytes, one after the other.
struct host_room {
  enum host_kind kind;
  void **pieces;
  size_t count;
  uint64_t piece;  // bytes
};

// Takes room for `bytes`. False, with nothing taken: the limit is reached, or the system has no more; of files file_message() says why.
bool host_take(struct host_room *room, enum host_kind kind, uint64_t bytes);
void host_give(struct host_room *room);  // back

// The bytes that a room has.
uint64_t host_bytes(const struct host_room *room);

// The address of the room's bytes from `place` on, if `bytes` of them lie in one piece; else NULL.
void *host_at(const struct host_room *room, uint64_t place, uint64_t bytes);

// Queues a copy of [addr, addr+bytes) of device memory to the room's bytes from `place` on, or back,
// on a stream of the current device. False: the driver refused.
bool host_copy_out(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream);
bool host_copy_in(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream);

// After copies to a file: writes them to the disk. False: file_message() says why.
bool host_write(const struct host_room *room);

// Bytes of all rooms but files and of kept slabs, and of those that are in use.
void host_usage(uint64_t *kept, uint64_t *used);

#endif
