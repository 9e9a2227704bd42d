// overhead.h - memory that the driver takes for itself: contexts, code, graphs, pools.
//
// Nobody allocates it, so it is measured: what used memory grows by across a call that may
// take some, less what our arenas and other libraries took or gave meanwhile.
// Windows may overlap, in one thread or in several. Then growth is counted once, by the
// window that ends first after it: as long as any is open, the end of each brings what no
// event accounts for back to what it was before the first.
//
//   unaccounted    ┌───┐  ┌──┐
//               ───┘   └──┘  └───── always the same outside of windows
//   one          begin end
//   two             begin    end
//
// Nothing is measured while a stream is captured, and nothing about a device that has no
// current context.
//
// Whose used memory: that which NVML lists for this process, if it lists it since a context
// was made. Other processes on the device do not change it, and the event says `how=process`.
// Otherwise it is that of the whole device. Then a window counts what other processes take or
// return within it as ours; the event has no `how`, and whoever reads it must doubt the number.
//
// A context is measured by NVML, since the driver tells nothing of a device without one: by
// how much the memory grows that is listed for this process, which nobody else can disturb.
// Where the list does not have us, as in containers that hide processes or list them by
// their ids outside, the growth of the device's used memory stands for it. What others took
// or gave within that window is in it, and the event says `how=device`, and `others=` with the
// number of other processes that were listed; where that did not grow at all, nothing is said.
// Where NVML does not know the device, everything in use after the context was made stands for
// it, and the event says `how=total`.
#ifndef MEMPROF_OVERHEAD_H
#define MEMPROF_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

struct overhead {
  int device;  // -1: nothing is measured
};

// Around a call that may take memory of the current context's device. The context of the
// event is made by the caller: what=, name=.
void overhead_begin(struct overhead *window);
void overhead_end(const struct overhead *window, uint32_t context);

// Around the making of a context on `device`: its primary one, which may be there already,
// or another.
struct overhead_context {
  int device;  // -1: nothing is made
  void *nvml;  // the device there, which has `used` bytes in use; NULL: it cannot tell
  uint64_t used;
  int64_t own;  // of them by this process, 0 if it is not listed; -1: not told
};
void overhead_context_begin(struct overhead_context *making, int device, bool primary);
void overhead_context_end(const struct overhead_context *making, bool made);

// What arenas have mapped is no overhead. `mapped` returns its bytes on a device, and the lock
// under which they change, held, or NULL if nothing has to be held. False: another thread holds
// it; it is not waited for.
typedef bool overhead_mapped(int device, struct lock **held, int64_t *mapped);
void overhead_leave_out(overhead_mapped *mapped);

// Bytes of the device that NVML lists for this process; -1 if it was not seen to list it.
int64_t overhead_own(int device);

// Writes an event, if there is anything to tell; and whether one was written.
void overhead_note(int device, int64_t bytes, uint32_t context);
bool overhead_noted(int device);

// A device has a context, or a window; and whether there was more than one.
void overhead_seen(int device);
bool overhead_of_several(void);

// The last context of the device is gone, and all that was noted with it.
void overhead_gone(int device);

// What the driver's pools of the device hold beyond what was asked of them, noted when it
// has changed by much.
void overhead_pools(int device);

#endif
