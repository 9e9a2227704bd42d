// callers.h - the Python stack that an allocation is made from.
#ifndef MEMPROF_CALLERS_H
#define MEMPROF_CALLERS_H

#include <stdatomic.h>
#include <stdbool.h>

// Set once by the options, before the first allocation.
extern _Atomic(bool) callers_wanted;

// Sets the thread's stack for its next allocation. No lock may be held: a frame that was
// never seen before is turned into text, which waits for the interpreter's lock.
void callers_take(void);

static inline void callers_note(void) {
  if (atomic_load_explicit(&callers_wanted, memory_order_relaxed)) callers_take();
}

// In a forked child: the lock may have been another thread's.
void callers_forget(void);

#endif
