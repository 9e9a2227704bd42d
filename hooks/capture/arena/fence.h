// fence.h - when all work that was queued so far is over, on all streams.
//
// Memory that the program frees may still be read by work that it has queued, on whatever stream: with torch's own allocator that is harmless, since a
// free block serves its own stream alone, and goes back to the device only after that was waited for. Reuse within an arena has the order of
// its stream, as there. But to unmap a page, or to put another one at its address, is an act of the host, in no stream's order. So the
// hook does either only when all work is over that was queued before the free. Until then a request gets other addresses (bfc/ready.c).
//
// A fence is an event behind all work that was queued before it, in every context of the device and of its peers: cuCtxRecordEvent, one call a context, which
// sees streams of all libraries, destroyed ones, and those of threads. Fences have numbers, and end in their order:
//
//   arena   frees   fence #3 is recorded   frees   #3 is over: pages left by the first 12 and 40 frees are clear (bfc_over)
//   0       12                             15
//   1       40                             47
//
// Nothing waits for a fence but fence_wait, which holds no lock. What a fence's end tells is a `fence` event of each arena, by which verify comes to the same decisions.
//
// While a stream is captured no fence can be recorded, and none is asked for. A driver without cuCtxRecordEvent (CUDA before 12.5, HIP) has
// fence_wait alone, which waits for the device: there pages change hands only at a limit.
//
// What orders one use of memory behind the last:
//
//   chunk, to a block of its arena                        nothing: its stream's order
//   the same, used on other streams                       an event of each of them; where that cannot be noted, a fence
//   page, to another address of its arena                 nothing: its stream's order
//   address, whose old mapping goes                       a fence; until it is over no request gets the address
//   page, to another arena; page that a trim unmaps       a fence; until it is over the page stays
//   page, for a request that lacks memory                 a fence, which is waited for without a lock
//   page, for empty_cache, another library, a resume      the same
//   memory of a pool; a range of a graph memory           a fence; until it is over they end later
//   memory of a pause, a checkpoint                       a fence, which is waited for before a lock is taken
#ifndef MEMPROF_FENCE_H
#define MEMPROF_FENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/driver.h"

struct arena;
struct gpu;

enum { FENCES = 8 };  // that may be under way at a time

// An event of a fence; `event` is made at the first use, and is of the context.
struct fence_event {
  void *context;
  driver_event event;
  bool over;
};

struct fence_slot {
  struct fence_event events[DRIVER_CONTEXTS];
  size_t count;  // of them in the last fence; 0: fence_wait alone can tell
};

// The fences of a device. Under its lock.
struct fences {
  uint64_t recorded, over;  // so many, so far; the first has number 1
  uint64_t frees;           // blocks of the device that were freed before the last fence
  bool looked;              // the request under way has looked
  struct fence_slot slots[FENCES];  // number n is at n % FENCES
};

// An arena's part.
struct fence_part {
  uint64_t frees[FENCES];  // of the arena, when the fence was recorded
  uint64_t over;           // all work is over that was queued before so many
};

// All below need gpu->lock.

// Records a fence, unless the last one is behind all frees. Returns the number of the fence that is; 0: a stream is captured, or the
// driver cannot.
uint64_t fence_record(struct gpu *gpu);

// Records a fence behind all work so far, also behind what was queued since the last free. A driver without fences gives it a number, too: fence_wait
// ends it. 0: a stream is captured, or too many are under way.
uint64_t fence_force(struct gpu *gpu);

// Finds out which fences are over. Returns whether the one with that number is.
bool fence_over(struct gpu *gpu, uint64_t number);

// Both, once a request: what a request decides must not depend on when it asks.
void fence_look(struct gpu *gpu);

// Whether all work is over that was queued before the arena's last free.
bool fence_clear(const struct arena *arena);

// Waits until all work is over that was queued so far. The lock is released meanwhile: other threads may change all that it guards. False: a
// stream is captured, or the driver refused.
bool fence_wait(struct gpu *gpu);

// The same without gpu->lock, for all devices.
bool fence_wait_for_all(void);

// Without the lock: a context is about to be destroyed; a device was reset. Their work has ended.
void fence_context_gone(void *context);
void fence_device_reset(int device);

#endif
