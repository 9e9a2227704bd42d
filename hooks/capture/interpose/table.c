// table.c - finds wrapped functions by name, and the real function behind each.
//
// A program reaches a CUDA function in three ways: it is linked against the name, it looks the name up with dlsym, or it asks
// cuGetProcAddress. So the hook exports wrappers under the same names, and dlsym and CUDA's lookup functions, whose answers it
// replaces by its wrappers. Three rules keep jobs working:
//
//   - A call reaches the function that it would reach without the hook. Of several runtimes in a process the one that the
//     linker uses is wrapped; calls of the others are seen where they call the driver.
//   - Only the outermost call of a thread counts: the driver call inside a runtime call is not recorded again.
//   - The hook's own calls are not recorded: they go through device/driver.h, or stand between own_calls_begin and own_calls_end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include "base/real_dlsym.h"
#include "interpose/interpose.h"

enum { LEGACY_STREAM = 1, PER_THREAD_DEFAULT_STREAM = 2 };  // CU_GET_PROC_ADDRESS_*

// The bounds of the section that WRAPPER fills, which the linker defines.
extern struct entry *const __start_interposed[] __attribute__((visibility("hidden")));
extern struct entry *const __stop_interposed[] __attribute__((visibility("hidden")));

// Loops over all entries.
#define EACH(entry) (struct entry *const *at_ = __start_interposed, *entry; at_ < __stop_interposed && (entry = *at_, true); at_++)

static struct entry *named(const char *name) {
  for EACH(entry) {
    if (strcmp(entry->name, name) == 0) return entry;
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
  for EACH(entry) {
    if (entry->asked != NULL && strcmp(entry->asked, asked) == 0 && in_driver(entry->name) == function) return entry;
  }
  return NULL;
}

// The variant of `asked` for which the driver answers with this address, which it may not export. The driver is asked for each variant that is known, by the
// first version that gets it: a newer one has other arguments, and its address is none of these.
static struct entry *answered_at(const char *asked, const void *function) {
  void *address = in_driver("cuGetProcAddress_v2");
  cuda_error (*look_up)(const char *, void **, int, uint64_t, int *);
  memcpy(&look_up, &address, sizeof address);
  for EACH(entry) {
    if (look_up == NULL || entry->asked == NULL || strcmp(entry->asked, asked) != 0) continue;
    void *found = NULL;
    int status;
    const uint64_t flags = entry->per_thread ? PER_THREAD_DEFAULT_STREAM : LEGACY_STREAM;
    if (look_up(asked, &found, entry->since, flags, &status) == CUDA_OK && found == function) return entry;
  }
  return NULL;
}

static bool is_ours(const void *function) {
  for EACH(entry) {
    if (entry->ours == function) return true;
  }
  return false;
}

// The definition that the linker would use for all callers without the hook.
static void *next(const struct entry *entry) {
  void *function = real_dlsym(RTLD_NEXT, entry->name);
  return function == entry->ours ? NULL : function;
}

static void *in_library(const char *library, const struct entry *entry) {
  void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) return NULL;
  void *function = real_dlsym(handle, entry->name);
  dlclose(handle);  // it was loaded before and stays
  return function == entry->ours ? NULL : function;
}

// The linker does not search libraries that were loaded privately (RTLD_LOCAL), so they are asked by name.
static void *by_name(const struct entry *entry) {
  static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcuda.so.1"};
  void *function = NULL;
  for (size_t i = 0; function == NULL && i < sizeof libraries / sizeof *libraries; i++) function = in_library(libraries[i], entry);
  return function;
}

static void *remember(struct entry *entry, void *found) {
  void *known = NULL;
  if (found == NULL || atomic_compare_exchange_strong(&entry->real, &known, found)) return found;
  return known;  // another thread was faster
}

void *entry_real(struct entry *entry) {
  void *known = atomic_load_explicit(&entry->real, memory_order_acquire);
  if (known != NULL) return known;
  void *found = next(entry);
  return remember(entry, found != NULL ? found : by_name(entry));
}

// The definition in the scope of the caller's library, where the linker would search next.
static void *of_caller(const struct call *call) {
  static __thread struct call last;
  static __thread void *function;
  Dl_info info;
  if (last.from == call->from && last.entry == call->entry) return function;
  function = dladdr(call->from, &info) != 0 && info.dli_fname != NULL ? in_library(info.dli_fname, call->entry) : NULL;
  last = *call;
  return function;
}

// A process may have several runtimes, each with a state of its own, and a call must reach the one that it
// was meant for.
void *call_real(const struct call *call) {
  struct entry *entry = call->entry;
  void *known = atomic_load_explicit(&entry->real, memory_order_acquire);
  if (known != NULL || entry->asked != NULL) return entry_real(entry);
  void *found = next(entry);
  if (found != NULL) return remember(entry, found);
  found = of_caller(call);
  if (found == NULL) found = atomic_load_explicit(&entry->looked_up, memory_order_acquire);
  return found != NULL ? found : by_name(entry);
}

// There is one driver. Of several runtimes one is wrapped: the one that the linker uses for all callers, or
// else the first that was looked up. The others are seen where they call the driver.
static void *exchange(struct entry *entry, void *found) {
  if (entry->asked != NULL) return entry_real(entry) != NULL ? entry->ours : found;
  void *common = atomic_load_explicit(&entry->real, memory_order_acquire), *first = NULL;
  if (common == NULL) common = remember(entry, next(entry));
  if (common != NULL) return common == found ? entry->ours : found;
  return atomic_compare_exchange_strong(&entry->looked_up, &first, found) || first == found ? entry->ours : found;
}

void *entry_exchange(const char *name, void *found) {
  struct entry *entry = named(name);
  return entry == NULL || entry->ours == found ? found : exchange(entry, found);
}

void *entry_exchange_asked(const char *asked, void *found) {
  if (is_ours(found)) return found;
  struct entry *entry = exported_at(asked, found);
  if (entry == NULL) entry = answered_at(asked, found);
  return entry == NULL ? found : exchange(entry, found);
}

void *call_sibling(const struct call *call, const char *name) {
  Dl_info info;
  void *real = call_real(call);
  if (real == NULL || dladdr(real, &info) == 0 || info.dli_fname == NULL) return NULL;
  const struct entry entry = {.name = name};
  return in_library(info.dli_fname, &entry);
}
