// addresses.c - finds the arena of a pointer.
#include <pthread.h>
#include <stdatomic.h>

#include "arena/arena.h"
#include "base/hook.h"

enum { MOST_RANGES = 8192 };

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;  // held while `ranges` changes

// Addresses of arenas, so that a pointer finds its arena without a lock. An entry is reused when its
// arena has ended: no live block lies in an ended arena, and a thread that has a pointer into the next
// arena has seen the entry change.
struct range {
  _Atomic(uint64_t) from, to;  // to = 0: the place is empty
  struct arena *_Atomic arena;
};
static struct range ranges[MOST_RANGES];
static _Atomic(int) range_count;

// By a hash of a pointer's GiB: where the range of such a pointer was found last, which may be another's by now.
enum { FOUND_BITS = 14 };
static _Atomic(int) found[1 << FOUND_BITS];

static bool in_range(int at, uint64_t addr) {
  return addr < atomic_load_explicit(&ranges[at].to, memory_order_acquire) &&
         addr >= atomic_load_explicit(&ranges[at].from, memory_order_relaxed);
}

struct arena *arena_of(uint64_t addr) {
  static __thread int last;
  const int count = atomic_load_explicit(&range_count, memory_order_acquire);
  _Atomic(int) *const guess = &found[((addr >> 30) * 0x9e3779b97f4a7c15) >> (64 - FOUND_BITS)];
  const int before = atomic_load_explicit(guess, memory_order_relaxed);
  for (int i = -2; i < count; i++) {
    const int at = i == -2 ? last : i == -1 ? before : i;
    if (!in_range(at, addr)) continue;
    last = at;
    if (at != before) atomic_store_explicit(guess, at, memory_order_relaxed);
    return atomic_load_explicit(&ranges[at].arena, memory_order_relaxed);
  }
  return NULL;
}

bool arena_add_range(struct arena *arena, uint64_t addr, uint64_t bytes) {
  pthread_mutex_lock(&making);
  const int count = atomic_load(&range_count);
  int at = 0, before = 0;
  while (at < count && atomic_load(&ranges[at].to) != 0) at++;
  while (before < count && (atomic_load(&ranges[before].arena) != arena || atomic_load(&ranges[before].to) != addr)) before++;
  const bool ok = before < count || at < MOST_RANGES;
  if (before < count) {
    atomic_store_explicit(&ranges[before].to, addr + bytes, memory_order_release);
  } else if (ok) {
    atomic_store(&ranges[at].from, addr);
    atomic_store(&ranges[at].arena, arena);
    atomic_store_explicit(&ranges[at].to, addr + bytes, memory_order_release);
    if (at == count) atomic_store_explicit(&range_count, count + 1, memory_order_release);
  }
  pthread_mutex_unlock(&making);
  return ok;
}

void arena_remove_ranges(const struct arena *arena) {
  pthread_mutex_lock(&making);
  for (int i = 0; i < atomic_load(&range_count); i++) {
    if (atomic_load(&ranges[i].arena) == arena) atomic_store(&ranges[i].to, 0);
  }
  pthread_mutex_unlock(&making);
}

static void forget(void) { pthread_mutex_init(&making, NULL); }

HOOK_PART(.forget = forget);
