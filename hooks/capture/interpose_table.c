// interpose_table.c - the wrapped functions by name, and the real ones behind them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include "interpose_internal.h"

enum { PER_THREAD_DEFAULT_STREAM = 2 };  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

static struct entry *const tables[] = {
    interpose_lookups,  interpose_memory, interpose_arrays,   interpose_host,  interpose_vmm,
    interpose_captures, interpose_pools,  interpose_pointers, interpose_loads,
    interpose_launches,
};
enum { TABLES = sizeof tables / sizeof *tables };

static struct entry *named(const char *name) {
  for (int i = 0; i < TABLES; i++) {
    for (struct entry *entry = tables[i]; entry->name != NULL; entry++) {
      if (strcmp(entry->name, name) == 0) return entry;
    }
  }
  return NULL;
}

static void *in_driver(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void *function = driver != NULL ? real_dlsym(driver, name) : NULL;
  if (driver != NULL) dlclose(driver);  // it was loaded before and stays
  return function;
}

// The variant of `asked` that the driver exports at this address.
static struct entry *exported_at(const char *asked, const void *function) {
  for (int i = 0; i < TABLES; i++) {
    for (struct entry *entry = tables[i]; entry->name != NULL; entry++) {
      if (entry->asked != NULL && strcmp(entry->asked, asked) == 0 && in_driver(entry->name) == function) return entry;
    }
  }
  return NULL;
}

// The newest variant that a program of `version` means.
static struct entry *meant(const char *asked, int version, bool per_thread) {
  struct entry *best = NULL;
  for (int i = 0; i < TABLES; i++) {
    for (struct entry *entry = tables[i]; entry->name != NULL; entry++) {
      if (entry->asked == NULL || strcmp(entry->asked, asked) != 0 || entry->since > version) continue;
      if (entry->per_thread && !per_thread) continue;
      // Few functions have a variant for threads: the common one stands in.
      const bool better = best == NULL || (entry->per_thread == best->per_thread ? entry->since > best->since : entry->per_thread);
      if (better) best = entry;
    }
  }
  return best;
}

static bool is_ours(const void *function) {
  for (int i = 0; i < TABLES; i++) {
    for (const struct entry *entry = tables[i]; entry->name != NULL; entry++) {
      if (entry->ours == function) return true;
    }
  }
  return false;
}

// The definition after ours; libraries that were loaded privately are not on the way
// RTLD_NEXT looks, so they are asked by name.
static void *find_real(const struct entry *entry) {
  static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcuda.so.1"};
  void *function = real_dlsym(RTLD_NEXT, entry->name);
  for (size_t i = 0; function == NULL && i < sizeof libraries / sizeof *libraries; i++) {
    void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) continue;
    function = real_dlsym(library, entry->name);
    dlclose(library);  // it was loaded before and stays
  }
  return function == entry->ours ? NULL : function;
}

void *entry_real(struct entry *entry) {
  void *function = atomic_load_explicit(&entry->real, memory_order_acquire);
  if (function != NULL) return function;
  void *found = find_real(entry);
  if (found == NULL || atomic_compare_exchange_strong(&entry->real, &function, found)) return found;
  return function;  // another thread was faster
}

// There is one driver, but a process may have several runtimes. A second one is not
// wrapped: what it does is seen where it calls the driver.
static void *exchange(struct entry *entry, void *found) {
  void *known = NULL;
  if (atomic_compare_exchange_strong(&entry->real, &known, found) || known == found || entry->asked != NULL) return entry->ours;
  return found;
}

void *entry_exchange(const char *name, void *found) {
  struct entry *entry = named(name);
  return entry == NULL || entry->ours == found ? found : exchange(entry, found);
}

void *entry_exchange_asked(const char *asked, int version, uint64_t flags, void *found) {
  if (is_ours(found)) return found;
  struct entry *entry = exported_at(asked, found);
  if (entry == NULL) entry = meant(asked, version, (flags & PER_THREAD_DEFAULT_STREAM) != 0);
  if (entry == NULL) entry = named(asked);
  return entry == NULL ? found : exchange(entry, found);
}
