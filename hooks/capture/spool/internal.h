// internal.h - the path of an event into its slot, for the files that fill records.
//
// It is in a header because it is all that most events cost: claimed and filled in place,
// an event of a watched allocator has no call left in it and no copy.
#ifndef MEMPROF_SPOOL_INTERNAL_H
#define MEMPROF_SPOOL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spool/record.h"
#include "spool/spool.h"

enum {
  SPOOL_WINDOW = 8,
  // Records that are made ready ahead: by the time their slots are claimed they have come
  // from memory, or from the cache of whoever wrote the zeros.
  SPOOL_AHEAD = 32,
};

// The segments in use: segment i is in window[i % SPOOL_WINDOW]. One that is committed to the
// last record is unmapped, so that the hook's own memory stays flat.
struct spool_window {
  _Atomic(uint64_t) index;  // UINT64_MAX when empty
  _Atomic(struct memprof_record *) records;
};

// What each writer reads, and none writes but for `process->claimed`.
struct spool {
  _Atomic bool recording;
  struct memprof_process *process;  // the mapped process page
  struct spool_window window[SPOOL_WINDOW];
};
extern struct spool spool;

// A slot of a segment that is not in the window was claimed, or the first of a segment: has
// it, and the next one, made. False when recording has ended.
__attribute__((cold)) bool spool_turn(uint64_t segment, bool first);

// The next record to fill, or NULL when nothing is recorded (any more).
static inline struct memprof_record *spool_claim(void) {
  if (!atomic_load_explicit(&spool.recording, memory_order_acquire)) return NULL;
  const uint64_t slot = __atomic_fetch_add(&spool.process->claimed, 1, __ATOMIC_RELAXED);
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

static inline void spool_commit(struct memprof_record *record, enum memprof_kind kind) {
  __atomic_store_n(&record->commit, MEMPROF_COMMITTED | (uint32_t)kind, __ATOMIC_RELEASE);
}

// The thread's kernel id, 0 until it is asked for.
extern __thread uint32_t spool_thread;
__attribute__((cold)) uint32_t spool_ask_thread(void);

// Writes an event in place.
static inline void spool_put(const struct spool_event *event, uint64_t time_ns) {
  struct memprof_record *record = spool_claim();
  if (record == NULL) return;
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

// Writes the strings interned before there was a spool.
void spool_write_strings(void);

#endif
