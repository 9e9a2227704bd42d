// marks.c - iterations, phases and labels, as events.
//
// A mark is an event among the allocations, so which of them came before it is exact. Before the first use
// of CUDA there are no allocations, and marks are dropped. But phases that are open at the first use are
// written then, since the first allocation is in them.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/graph_memory.h"
#include "arena/trim.h"
#include "base/hook.h"
#include "memprof.h"
#include "spool/spool.h"
#include "watch/watch.h"

static void mark(enum memprof_kind kind, uint64_t number, const char *text) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .requested = number,
      .context = spool_string(text),
  });
}

static void mark_iteration(void *label) {
  static _Atomic(uint64_t) number;
  mark(MEMPROF_ITERATION, atomic_fetch_add(&number, 1), label);
}

void memprof_iteration(const char *label) {
  if (!hook_on() || !spool_started()) return;
  watch_mark();
  trim_iteration(mark_iteration, (void *)(uintptr_t)label);
}

enum { MOST_OPEN = 64 };
static struct lock lock;
static char *waiting[MOST_OPEN];  // names of phases that are open before there is a spool; under `lock`
static int waiting_count;

// The phase begins, or ends, before there is a spool: keeps or drops its name. False: there is one now.
static bool begun_early(const char *name) {
  lock_take(&lock);
  const bool early = !spool_started();
  if (early && waiting_count < MOST_OPEN && (waiting[waiting_count] = strdup(name == NULL ? "" : name)) != NULL) waiting_count++;
  lock_give(&lock);
  return early;
}

static bool ended_early(const char *name) {
  lock_take(&lock);
  const bool early = !spool_started();
  int at = early ? waiting_count - 1 : -1;
  while (at >= 0 && strcmp(waiting[at], name == NULL ? "" : name) != 0) at--;
  if (at >= 0) {
    free(waiting[at]);
    waiting_count--;
    memmove(waiting + at, waiting + at + 1, (size_t)(waiting_count - at) * sizeof *waiting);
  }
  lock_give(&lock);
  return early;
}

static void marks_start(void) {
  lock_take(&lock);
  for (int i = 0; i < waiting_count; i++) {
    mark(MEMPROF_PHASE_BEGIN, 0, waiting[i]);
    free(waiting[i]);
  }
  waiting_count = 0;
  lock_give(&lock);
}

static void forget(void) { lock = (struct lock){0}; }

void memprof_phase_begin(const char *name) {
  if (!hook_on()) return;
  if (spool_started() || !begun_early(name)) mark(MEMPROF_PHASE_BEGIN, 0, name);
}

void memprof_phase_end(const char *name) {
  if (!hook_on()) return;
  if (spool_started() || !ended_early(name)) mark(MEMPROF_PHASE_END, 0, name);
}

// Labels the live block at an address, under the lock: the event must come before the block's free.
static void label(uint64_t addr, uint32_t context) {
  struct arena *arena = arena_of(addr);
  const struct graph_range *range = arena == NULL ? NULL : graph_range_of(arena);
  if (arena == NULL || (range != NULL && range->segments)) {
    watch_label(addr, context);
    return;
  }
  struct bfc_block block;
  lock_take(&arena->gpu->lock);
  if (bfc_containing(arena->bfc, addr, &block) && arena_live(arena, &block)) arena_event(arena, MEMPROF_LABEL, block.addr, 0, 0, context);
  lock_give(&arena->gpu->lock);
}

void memprof_label(void *ptr, const char *context) {
  if (hook_on() && spool_started()) label((uintptr_t)ptr, spool_string(context));
}

void memprof_label_many(size_t count, const uint64_t *addresses, const uint32_t *contexts) {
  if (!hook_on() || !spool_started()) return;
  for (size_t i = 0; i < count; i++) {
    if (addresses[i] != 0) label(addresses[i], contexts[i]);
  }
}

HOOK_PART(.order = HOOK_MARKS, .start = marks_start, .forget = forget);
