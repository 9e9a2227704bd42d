// tags.h - memory of tags, which the device writes and reads: what a pause leaves, and what a resume brings back.
#ifndef MEMPROF_TEST_TAGS_H
#define MEMPROF_TEST_TAGS_H

#include "gpu.h"
#include "memprof.h"

static inline void *take(const char *tag, int restore, size_t bytes) {
  CHECK_EQUAL(memprof_region_begin(tag, restore), MEMPROF_OK);
  void *ptr = memprof_malloc(bytes, 0, NULL);
  memprof_region_end();
  CHECK(ptr != NULL);
  return ptr;
}

static inline bool try_fill(const void *ptr, size_t bytes, int value) {
  int (*set)(uint64_t, unsigned char, size_t);
  GPU_CALL(set, "cuMemsetD8_v2");
  return set((uintptr_t)ptr, (unsigned char)value, bytes) == 0;
}

// Writes both ends of each 64 KiB of a large block. That is enough, as what is mapped or copied wrongly is 2 MiB at least; a fault for every page is slow.
static inline void fill(const void *ptr, size_t bytes, int value) {
  const size_t step = 64 << 10, half = bytes / 2;
  const char *start = ptr;
  if (bytes <= 4 * step) {
    CHECK(try_fill(ptr, bytes, value));
    return;
  }
  for (size_t i = 0; i + step <= bytes; i += step) CHECK(try_fill(start + i, 1, value) && try_fill(start + i + step - 1, 1, value));
  CHECK(try_fill(start + half - 1, 2, value) && try_fill(start + bytes - 1, 1, value));
}

static inline int at(const void *ptr, size_t offset) {
  int (*copy)(void *, uint64_t, size_t);
  unsigned char value = 0;
  GPU_CALL(copy, "cuMemcpyDtoH_v2");
  CHECK(copy(&value, (uintptr_t)ptr + offset, 1) == 0);
  return value;
}

static inline bool holds(const void *ptr, size_t bytes, int value) { return at(ptr, 0) == value && at(ptr, bytes / 2) == value && at(ptr, bytes - 1) == value; }

static inline struct memprof_tag_usage usage(const char *tag) {
  struct memprof_tag_usage usage;
  memprof_tag_usage(tag, &usage);
  return usage;
}

static inline void check_message(const char *wanted) {
  if (strstr(memprof_pause_message(), wanted) == NULL) fprintf(stderr, "it says: %s\n", memprof_pause_message());
  CHECK(strstr(memprof_pause_message(), wanted) != NULL);
}

#endif
