// host.h - pinned host memory for copies of paused memory.
//
// Copies to memory that is not pinned are slow, and so is pinning. So memory is pinned in slabs of
// HOST_SLAB bytes, which are kept for later pauses. backup_limit of the options bounds their sum.
#ifndef MEMPROF_HOST_H
#define MEMPROF_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_SLAB = 64 << 20 };  // bytes

// Room for copies, as consecutive bytes from 0 that lie in `count` slabs, one after the other.
struct host_room {
  void **slabs;
  size_t count;
};

// Takes room for `bytes`. False, with nothing taken: the limit is reached, or the system pins no more.
bool host_take(struct host_room *room, uint64_t bytes);
void host_give(struct host_room *room);  // back; its slabs are kept for others

// Queues a copy of [addr, addr+bytes) of device memory to the room's bytes from `place` on, or back,
// on a stream of the current device. False: the driver refused.
bool host_copy_out(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream);
bool host_copy_in(const struct host_room *room, uint64_t place, uint64_t addr, uint64_t bytes, void *stream);

// Pins slabs for `bytes` more, so that a later host_take need not. Does nothing beyond the limit.
void host_prepare(uint64_t bytes);

// Bytes of all slabs that are pinned, and of those that are in use.
void host_usage(uint64_t *kept, uint64_t *used);

#endif
