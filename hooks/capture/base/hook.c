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
static _Atomic bool in_process;
static bool handled;  // fork's handlers are registered
static char spool[4096], options[512];
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;  // held while parts start

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

static void end_parts(void) {
  for (int order = HOOK_ORDERS; order-- > 0;) {
    for EACH(part) {
      if ((int)(*part)->order == order && (*part)->end != NULL) (*part)->end();
    }
  }
}

__attribute__((destructor)) static void unload(void) {
  if (!atomic_load(&forked)) end_parts();
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
  pthread_mutex_init(&starting, NULL);
  for EACH(part) {
    if ((*part)->forget != NULL) (*part)->forget();
  }
}

static void start(void) {
  if (!handled) handled = pthread_atfork(before_fork, after_fork, in_child) == 0;
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
  pthread_mutex_lock(&starting);
  if (!atomic_load(&hook_used)) start();
  pthread_mutex_unlock(&starting);
}

bool hook_begin(const char *path, const char *given) {
  if (hook_on() || atomic_load(&forked) || *path == '\0' || strlen(path) >= sizeof spool || strlen(given) >= sizeof options) return false;
  strcpy(spool, path);
  strcpy(options, given);
  atomic_store(&in_process, true);
  decide();
  hook_start();
  return true;
}

void hook_end(void) {
  atomic_store(&hook_serves, false);
  atomic_store(&wanted, UNWANTED);
  if (!atomic_load(&begun)) return;
  end_parts();
  for (int order = HOOK_ORDERS; order-- > 0;) {
    for EACH(part) {
      if ((int)(*part)->order == order && (*part)->stop != NULL) (*part)->stop();
    }
  }
  atomic_store(&hook_used, false);
  atomic_store(&begun, false);
  spool[0] = '\0';
}

bool hook_in_process(void) { return atomic_load_explicit(&in_process, memory_order_relaxed); }

const char *hook_options(void) {
  const char *text = hook_in_process() ? options : getenv("MEMPROF_OPTIONS");
  return text == NULL ? "" : text;
}
