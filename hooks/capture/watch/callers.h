// callers.h - the Python stack that an allocation is made from.
#ifndef MEMPROF_CALLERS_H
#define MEMPROF_CALLERS_H

#include <stdatomic.h>
#include <stdbool.h>

enum callers { CALLERS_NEVER_WANTED, CALLERS_WANTED, CALLERS_NO_LONGER_WANTED };

// Set by the options and by memprof_stacks.
extern _Atomic(enum callers) callers_state;

// Sets the thread's stack for its next allocation, or clears it when stacks are no longer wanted. No lock may be held: a frame that was
// never seen before is turned into text, which waits for the interpreter's lock.
void callers_take(void);

static inline void callers_note(void) {
  if (atomic_load_explicit(&callers_state, memory_order_relaxed) != CALLERS_NEVER_WANTED) callers_take();
}

#endif
