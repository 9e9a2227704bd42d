// fence.h - when all streams have done what they had queued.
//
// A program may free a tensor of one stream while another stream still reads it, and say nothing (record_stream): with
// torch's own allocator that is harmless, since the free block serves its own stream alone, and goes back to the device only
// after that has been waited for. PyTorch's tests do so. So before pages leave their arena for another one the hook asks
// not only the stream of the arena, but all streams that have arenas. A fence is an event on each of them, recorded at one
// time; when all are over, so is the work that was queued before it, on whatever of these streams:
//
//   arena  stream   frees so far   event   over before the fence
//   0      default  12             #3      pages left by the first 12 frees
//   1      0x5e..   40             #9      pages left by the first 40 frees
//
// Streams that are idle need no event. Of streams without an arena nothing is known, as torch's own allocator knows nothing
// of streams that record_stream did not name.
#ifndef MEMPROF_FENCE_H
#define MEMPROF_FENCE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct gpu;

// An arena's part of the fences of its device.
struct fence {
  uint64_t event;  // the number of its event (lent.h) in the fence that is not over yet; 0: it has none there
  uint64_t frees;  // of the arena when that fence was recorded
  uint64_t over;   // work queued before so many frees of the arena is over, on all streams
};

// All need gpu->lock, with captures held back.

// Brings `over` of all arenas up to date without a wait. Where streams are busy, and the last fence is over, the next one is recorded.
void fence_look(struct gpu *gpu);

// Waits until what was queued before the call is over on all streams, and brings `over` up to date. False: a stream cannot be waited for.
bool fence_wait(struct gpu *gpu);

// Whether the arena's memory is free for others when its stream, and all others, are done. A graph uses free memory of its
// pool on any stream, the handle of a thread's default stream stands for other streams in other threads, and of a stream
// that was destroyed without an event nothing is known.
bool fence_covers(const struct arena *arena);

#endif
