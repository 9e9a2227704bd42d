// internal.h - how an event gets into its slot.
//
// The functions are inline because they are most of an event's cost. An event of a native
// allocator is filled in place, without a call and without a copy.
#ifndef MEMPROF_SPOOL_INTERNAL_H
#define MEMPROF_SPOOL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spool/record.h"
#include "spool/spool.h"

enum {
  SPOOL_WINDOW = 8,  // segments that are mapped at a time, at most
  // A writer prefetches the record that many slots ahead, so that it is in the cache when a slot
  // there is claimed.
  SPOOL_AHEAD = 32,
};

// A mapped segment: segment i is window[i % SPOOL_WINDOW]. The keeper unmaps a segment when all its
// records are committed, so that the hook's host memory does not grow.
struct spool_window {
  _Atomic(uint64_t) index;  // of the segment; UINT64_MAX: empty
  _Atomic(struct memprof_record *) records;
};

// Writers read it and change only process->claimed. spool.c changes the rest under its lock.
struct spool {
  _Atomic bool recording;           // events are written
  struct memprof_process *process;  // the mapped process page; NULL if nothing was ever recorded
  struct spool_window window[SPOOL_WINDOW];
};
extern struct spool spool;

// A writer has claimed a slot of a segment that is not mapped yet, or the `first` slot of one: waits
// until the segment is mapped, and has the next one made ahead. False: recording has stopped.
__attribute__((cold)) bool spool_turn(uint64_t segment, bool first);

// Claims the next record, of slot *claimed. NULL: nothing is recorded (any more).
static inline struct memprof_record *spool_claim_slot(uint64_t *claimed) {
  if (!atomic_load_explicit(&spool.recording, memory_order_acquire)) return NULL;
  const uint64_t slot = *claimed = __atomic_fetch_add(&spool.process->claimed, 1, __ATOMIC_RELAXED);
  const uint64_t segment = slot / MEMPROF_SEGMENT_RECORDS;
  const uint64_t at = slot % MEMPROF_SEGMENT_RECORDS;
  struct spool_window *place = &spool.window[segment % SPOOL_WINDOW];
  if (atomic_load_explicit(&place->index, memory_order_acquire) != segment || at == 0) {
    if (!spool_turn(segment, at == 0)) return NULL;
  }
  struct memprof_record *records = atomic_load_explicit(&place->records, memory_order_relaxed);
  __builtin_prefetch(&records[(at + SPOOL_AHEAD) % MEMPROF_SEGMENT_RECORDS], 1);
  return &records[at];
}

static inline struct memprof_record *spool_claim(void) {
  uint64_t slot;
  return spool_claim_slot(&slot);
}

// Makes a filled record valid for readers.
static inline void spool_commit(struct memprof_record *record, enum memprof_kind kind) {
  __atomic_store_n(&record->commit, MEMPROF_COMMITTED | (uint32_t)kind, __ATOMIC_RELEASE);
}

// The kernel's id of the calling thread, 0 until spool_ask_thread has set it.
extern __thread uint32_t spool_thread;
__attribute__((cold)) uint32_t spool_ask_thread(void);

// Fills a record with an event of time `time_ns`, and commits it.
static inline void spool_fill(struct memprof_record *record, const struct spool_event *event, uint64_t time_ns) {
  record->device = event->device < 0 ? MEMPROF_NO_DEVICE : (uint16_t)event->device;
  record->time_ns = time_ns;
  record->addr = event->addr;
  record->requested = event->requested;
  record->provided = event->provided;
  record->stream = event->stream;
  record->arena = event->arena;
  record->context = event->context;
  record->thread = spool_thread != 0 ? spool_thread : spool_ask_thread();
  spool_commit(record, event->kind);
}

// Writes an event of time `time_ns` in place.
static inline void spool_put(const struct spool_event *event, uint64_t time_ns) {
  struct memprof_record *record = spool_claim();
  if (record != NULL) spool_fill(record, event, time_ns);
}

// Writes the strings that were numbered before there was a spool, and from then on each at once.
void spool_write_strings(void);

#endif
