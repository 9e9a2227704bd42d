// host.h - pinned host memory for copies of device memory.
//
// Pinning memory is slow, and copies from memory that is not pinned are, too. So it is taken
// in slabs that are kept for the next time, up to a limit.
#ifndef MEMPROF_HOST_H
#define MEMPROF_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_SLAB = 64 << 20 };

// Room for copies of device memory, in slabs of which the last may be used in part.
struct host_room {
  void **slabs;
  size_t count;
};

// Room for `bytes`. False, with nothing taken: the limit, or no host memory.
bool host_take(struct host_room *room, uint64_t bytes);
void host_give(struct host_room *room);

// Queues the copy of device memory to the room's bytes from `place`, or from there back, on a
// stream of the device that is current.
bool host_copy_out(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream);
bool host_copy_in(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream);

// Has slabs for `bytes` more ready, as far as the limit goes.
void host_prepare(uint64_t bytes);

// Bytes of all slabs, and of those in use.
void host_usage(uint64_t *kept, uint64_t *used);

#endif
