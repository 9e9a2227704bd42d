// saver.c - see saver.h.
#define _GNU_SOURCE
#include "arena/saver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arena/pause.h"
#include "base/hook.h"
#include "base/problem.h"
#include "base/real_dlsym.h"
#include "memprof.h"

// Of a thread that has changed its settings.
struct of_thread {
  struct saver_settings settings;
  int depth;        // of regions, when it was
  bool known;       // `found` is what the settings lead to
  struct tag *found;
};
static __thread struct of_thread *here;  // NULL: it has not. It stays when the thread ends, whose last destructors may allocate

static struct saver_settings initial;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct tag *_Atomic initial_tag;  // what the initial settings lead to, once asked for
static _Atomic bool any;  // some thread's settings may decide
static _Atomic bool raw = true;

void *saver_foreign(const char *name) {
  Dl_info ours, found;
  void *symbol = real_dlsym(RTLD_DEFAULT, name);
  if (symbol == NULL || dladdr((void *)(uintptr_t)saver_foreign, &ours) == 0 || dladdr(symbol, &found) == 0) return NULL;
  return found.dli_fbase != ours.dli_fbase ? symbol : real_dlsym(RTLD_NEXT, name);
}

static bool one_of(const char *text, const char *const *words) {
  while (*words != NULL && strcmp(text, *words) != 0) words++;
  return *words != NULL;
}

bool saver_switch(const char *name) {
  static const char *const yes[] = {"1", "true", "TRUE", "yes", "YES", NULL}, *const no[] = {"0", "false", "FALSE", "no", "NO", NULL};
  const char *value = getenv(name);
  if (value == NULL || one_of(value, no)) return false;
  if (one_of(value, yes)) return true;
  problem("%s=%s: want 1 or 0; it counts as 0", name, value);
  return false;
}

static void read_environment(void) {
  const char *backend = getenv("TMS_INIT_CPU_BACKUP_BACKEND");
  memcpy(initial.tag, "default", sizeof "default");
  if (saver_foreign("tms_pause") != NULL) return;
  initial.interesting = saver_switch("TMS_INIT_ENABLE");
  initial.cpu_backup = saver_switch("TMS_INIT_ENABLE_CPU_BACKUP");
  initial.disk_backup = saver_switch("TMS_INIT_ENABLE_DISK_BACKUP");
  initial.mmap = backend != NULL && strcmp(backend, "mmap") == 0;
  if (backend != NULL && *backend != '\0' && !initial.mmap && strcmp(backend, "pinned") != 0) {
    problem("TMS_INIT_CPU_BACKUP_BACKEND=%s: want pinned or mmap; backups are pinned", backend);
  }
  if (initial.cpu_backup && initial.disk_backup) problem("TMS_INIT_ENABLE_CPU_BACKUP and TMS_INIT_ENABLE_DISK_BACKUP are both set: backups go to host memory");
  if (initial.interesting) atomic_store(&any, true);
}

const struct saver_settings *saver_get(void) {
  pthread_once(&once, read_environment);
  return here == NULL ? &initial : &here->settings;
}

void saver_set(const struct saver_settings *settings, int depth) {
  pthread_once(&once, read_environment);
  if (here == NULL && (here = malloc(sizeof *here)) == NULL) {
    problem("settings of torch_memory_saver are lost: no host memory");
    return;
  }
  const struct of_thread changed = {.settings = *settings, .depth = depth};  // `settings` may be of `here`
  *here = changed;
  atomic_store(&any, true);
}

static struct tag *tag_of(const struct saver_settings *settings) {
  int restore = settings->discard ? MEMPROF_RESTORE_DISCARD : MEMPROF_RESTORE_NONE;
  if (settings->disk_backup) restore = MEMPROF_RESTORE_DISK;
  if (settings->cpu_backup) restore = settings->mmap ? MEMPROF_RESTORE_PAGEABLE : MEMPROF_RESTORE_PINNED;
  struct tag *tag = tag_get(settings->tag, restore);
  if (tag != NULL) atomic_store(&tag->exact, true);
  return tag;
}

bool saver_decides(int depth, struct tag **tag) {
  pthread_once(&once, read_environment);
  if (!atomic_load_explicit(&any, memory_order_relaxed) || here == NULL) return false;
  if (here->settings.interesting && depth <= here->depth) {
    if (!here->known) here->found = tag_of(&here->settings), here->known = true;
    *tag = here->found;
    return true;
  }
  *tag = NULL;
  return !here->settings.interesting && initial.interesting && depth == 0;
}

struct tag *saver_initial(void) {
  if (!initial.interesting || here != NULL) return NULL;
  struct tag *tag = atomic_load_explicit(&initial_tag, memory_order_acquire);
  if (tag == NULL) atomic_store_explicit(&initial_tag, tag = tag_of(&initial), memory_order_release);
  return tag;
}

bool saver_serves(void) {
  pthread_once(&once, read_environment);
  return atomic_load_explicit(&any, memory_order_relaxed) && atomic_load_explicit(&raw, memory_order_relaxed) && saver_get()->interesting &&
         !pause_other_allocator();
}

void memprof_saver_serves(int on) { atomic_store(&raw, on != 0); }
