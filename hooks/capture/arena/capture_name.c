// capture_name.c - see capture_name.h.
//
// A framework opens the pool on the capturing thread just before it begins the capture. So the pool
// that was begun last and has not ended is the pool of the capture.
#include "arena/capture_name.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/thread_own.h"
#include "memprof.h"
#include "spool/spool.h"

struct pool_name {
  uint64_t id[2];
};

static __thread struct pool_name named;  // with the name
static __thread struct pool_name begun;
static __thread uint64_t inputs;  // bytes, with the name

static bool is_none(struct pool_name pool) { return pool.id[0] == 0 && pool.id[1] == 0; }

void memprof_capture_name(const char *text, uint64_t pool0, uint64_t pool1, uint64_t input_bytes) {
  char *name = thread_texts()->capture;
  text_copy(name, sizeof thread_texts()->capture, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
  for (char *c = name; *c != '\0'; c++) {
    if (*c == '\t' || *c == '\n') *c = ' ';
  }
  named = (struct pool_name){{pool0, pool1}};
  inputs = input_bytes;
}

void capture_pool_begun(uint64_t pool0, uint64_t pool1) { begun = (struct pool_name){{pool0, pool1}}; }

void capture_pool_ended(uint64_t pool0, uint64_t pool1) {
  if (begun.id[0] == pool0 && begun.id[1] == pool1) begun = (struct pool_name){{0, 0}};
}

uint32_t capture_context(void) {
  const char *name = thread_texts()->capture;
  char text[224];
  const struct pool_name pool = is_none(named) ? begun : named;
  int length = name[0] == '\0' ? 0 : snprintf(text, sizeof text, "name=%s", name);
  if (!is_none(pool)) {
    length += snprintf(text + length, sizeof text - (size_t)length, "%spool=%llx.%llx", length > 0 ? "\t" : "", (unsigned long long)pool.id[0],
                       (unsigned long long)pool.id[1]);
  }
  if (inputs > 0) length += snprintf(text + length, sizeof text - (size_t)length, "%sinputs=%llu", length > 0 ? "\t" : "", (unsigned long long)inputs);
  return length == 0 ? 0 : spool_string(text);
}
