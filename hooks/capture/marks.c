// marks.c - iterations and phases, as the job or its optimizer announces them.
//
// A mark is an event like any other, so its place among the allocations is exact. Marks
// of a process that has not used CUDA yet are dropped: there is nothing they could divide.
#include <stdatomic.h>

#include "hook.h"
#include "memprof.h"
#include "spool.h"

static void mark(enum memprof_kind kind, uint64_t number, const char *text) {
  spool_write(&(struct spool_event){
      .kind = kind,
      .device = -1,
      .arena = MEMPROF_NO_ARENA,
      .requested = number,
      .context = spool_string(text),
  });
}

void memprof_iteration(const char *label) {
  static _Atomic(uint64_t) number;
  if (hook_on() && spool_started()) mark(MEMPROF_ITERATION, atomic_fetch_add(&number, 1), label);
}

void memprof_phase_begin(const char *name) {
  if (hook_on() && spool_started()) mark(MEMPROF_PHASE_BEGIN, 0, name);
}

void memprof_phase_end(const char *name) {
  if (hook_on() && spool_started()) mark(MEMPROF_PHASE_END, 0, name);
}
