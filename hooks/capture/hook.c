// hook.c - life of the hook in its process: load, first use, fork, exit.
#include "hook.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "arena/arena.h"
#include "arena/trim.h"
#include "base/options.h"
#include "base/problem.h"
#include "device/outside.h"
#include "device/overhead.h"
#include "device/readings.h"
#include "memprof.h"
#include "spool/libraries.h"
#include "spool/spool.h"
#include "watch/callers.h"
#include "watch/stacks.h"
#include "watch/watch.h"

static _Atomic int wanted;   // enum wanted: whether this process is to be recorded
static _Atomic bool used;    // CUDA was used: the spool is ready, or there is none
static _Atomic bool begun;   // the same, from before the spool was made
static _Atomic bool forked;  // this is a child of a process that had used it

enum wanted { NOT_KNOWN, WANTED, UNWANTED };

static int decide(void) {
  const int answer = spool_wanted() ? WANTED : UNWANTED;
  atomic_store_explicit(&wanted, answer, memory_order_relaxed);
  return answer;
}

// LD_PRELOAD reaches every program that the job starts: compilers, shells. This is all
// that happens in them. Constructors of libraries that the program is linked with run
// earlier, and may use CUDA.
__attribute__((constructor)) static void load(void) { decide(); }

__attribute__((destructor)) static void unload(void) {
  if (!atomic_load(&forked)) spool_close();
}

bool hook_on(void) {
  int answer = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (answer == NOT_KNOWN) answer = decide();
  return answer == WANTED && !atomic_load_explicit(&forked, memory_order_relaxed);
}

static void in_child(void) {
  if (atomic_load(&begun)) atomic_store(&forked, true);
  problem_forget();
  spool_forget();
  arenas_forget();
  outside_forget();
  overhead_forget();
  watch_forget();
  callers_forget();
  stacks_forget();
  marks_forget();
  trim_forget();
  readings_forget();
  share_forget();
  libraries_forget();
}

static void start(void) {
  pthread_atfork(libraries_before_fork, libraries_after_fork, in_child);
  atomic_store(&begun, true);
  spool_start();
  marks_start();
  if (options_get()->stacks) callers_start();
  trim_start();
  readings_start();
  // Last: who sees it writes events at once, and must not do so before there is a spool.
  atomic_store_explicit(&used, true, memory_order_release);
}

void hook_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (!atomic_load_explicit(&used, memory_order_acquire)) pthread_once(&once, start);
}
