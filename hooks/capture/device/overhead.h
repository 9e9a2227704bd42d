// overhead.h - driver overhead: device memory that the driver takes for contexts, code and graphs.
//
// No call allocates it, so it is measured: the growth of used memory across a call that may take
// some, less what arenas and other libraries took in between. The time from overhead_begin to
// overhead_end is a *window*. Windows may overlap, in one thread or in several. To count growth
// once, the end of each window assigns it all bytes that no event accounts for and that were not
// there before the first of the overlapping windows began:
//
//   unaccounted    ┌───┐  ┌──┐
//               ───┘   └──┘  └───── the same at every time outside of windows
//   one          begin end
//   two             begin    end
//
// While a stream is captured, nothing is measured: the driver must not be asked then. Nor is a device
// measured that has no current context, nor anything in a process that is not recorded.
//
// A reading takes some 10 us, and a hundred times that while other processes map memory. So a call that
// the job may have put between two others in time, such as the first launch of a graph, has no window:
// what it took is measured *later*, by what has come since the last reading. That is the sum of all bytes
// that no event accounts for, since all other calls that take any have windows:
//
//   instantiate  launch      next window
//   begin   end  (later)     begin
//                └───────────┘ of the graph
//
// Which used memory is compared depends on NVML, and the event says so:
//
//   how=process   what NVML lists for this process. Other processes do not change it. This is used
//                 if NVML was seen to list this process when a context was made.
//   (no how)      all used memory of the device. What other processes take or return within the
//                 window is counted as overhead, so readers must doubt the number.
//
// A context is measured by NVML, since the driver answers no question about a device without one:
//
//   (no how)      growth of what NVML lists for this process
//   how=device    growth of all used memory, because NVML does not list this process: containers may
//                 hide processes, or list them by ids from outside. others=N other processes were
//                 listed. No event is written if used memory did not grow.
//   how=total     all used memory after the context was made, because NVML does not know the device
#ifndef MEMPROF_OVERHEAD_H
#define MEMPROF_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

// A window, on the stack of the thread that opened it.
struct overhead {
  int device;  // ordinal; -1: nothing is measured
};

// Before and after a call that may take memory of the current context's device. `context` is the
// string id of the event's fields what= and name=. overhead_end writes an event if bytes were taken
// or returned.
void overhead_begin(struct overhead *window);
void overhead_end(const struct overhead *window, uint32_t context);

// After a call for which nothing is read: its bytes are those that have come between the last reading and
// the next one, which the next window makes, or overhead_read_later. False: there was no reading within
// the last second, and the call needs a window of its own.
bool overhead_later(uint32_t context);

// Makes the reading if overhead_later asked for one. The caller has some 10 us.
void overhead_read_later(void);

// Before and after a context is made on `device`: its primary one (`primary`), which may exist
// already, or another. `made`: the call succeeded.
struct overhead_context {
  int device;     // ordinal; -1: no context is made, or another thread is measuring one there
  void *nvml;     // the device in NVML; NULL: NVML does not know it
  uint64_t used;  // bytes in use on the device before, by NVML
  int64_t own;    // of them by this process, 0 if it is not listed; -1: NVML does not say
};
void overhead_context_begin(struct overhead_context *making, int device, bool primary);
void overhead_context_end(const struct overhead_context *making, bool made);

// Sets how measurements learn what arenas have mapped. The function sets *mapped to its bytes on a
// device, and *held to the lock under which they change, now held by the caller (NULL: there is
// none). False: another thread holds the lock, which is not waited for.
typedef bool overhead_mapped(int device, struct lock **held, int64_t *mapped);
void overhead_leave_out(overhead_mapped *mapped);

// Bytes of the device that NVML lists for this process; -1 if it was not seen to list this process.
int64_t overhead_own(int device);

// Writes an event that the driver took `bytes` (negative: returned); none for 0.
void overhead_note(int device, int64_t bytes, uint32_t context);

// Whether the events so far leave overhead on the device.
bool overhead_noted(int device);

// The device has a context. overhead_of_several: more than one device was seen to have one.
void overhead_seen(int device);
bool overhead_of_several(void);

// The device was reset: its contexts are gone, and the driver has returned all overhead.
void overhead_gone(int device);

// Memory came from a pool of the driver, or was freed into one: writes an event if the bytes that
// the pools hold beyond what is allocated from them have changed by 1/256 of what they hold, or by
// 2 MiB.
void overhead_pools(int device);

#endif
