// code.c - see code.h. The table only grows and is read without a lock: kernels are launched often and
// loaded seldom. Handles of unloaded code stay; a handle that the driver returns again is taken for the
// old one until code_remember. When the table is full, new handles are unknown.
#include "watch/code.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include "base/library.h"
#include "spool/spool.h"

enum { HANDLES = 1 << 17, PROBES = 64 };

struct handle {
  _Atomic uintptr_t key;
  _Atomic uint32_t context;
  _Atomic uint32_t loaded;  // the number of the load that returned it; 0: not seen
  _Atomic uint64_t used;    // the stamp of its first use, of load and loss; 0: none
};
// Uses with a device or a name have entries of their own, by a hash of handle, device and name.
static struct handle handles[HANDLES];
static _Atomic uint32_t loads, losses;  // so far

static const uint64_t SPREAD = 0x9e3779b97f4a7c15u;

static struct handle *find(const void *key, bool add) {
  if (key == NULL) return NULL;
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

static void store(const void *handle, uint32_t context, uint32_t load) {
  struct handle *found = find(handle, true);
  if (found == NULL) return;
  atomic_store_explicit(&found->context, context, memory_order_relaxed);
  atomic_store_explicit(&found->loaded, load, memory_order_relaxed);
}

void code_remember(const void *handle, uint32_t context) { store(handle, context, atomic_fetch_add(&loads, 1) + 1); }

static uint32_t load_of(const void *handle) {
  const struct handle *found = find(handle, false);
  return found != NULL ? atomic_load_explicit(&found->loaded, memory_order_relaxed) : 0;
}

void code_derive(const void *handle, const void *of) {
  const uint32_t load = load_of(of), context = code_of(of);
  if (load_of(handle) != load || code_of(handle) != context) store(handle, context, load);
}

uint32_t code_of(const void *handle) {
  const struct handle *found = find(handle, false);
  return found != NULL ? atomic_load_explicit(&found->context, memory_order_relaxed) : 0;
}

// The entry of a use: the handle's, or its own if it has a device or a name.
static struct handle *entry_of(const struct code_use *use) {
  if (use->device < 0 && use->name == NULL) return find(use->handle, true);
  if (use->handle == NULL) return NULL;
  uint64_t mix = (uintptr_t)use->handle ^ (uint64_t)use->device << 56;
  mix = (mix ^ mix >> 31) * SPREAD;
  for (const char *c = use->name; c != NULL && *c != '\0'; c++) mix = (mix ^ mix >> 29 ^ (unsigned char)*c) * SPREAD;
  mix = (mix ^ mix >> 32) * SPREAD;
  return find((const void *)(uintptr_t)(mix | 1), true);  // no handle is odd
}

bool code_first(const struct code_use *use) {
  struct handle *entry = entry_of(use);
  if (entry == NULL) return false;
  const uint64_t lost = atomic_load_explicit(&losses, memory_order_relaxed), stamp = (lost << 32 | load_of(use->handle)) + 1;
  return atomic_load_explicit(&entry->used, memory_order_relaxed) != stamp && atomic_exchange(&entry->used, stamp) != stamp;
}

void code_undo(const struct code_use *use) {
  struct handle *entry = entry_of(use);
  if (entry != NULL) atomic_store_explicit(&entry->used, 0, memory_order_relaxed);
}

void code_lost(void) { atomic_fetch_add(&losses, 1); }
