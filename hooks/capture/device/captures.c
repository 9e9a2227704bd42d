// captures.c - see captures.h.
#define _GNU_SOURCE
#include "device/captures.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/hook.h"

enum { HELD_US = 20 };  // microseconds between two checks of a thread that waits to begin a capture

static _Atomic int captures;
static _Atomic int held;     // by so many threads
static __thread int depth;   // of the calling thread's holds

bool capturing(void) { return depth == 0 && atomic_load_explicit(&captures, memory_order_acquire) > 0; }

int captures_count(void) { return atomic_load(&captures); }

void captures_begin(void) {
  atomic_fetch_add(&captures, 1);
  while (atomic_load(&held) > 0) usleep(HELD_US);
}

int captures_end(void) { return atomic_fetch_sub(&captures, 1) - 1; }

bool captures_hold(void) {
  if (depth == 0) {
    atomic_fetch_add(&held, 1);
    if (captures_count() > 0) {
      atomic_fetch_sub(&held, 1);
      return false;
    }
  }
  depth++;
  return true;
}

void captures_let(void) {
  if (--depth == 0) atomic_fetch_sub(&held, 1);
}

// The threads that hold captures back are the parent's.
static void forget(void) {
  atomic_store(&held, 0);
  depth = 0;
}

HOOK_PART(.forget = forget);
