// lock.h - a mutex of one word, for critical sections of some tens of nanoseconds.
//
// Without contention, taking and giving back cost two atomic exchanges, half of what a pthread
// mutex costs. With contention a thread spins shortly, then sleeps in the kernel. A lock that is
// zero is free, and a forked child frees a lock by making it zero.
#ifndef MEMPROF_LOCK_H
#define MEMPROF_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct lock {
  _Atomic(int) state;  // 0: free; 1: held; 2: held, and a thread may sleep on it
};

// What lock_take and lock_give do under contention.
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

static inline void lock_take(struct lock *lock) {
  int free = 0;
  if (!atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)) lock_wait(lock);
}

// False: another thread holds it.
static inline bool lock_try(struct lock *lock) {
  int free = 0;
  return atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void lock_give(struct lock *lock) {
  if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2) lock_wake(lock);
}

#endif
