// lock.c - see lock.h.
#define _GNU_SOURCE
#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 200 };

static void futex(struct lock *lock, int operation, int value) {
  const int saved = errno;
  syscall(SYS_futex, &lock->state, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
  errno = saved;
}

void lock_wait(struct lock *lock) {
  // The holder is usually done before a system call would be.
  for (int i = 0; i < SPINS; i++) {
    int free = 0;
    if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
        atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)) {
      return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0) futex(lock, FUTEX_WAIT, 2);
}

void lock_wake(struct lock *lock) { futex(lock, FUTEX_WAKE, 1); }
