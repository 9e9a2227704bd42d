// callers.h - records the Python stack that an allocation is made from, by --stacks python.
#ifndef MEMPROF_CALLERS_H
#define MEMPROF_CALLERS_H

#include <stdatomic.h>
#include <stdbool.h>

enum callers { CALLERS_NEVER_WANTED, CALLERS_WANTED, CALLERS_NO_LONGER_WANTED };

// Set by the options and by memprof_stacks.
extern _Atomic(enum callers) callers_state;

// Sets the stack of the calling thread's next allocation, or clears it if stacks are no longer wanted. `wait`: the caller holds no
// lock, and a frame that is met for the first time may wait for the interpreter's.
void callers_take(bool wait);

// The same, at no cost in a job that never wanted stacks. `locked`: under the lock of a native allocator, which another thread may wait for
// while it has the interpreter's.
static inline void callers_note(void) {
  if (atomic_load_explicit(&callers_state, memory_order_relaxed) != CALLERS_NEVER_WANTED) callers_take(true);
}
static inline void callers_note_locked(void) {
  if (atomic_load_explicit(&callers_state, memory_order_relaxed) != CALLERS_NEVER_WANTED) callers_take(false);
}

// A native allocator is about to be observed: checks that frames can be read, if stacks are wanted. The caller has Python frames and holds no lock.
void callers_prepare(void);

#endif
