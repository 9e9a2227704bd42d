// fence.h - when all streams have done what they had queued.
//
// A program may free a tensor of one stream while another stream still reads it, and say nothing (record_stream): with
// torch's own allocator that is harmless, since the free block serves its own stream alone, and goes back to the device only
// after that has been waited for. PyTorch's tests do so. So before an address of an arena loses its page, for another arena, another
// address or the device, the hook asks not only the stream of the arena, but all streams that have arenas. A fence is an
// event on each of them, recorded at one time; when all are over, so is the work that was queued before it, on whatever of these streams:
//
//   arena  stream   frees so far   event   over before the fence
//   0      default  12             #3      pages left by the first 12 frees
//   1      0x5e..   40             #9      pages left by the first 40 frees
//
// Streams that are idle need no event. Of streams without an arena nothing is known, as torch's own allocator knows nothing
// of streams that record_stream did not name. One fence is under way at a time. Fences have numbers: whoever will need that
// what is queued now is over asks for the number of a fence that it is before.
//
// Two kinds of streams cannot be asked, and there is no fence while one has an arena: one that was destroyed without an event
// (during a capture), until the device has been waited for; and the default streams of threads, which share one handle.
//
// What orders one use of memory behind the last:
//
//   chunk, to a block of its arena                        nothing: its stream's order
//   the same, used on other streams                       an event of each of them; where that cannot be noted, the device
//   page, to another address of its arena                 nothing: its stream's order
//   address, whose old mapping goes                       the event of the move, and a fence, for 50 ms at most
//   page, to another arena; page that a trim unmaps       a fence; until it is over the page stays
//   page, for a request that lacks memory                 all streams with arenas, or the device
//   page, for empty_cache or another library              the device
//   memory of a pool, of a pause, a checkpoint, another   the device
//     process; a range of a graph memory
//   handle of a destroyed stream, to a new stream         the work queued before
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
// True: all that is queued is before the last fence.
bool fence_look(struct gpu *gpu);

// The number of the first fence that all work on what was freed so far is before. It was recorded, or will be by a later fence_look.
uint64_t fence_next(struct gpu *gpu);

// How long one request waits in fence_wait_for, in ns, however many fences it needs. Another stream may wait for what this thread has yet to queue (a ring that receives before it
// sends), or for the slowest of many processes: a wait without end could stop the job. Tests change it.
extern uint64_t fence_patience;

// Waits until the fence of that number is over, or the request's patience is, or a stream cannot be asked.
void fence_wait_for(struct gpu *gpu, uint64_t number);

// Waits until what was queued before the call is over on all streams, and brings `over` up to date. False: a stream cannot be waited for.
bool fence_wait(struct gpu *gpu);

// The device was waited for: all is over.
void fence_waited(struct gpu *gpu);

// Whether no other stream has an arena, so that the events of this one tell all.
bool fence_alone(const struct arena *arena);

// Whether the arena's memory is free for others when its stream, and all others, are done. A graph uses free memory of its
// pool on any stream, the handle of a thread's default stream stands for other streams in other threads, and of a stream
// that was destroyed without an event nothing is known.
bool fence_covers(const struct arena *arena);

#endif
