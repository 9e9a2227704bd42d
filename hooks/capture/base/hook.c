// hook.c - see hook.h.
#include "base/hook.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum wanted { NOT_KNOWN, WANTED, UNWANTED };

_Atomic bool hook_serves;
static _Atomic int wanted;   // enum wanted: whether `memprof record` wants this process served
_Atomic bool hook_used;
static _Atomic bool begun;   // CUDA was used, and parts are starting or have started
static _Atomic bool forked;  // this is a forked child of a process that had used CUDA
static char spool[4096];

// The bounds of the section that HOOK_PART fills, which the linker defines.
extern const struct hook_part *const __start_hook_parts[] __attribute__((visibility("hidden")));
extern const struct hook_part *const __stop_hook_parts[] __attribute__((visibility("hidden")));

// Loops over all parts.
#define EACH(part) (const struct hook_part *const *part = __start_hook_parts; part < __stop_hook_parts; part++)

const char *hook_spool(void) {
  const char *path = getenv("MEMPROF_SPOOL");
  if (spool[0] == '\0' && path != NULL && strlen(path) < sizeof spool) strcpy(spool, path);
  return spool;
}

static int decide(void) {
  const int answer = hook_spool()[0] != '\0' ? WANTED : UNWANTED;
  atomic_store_explicit(&wanted, answer, memory_order_relaxed);
  atomic_store_explicit(&hook_serves, answer == WANTED, memory_order_relaxed);
  return answer;
}

// This is all that happens in a program that does not use CUDA. Constructors of libraries that
// the program is linked with run earlier; they get the same answer from hook_on.
__attribute__((constructor)) static void load(void) { decide(); }

__attribute__((destructor)) static void unload(void) {
  if (atomic_load(&forked)) return;
  for (int order = HOOK_ORDERS; order-- > 0;) {
    for EACH(part) {
      if ((int)(*part)->order == order && (*part)->end != NULL) (*part)->end();
    }
  }
}

bool hook_asked(void) {
  int answer = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (answer == NOT_KNOWN) answer = decide();
  return answer == WANTED && !atomic_load_explicit(&forked, memory_order_relaxed);
}

static void before_fork(void) {
  for EACH(part) {
    if ((*part)->before_fork != NULL) (*part)->before_fork();
  }
}

static void after_fork(void) {
  for EACH(part) {
    if ((*part)->after_fork != NULL) (*part)->after_fork();
  }
}

static void in_child(void) {
  if (atomic_load(&begun)) {
    atomic_store(&forked, true);
    atomic_store(&hook_serves, false);
  }
  for EACH(part) {
    if ((*part)->forget != NULL) (*part)->forget();
  }
}

static void start(void) {
  pthread_atfork(before_fork, after_fork, in_child);
  atomic_store(&begun, true);
  for (int order = 0; order < HOOK_ORDERS; order++) {
    for EACH(part) {
      if ((int)(*part)->order == order && (*part)->start != NULL) (*part)->start();
    }
  }
  // Last: a thread that sees it writes events at once, and must not do so before there is a spool.
  atomic_store_explicit(&hook_used, true, memory_order_release);
}

void hook_start_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
}
