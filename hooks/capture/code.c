// code.c - see code.h. A table that only grows, read without a lock: kernels are launched
// often and loaded seldom. What is unloaded stays, and a handle that comes again is taken
// for the old one until it is remembered anew.
#include "code.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "library.h"
#include "spool.h"

enum { HANDLES = 1 << 17, PROBES = 64 };

struct handle {
  _Atomic uintptr_t key;
  _Atomic uint32_t context;
  _Atomic uint32_t times;  // that it was remembered
  _Atomic bool used;
};
// Of what was asked of a handle, the mix of all that makes it one: it has no context.
static struct handle handles[HANDLES];

static const uint64_t SPREAD = 0x9e3779b97f4a7c15u;

static struct handle *find(const void *key, bool add) {
  size_t at = ((uintptr_t)key * SPREAD) >> 47;
  for (int i = 0; i < PROBES; i++, at = (at + 1) % HANDLES) {
    uintptr_t found = atomic_load_explicit(&handles[at].key, memory_order_relaxed);
    if (found == 0 && !add) return NULL;
    if (found == 0 && atomic_compare_exchange_strong(&handles[at].key, &found, (uintptr_t)key)) return &handles[at];
    if (found == (uintptr_t)key) return &handles[at];
  }
  return NULL;
}

uint32_t code_context(const char *what, const void *image, const char *path, const void *caller) {
  char name[LIBRARY_NAME] = "unknown", text[512];
  if (path != NULL)
    library_last_part(path, name);
  else if (image == NULL || !library_name(image, name))
    library_name(caller, name);
  snprintf(text, sizeof text, "what=%s\tname=%s", what, name);
  return spool_string(text);
}

void code_remember(const void *handle, uint32_t context) {
  struct handle *found = handle != NULL ? find(handle, true) : NULL;
  if (found == NULL) return;
  atomic_store_explicit(&found->context, context, memory_order_relaxed);
  atomic_fetch_add_explicit(&found->times, 1, memory_order_relaxed);
  atomic_store_explicit(&found->used, false, memory_order_relaxed);
}

uint32_t code_of(const void *handle) {
  const struct handle *found = find(handle, false);
  return found != NULL ? atomic_load_explicit(&found->context, memory_order_relaxed) : 0;
}

bool code_first_use(const void *handle) {
  struct handle *found = find(handle, true);
  if (found == NULL || atomic_load_explicit(&found->used, memory_order_relaxed)) return false;
  return !atomic_exchange(&found->used, true);
}

bool code_first_ask(const void *handle, int device, const char *name) {
  const struct handle *known = find(handle, false);
  uint64_t mix = (uintptr_t)handle ^ (uint64_t)device << 56;
  mix = (mix ^ mix >> 31) * SPREAD + (known != NULL ? atomic_load_explicit(&known->times, memory_order_relaxed) : 0);
  for (; name != NULL && *name != '\0'; name++) mix = (mix ^ mix >> 29 ^ (unsigned char)*name) * SPREAD;
  mix = (mix ^ mix >> 32) * SPREAD;
  return code_first_use((const void *)(uintptr_t)(mix | 1));  // no handle is odd
}
