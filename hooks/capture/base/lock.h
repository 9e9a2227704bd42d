// lock.h - a mutex of one word, for sections of some tens of nanoseconds.
//
// Taken and given back without contention it costs two atomic exchanges, half of what a
// pthread mutex does; with contention a thread sleeps in the kernel. States: 0 free,
// 1 held, 2 held and somebody sleeps.
#ifndef MEMPROF_LOCK_H
#define MEMPROF_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct lock {
  _Atomic(int) state;
};

// The slow halves; see lock.c.
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

static inline void lock_take(struct lock *lock) {
  int free = 0;
  if (!atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)) lock_wait(lock);
}

static inline bool lock_try(struct lock *lock) {
  int free = 0;
  return atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void lock_give(struct lock *lock) {
  if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2) lock_wake(lock);
}

#endif
