// context.c - see context.h.
//
// A context is a text that has a number. Python code that changes it often (at each call and return
// of a module) gets the number once and then stores it into the thread's cell, without a call or a
// lock. The number of a stack stands beside it. A pair of both becomes one text at its first use; a
// table of the thread remembers the pair's number.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"
#include "memprof.h"
#include "spool/context.h"
#include "spool/spool.h"

enum { PAIRS = 1024, LONGEST = 4096 };

__thread struct context_current context_current;

// The pairs that this thread used last, by a hash of both numbers. Allocated, since only threads
// that record stacks need it.
struct pair {
  uint32_t context, stack, both;
};
static __thread struct pair *pairs;
static __thread struct pair latest;  // beside context_current: most allocations belong to what the one before does
static pthread_key_t ending;

static void end_thread(void *old) {
  pairs = NULL;
  free(old);
}

static void make_key(void) { pthread_key_create(&ending, end_thread); }

static uint32_t join(uint32_t module, uint32_t node) {
  char text[LONGEST + 1] = "";
  size_t length = spool_string_text(module, text, sizeof text - 32);
  snprintf(text + length, sizeof text - length, "%sstack=%u", length == 0 ? "" : "\t", node);
  return spool_string(text);
}

uint32_t context_joined(uint32_t module, uint32_t node) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (latest.stack == node && latest.context == module) return latest.both;
  if (pairs == NULL) {
    pthread_once(&once, make_key);
    pairs = calloc(PAIRS, sizeof *pairs);
    if (pairs == NULL) return module;
    pthread_setspecific(ending, pairs);
  }
  struct pair *pair = &pairs[(module * 31 + node) % PAIRS];
  if (pair->stack != node || pair->context != module) *pair = (struct pair){module, node, join(module, node)};
  latest = *pair;
  return latest.both;
}

void context_set_stack(uint32_t node) { context_current.stack = node; }

void memprof_set_context(const char *text) { context_current.context = memprof_context(text); }

uint32_t memprof_context(const char *text) { return hook_on() ? spool_string(text) : 0; }

uint32_t *memprof_context_cell(void) { return &context_current.context; }
