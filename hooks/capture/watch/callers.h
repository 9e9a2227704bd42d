// callers.h - records the Python stack that an allocation is made from, by --stacks python.
#ifndef MEMPROF_CALLERS_H
#define MEMPROF_CALLERS_H

#include <stdatomic.h>
#include <stdbool.h>

enum callers { CALLERS_NEVER_WANTED, CALLERS_WANTED, CALLERS_NO_LONGER_WANTED };

// Set by the options and by memprof_stacks.
extern _Atomic(enum callers) callers_state;

// Sets the stack of the calling thread's next allocation, or clears it if stacks are no longer wanted. The
// caller holds no lock: to turn a new frame into text, this waits for the interpreter's lock.
void callers_take(void);

// The same, at no cost in a job that never wanted stacks.
static inline void callers_note(void) {
  if (atomic_load_explicit(&callers_state, memory_order_relaxed) != CALLERS_NEVER_WANTED) callers_take();
}

#endif
