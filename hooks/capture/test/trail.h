// trail.h - what a process has spooled, read back, and whether it makes sense.
//
// trail_audit is a second opinion on the order of events that trace/event.go prescribes: it
// keeps the mapped ranges and the blocks by the events alone and looks for anything that
// could not have happened. It is quadratic and for tests only.
#ifndef MEMPROF_TEST_TRAIL_H
#define MEMPROF_TEST_TRAIL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "check.h"
#include "spool/record.h"

struct trail {
  char directory[512];
  struct memprof_process process;
  struct memprof_record *records;  // slots [0, count): committed events and string pieces
  uint64_t count;
};

// The spool directory of a process; false when it has none.
static inline bool trail_find(pid_t pid, char *path, size_t size) {
  const char *spool = getenv("MEMPROF_SPOOL");
  DIR *list = opendir(spool);
  char prefix[32];
  bool found = false;
  snprintf(prefix, sizeof prefix, "p%d.", (int)pid);
  for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    snprintf(path, size, "%s/%s", spool, entry->d_name);
    found = true;
  }
  if (list != NULL) closedir(list);
  return found;
}

static inline bool trail_committed(const struct memprof_record *record) {
  return (__atomic_load_n(&record->commit, __ATOMIC_ACQUIRE) & 0xffff0000u) == MEMPROF_COMMITTED;
}

static inline int trail_kind(const struct memprof_record *record) { return (int)(record->commit & 0xffff); }

// Reads what is claimed of a segment, when `end` records are; false when there is no such segment.
static inline bool trail_read_segment(struct trail *trail, uint64_t index, uint64_t end) {
  char path[600];
  snprintf(path, sizeof path, "%s/%06llu.seg", trail->directory, (unsigned long long)index);
  const int file = open(path, O_RDONLY);
  if (file < 0) return false;
  const uint64_t first = index * MEMPROF_SEGMENT_RECORDS, last = end < first + MEMPROF_SEGMENT_RECORDS ? end : first + MEMPROF_SEGMENT_RECORDS;
  trail->records = realloc(trail->records, last * MEMPROF_RECORD_BYTES);
  CHECK(trail->records != NULL);
  CHECK_EQUAL(pread(file, trail->records + first, (last - first) * MEMPROF_RECORD_BYTES, 0), (last - first) * MEMPROF_RECORD_BYTES);
  close(file);
  return true;
}

// Slots that were claimed are committed but for at most `lost`, and only at the end.
static inline struct trail trail_read(pid_t pid, uint64_t lost) {
  struct trail trail = {0};
  char path[600];
  CHECK(trail_find(pid, trail.directory, sizeof trail.directory));
  snprintf(path, sizeof path, "%s/process", trail.directory);
  const int file = open(path, O_RDONLY);
  CHECK(file >= 0 && pread(file, &trail.process, sizeof trail.process, 0) == sizeof trail.process);
  close(file);
  uint64_t end = trail.process.claimed;
  if (trail.process.state == MEMPROF_STOPPED && trail.process.stop_slot < end) end = trail.process.stop_slot;
  uint64_t segments = 0;
  while (segments * MEMPROF_SEGMENT_RECORDS < end && trail_read_segment(&trail, segments, end)) segments++;
  CHECK(segments * MEMPROF_SEGMENT_RECORDS >= end);
  while (trail.count < end && trail_committed(&trail.records[trail.count])) trail.count++;
  CHECK(end - trail.count <= lost);
  return trail;
}

// The text of a string, in `text` of 4,097 bytes; only of strings wholly before slot `before`.
static inline void trail_text(const struct trail *trail, uint32_t id, uint64_t before, char *text) {
  uint32_t got = 0, total = id == 0 ? 0 : 1;
  for (uint64_t i = 0; i < before && id != 0; i++) {
    const struct memprof_string *piece = (const struct memprof_string *)&trail->records[i];
    if (trail_kind(&trail->records[i]) != MEMPROF_STRING || piece->id != id) continue;
    memcpy(text + piece->offset, piece->text, piece->length);
    got += piece->length;
    total = piece->total;
  }
  CHECK_EQUAL(got, total);
  text[total] = '\0';
}

// What the process has written of problems; "" if nothing.
static inline const char *trail_problems(const struct trail *trail) {
  static char text[4096];
  char path[600];
  snprintf(path, sizeof path, "%s/problems", trail->directory);
  FILE *file = fopen(path, "r");
  text[file == NULL ? 0 : fread(text, 1, sizeof text - 1, file)] = '\0';
  if (file != NULL) fclose(file);
  return text;
}

// The n-th event of a kind, from 0; NULL when there are fewer.
static inline const struct memprof_record *trail_event(const struct trail *trail, enum memprof_kind kind, uint64_t n) {
  for (uint64_t i = 0; i < trail->count; i++)
    if (trail_kind(&trail->records[i]) == (int)kind && n-- == 0) return &trail->records[i];
  return NULL;
}

static inline uint64_t trail_number(const struct trail *trail, enum memprof_kind kind) {
  uint64_t number = 0;
  for (uint64_t i = 0; i < trail->count; i++) number += trail_kind(&trail->records[i]) == (int)kind;
  return number;
}

struct audit_range {
  uint64_t addr, bytes, requested;
  uint32_t arena;
  bool elsewhere, freed;  // of blocks: used on another stream; freed
};

struct audit {
  struct audit_range *mapped, *blocks;
  size_t mapped_count, block_count, mapped_room, block_room;
  uint64_t reserved, live, pending;  // bytes
};

static inline void audit_add(struct audit_range **list, size_t *count, size_t *room, struct audit_range range) {
  for (size_t i = 0; i < *count; i++)
    CHECK(range.addr >= (*list)[i].addr + (*list)[i].bytes || range.addr + range.bytes <= (*list)[i].addr);
  if (*count == *room) {
    *room = *room == 0 ? 64 : 2 * *room;
    *list = realloc(*list, *room * sizeof **list);
    CHECK(*list != NULL);
  }
  (*list)[(*count)++] = range;
}

static inline struct audit_range *audit_block(struct audit *audit, const struct memprof_record *record) {
  for (size_t i = 0; i < audit->block_count; i++)
    if (audit->blocks[i].addr == record->addr) {
      CHECK_EQUAL(audit->blocks[i].arena, record->arena);
      return &audit->blocks[i];
    }
  CHECK(!"an event names a block that is not there");
  return NULL;
}

// Bytes of [addr, addr+bytes) that are mapped.
static inline uint64_t audit_mapped(const struct audit *audit, uint64_t addr, uint64_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < audit->mapped_count; i++) {
    const uint64_t from = audit->mapped[i].addr > addr ? audit->mapped[i].addr : addr;
    const uint64_t end = audit->mapped[i].addr + audit->mapped[i].bytes;
    const uint64_t to = end < addr + bytes ? end : addr + bytes;
    if (from < to) sum += to - from;
  }
  return sum;
}

static inline void audit_unmap(struct audit *audit, const struct memprof_record *record) {
  const uint64_t from = record->addr, to = record->addr + record->provided;
  CHECK_EQUAL(audit_mapped(audit, from, record->provided), record->provided);
  for (size_t i = 0; i < audit->block_count; i++)
    CHECK(audit->blocks[i].addr >= to || audit->blocks[i].addr + audit->blocks[i].bytes <= from);
  audit->reserved -= record->provided;
  for (size_t i = audit->mapped_count; i-- > 0;) {
    const struct audit_range range = audit->mapped[i];
    if (range.addr >= to || range.addr + range.bytes <= from) continue;
    audit->mapped[i] = audit->mapped[--audit->mapped_count];
    struct audit_range rest = range;
    rest.bytes = from - range.addr;
    if (range.addr < from) audit_add(&audit->mapped, &audit->mapped_count, &audit->mapped_room, rest);
    rest.addr = to;
    rest.bytes = range.addr + range.bytes - to;
    if (range.addr + range.bytes > to) audit_add(&audit->mapped, &audit->mapped_count, &audit->mapped_room, rest);
  }
}

static inline void audit_end_block(struct audit *audit, struct audit_range *block) {
  *block = audit->blocks[--audit->block_count];
}

static inline void audit_event(struct audit *audit, const struct memprof_record *record) {
  struct audit_range range = {.addr = record->addr, .bytes = record->provided, .requested = record->requested, .arena = record->arena};
  struct audit_range *block;
  switch (trail_kind(record)) {
    case MEMPROF_MAP:
      audit_add(&audit->mapped, &audit->mapped_count, &audit->mapped_room, range);
      audit->reserved += range.bytes;
      break;
    case MEMPROF_UNMAP: audit_unmap(audit, record); break;
    // What an alias brings is mapped, but is no memory of the device of its own.
    case MEMPROF_ALIAS: audit_add(&audit->mapped, &audit->mapped_count, &audit->mapped_room, range); break;
    case MEMPROF_UNALIAS:
      audit->reserved += range.bytes;
      audit_unmap(audit, record);
      break;
    case MEMPROF_RESTORE:
    case MEMPROF_ALLOC:
      CHECK(range.bytes >= range.requested && range.requested > 0);
      CHECK_EQUAL(audit_mapped(audit, range.addr, range.bytes), range.bytes);
      audit_add(&audit->blocks, &audit->block_count, &audit->block_room, range);
      audit->live += range.bytes;
      break;
    case MEMPROF_SHRINK:
      block = audit_block(audit, record);
      CHECK(!block->freed && range.requested == block->requested && range.bytes >= range.requested && range.bytes < block->bytes);
      audit->live -= block->bytes - range.bytes;
      block->bytes = range.bytes;
      break;
    case MEMPROF_STREAM_USE:
      block = audit_block(audit, record);
      CHECK(!block->freed);
      block->elsewhere = true;
      break;
    case MEMPROF_FREE:
      block = audit_block(audit, record);
      CHECK(!block->freed && block->bytes == range.bytes && block->requested == range.requested);
      audit->live -= range.bytes;
      if (!block->elsewhere) {
        audit_end_block(audit, block);
        break;
      }
      block->freed = true;
      audit->pending += range.bytes;
      break;
    case MEMPROF_FREE_DONE:
      block = audit_block(audit, record);
      CHECK(block->freed && block->bytes == range.bytes);
      audit->pending -= range.bytes;
      audit_end_block(audit, block);
      break;
    default: break;
  }
}

// Whether the totals event in slot `at` counts what its text says.
static inline bool trail_counts(const struct trail *trail, uint64_t at, const char *what) {
  char text[4097];
  if (trail_kind(&trail->records[at]) != MEMPROF_TOTALS) return false;
  trail_text(trail, trail->records[at].context, at, text);
  return strcmp(text, what) == 0;
}

static inline struct audit trail_audit(const struct trail *trail) {
  struct audit audit = {0};
  uint64_t events = 0;
  for (uint64_t i = 0; i < trail->count; i++) {
    audit_event(&audit, &trail->records[i]);
    if (trail_counts(trail, i, "of=events")) CHECK_EQUAL(trail->records[i].addr, events);
    events += trail_kind(&trail->records[i]) != MEMPROF_STRING;
  }
  return audit;
}

#endif
