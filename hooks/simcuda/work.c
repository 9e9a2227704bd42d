// work.c - what queued work reads and writes, and whether anything changes it meanwhile.
//
// Kernels do not run here, so a test tells what they would do: simcuda_reads and simcuda_writes queue work on a stream; copies
// and fills on a stream queue theirs themselves. Work on a held stream is unfinished until the holds are released that the stream waited for when
// the work was queued. Meanwhile it is a race, and ends the program, if
//
//   - the host unmaps an address that the work reads or writes: the host is in no stream's order;
//   - other work writes the same physical bytes, at whatever address, and is not ordered behind it; or reads bytes that it writes.
//
// Order: each stream that was told work has a number, and its work is counted. The past of a stream says, for each number, how much
// of that stream's work comes before what is queued next. An event takes its stream's past along; a stream that waits for the event adds it to its own.
//
//   stream 1   read A (1.1)   record e ─────────┐
//   stream 2                       wait for e (past: 1.1)   write A: behind 1.1, no race
//   stream 3   write A: nothing of stream 1 is in its past: a race
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct work {
  struct work *next;
  uint64_t addr, bytes;
  uint64_t blocked_by;  // the holds that keep it unfinished; never 0
  size_t stream;        // its number
  uint64_t count;       // of that stream's work, with this
  bool writes;
};

static struct work *unfinished;
static size_t numbers;

static bool make_room(struct sim_past *past, size_t count) {
  if (count <= past->count) return true;
  uint64_t *grown = realloc(past->upto, count * sizeof *grown);
  if (grown == NULL) return false;
  memset(grown + past->count, 0, (count - past->count) * sizeof *grown);
  *past = (struct sim_past){grown, count};
  return true;
}

void sim_past_add(struct sim_past *to, const struct sim_past *from) {
  if (!make_room(to, from->count)) return;
  for (size_t i = 0; i < from->count; i++) {
    if (from->upto[i] > to->upto[i]) to->upto[i] = from->upto[i];
  }
}

void sim_past_set(struct sim_past *to, const struct sim_past *from) {
  sim_past_drop(to);
  sim_past_add(to, from);
}

void sim_past_drop(struct sim_past *past) {
  free(past->upto);
  *past = (struct sim_past){0};
}

static bool ordered(const struct work *earlier, const struct sim_past *past) {
  return earlier->stream < past->count && earlier->count <= past->upto[earlier->stream];
}

static bool overlap(uint64_t a, uint64_t a_end, uint64_t b, uint64_t b_end) { return a < b_end && b < a_end; }

// Whether two ranges of addresses have a physical byte in common.
static bool same_memory(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  uint64_t start, size, other_start, other_size;
  if (overlap(a, a + a_bytes, b, b + b_bytes)) return true;
  for (uint64_t at = a; at < a + a_bytes; at = start + size) {
    const struct sim_extent *extent = sim_mapping(at, &start, &size);
    if (extent == NULL) return false;
    const uint64_t from = at - start, to = a + a_bytes - start < size ? a + a_bytes - start : size;
    for (uint64_t other = b; other < b + b_bytes; other = other_start + other_size) {
      if (sim_mapping(other, &other_start, &other_size) == NULL) break;
      if (sim_mapping(other, &other_start, &other_size) != extent) continue;
      const uint64_t end = b + b_bytes - other_start < other_size ? b + b_bytes - other_start : other_size;
      if (overlap(from, to, other - other_start, end)) return true;
    }
  }
  return false;
}

static void race(const struct work *work, const char *what, uint64_t addr, uint64_t bytes) {
  fprintf(stderr, "simcuda: a race: %s [0x%llx, 0x%llx) under unfinished work of stream number %zu, which %s [0x%llx, 0x%llx)\n", what,
          (unsigned long long)addr, (unsigned long long)(addr + bytes), work->stream, work->writes ? "writes" : "reads",
          (unsigned long long)work->addr, (unsigned long long)(work->addr + work->bytes));
  fflush(NULL);
  abort();
}

void sim_work_unmaps(uint64_t addr, uint64_t bytes) {
  for (const struct work *work = unfinished; work != NULL; work = work->next) {
    if (overlap(work->addr, work->addr + work->bytes, addr, addr + bytes)) race(work, "cuMemUnmap of", addr, bytes);
  }
}

void sim_work_queue(struct sim_queue *queue, uint64_t blocked_by, uint64_t addr, uint64_t bytes, bool writes) {
  if (bytes == 0) return;
  for (const struct work *work = unfinished; work != NULL; work = work->next) {
    if ((writes || work->writes) && !ordered(work, &queue->past) && same_memory(work->addr, work->bytes, addr, bytes))
      race(work, writes ? "a write of" : "a read of", addr, bytes);
  }
  if (blocked_by == 0) return;
  if (!queue->numbered) queue->number = numbers++, queue->numbered = true;
  struct work *work = malloc(sizeof *work);
  if (work == NULL || !make_room(&queue->past, queue->number + 1)) abort();
  *work = (struct work){unfinished, addr, bytes, blocked_by, queue->number, ++queue->past.upto[queue->number], writes};
  unfinished = work;
}

void sim_work_release(uint64_t hold) {
  for (struct work **link = &unfinished, *work; (work = *link) != NULL;) {
    work->blocked_by &= ~hold;
    if (work->blocked_by != 0) {
      link = &work->next;
      continue;
    }
    *link = work->next;
    free(work);
  }
}
