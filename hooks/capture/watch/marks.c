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
#include "arena/trim.h"
#include "base/array.h"
#include "base/hook.h"
#include "base/lock.h"
#include "base/problem.h"
#include "memprof.h"
#include "spool/spool.h"
#include "watch/watch.h"

static void mark(enum memprof_kind kind, uint64_t number, uint32_t context) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .requested = number,
      .context = context,
  });
}

static _Atomic(uint64_t) iterations;

static void mark_iteration(void *label) { mark(MEMPROF_ITERATION, atomic_fetch_add(&iterations, 1), spool_string(label)); }

void memprof_iteration(const char *label) {
  if (!hook_on() || !spool_started()) return;
  watch_mark();
  trim_iteration(mark_iteration, (void *)(uintptr_t)label);
}

// Phases. Each end is that of a begin, also in the recording: `memprof verify` takes any other for a lost event.
// In a recording that code of the process began, a phase may end that began before.
static struct lock lock;
static uint32_t *open_phases;  // their texts; under `lock`
static size_t open_count, open_room;
static bool recording;  // their begins are written; under `lock`

static void marks_start(void) {
  lock_take(&lock);
  for (size_t i = 0; i < open_count; i++) mark(MEMPROF_PHASE_BEGIN, 0, open_phases[i]);
  recording = true;
  lock_give(&lock);
}

static void forget(void) { lock = (struct lock){0}; }

static void marks_stop(void) {
  atomic_store(&iterations, 0);
  lock_take(&lock);
  open_count = 0;
  recording = false;
  lock_give(&lock);
}

void memprof_phase_begin(const char *name) {
  if (!hook_on()) return;
  const uint32_t phase = spool_string(name);
  lock_take(&lock);
  if (array_reserve(&open_phases, &open_room, open_count + 1, sizeof *open_phases)) {
    open_phases[open_count++] = phase;
    if (recording) mark(MEMPROF_PHASE_BEGIN, 0, phase);
  }
  lock_give(&lock);
}

void memprof_phase_end(const char *name) {
  if (!hook_on()) return;
  const uint32_t phase = spool_string(name);
  lock_take(&lock);
  size_t i = open_count;
  while (i > 0 && open_phases[i - 1] != phase) i--;
  if (i > 0) {
    memmove(open_phases + i - 1, open_phases + i, (open_count-- - i) * sizeof *open_phases);
    if (recording) mark(MEMPROF_PHASE_END, 0, phase);
  }
  lock_give(&lock);
  if (i == 0 && !hook_in_process()) problem("a phase ends that has not begun: %s", name == NULL ? "" : name);
}

// Labels the live block at an address, under the lock: the event must come before the block's free.
static void label(uint64_t addr, uint32_t context) {
  struct arena *arena = arena_of(addr);
  if (arena == NULL) {
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

HOOK_PART(.order = HOOK_MARKS, .start = marks_start, .forget = forget, .stop = marks_stop);
