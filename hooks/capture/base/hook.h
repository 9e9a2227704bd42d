// hook.h - the life of the hook in its process: load, first use of CUDA, fork, exit.
//
// LD_PRELOAD reaches every program that a recorded job starts: compilers, shells. Until such a
// program uses CUDA, the hook only reads one environment variable.
//
// A part of the hook that has something to do at the first use or at a fork says so in its own
// file, by HOOK_PART. So this file, which all others may use, names none of them.
#ifndef MEMPROF_HOOK_H
#define MEMPROF_HOOK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

// For the two inline functions below: hook_on has been true, all parts have started, and what to do otherwise.
extern _Atomic bool hook_serves;
extern _Atomic bool hook_used;
bool hook_asked(void);
void hook_start_once(void);

// True if `memprof record` wants this process served. False for good after a fork in the child
// of a process that has used CUDA: it shares the parent's spool, locks and CUDA state, none of
// which it may touch. The child of a process that has not used CUDA yet starts afresh.
static inline bool hook_on(void) { return atomic_load_explicit(&hook_serves, memory_order_relaxed) || hook_asked(); }

// The first use of CUDA: starts all parts, once; later calls return at once.
static inline void hook_start(void) {
  if (!atomic_load_explicit(&hook_used, memory_order_acquire)) hook_start_once();
}

// Code of the process begins to record into a spool (memprof_begin), where `memprof record` has not loaded the hook: its options are
// `options`. False: the hook serves the process already, or cannot. hook_end ends that: no thread writes an event any more. The parts
// end and stop, and another recording may begin.
bool hook_begin(const char *spool, const char *options);
void hook_end(void);

// Whether hook_begin began this recording, or the last one. The hook then sees no calls of CUDA: what other libraries do is unknown.
bool hook_in_process(void);

// What $MEMPROF_OPTIONS says, or the caller of hook_begin.
const char *hook_options(void);

// $MEMPROF_SPOOL as it was when the hook was loaded, since the job may change its environment
// later. It is the directory to record into, which need not exist; "-" if the process is
// served without being recorded; "" if it was not set.
const char *hook_spool(void);

// Parts start in this order, and end in the opposite one.
enum hook_order {
  HOOK_SPOOL,  // the spool, before all that writes events
  HOOK_MARKS,  // events that come before all others
  HOOK_REST,
  HOOK_ORDERS,
};

// What a part does. Members that are NULL are left out.
struct hook_part {
  enum hook_order order;
  void (*start)(void);        // at the first use
  void (*before_fork)(void);  // in the parent
  void (*after_fork)(void);   // in the parent
  void (*forget)(void);       // in the child: locks may have been held by threads that it lacks
  void (*end)(void);          // the process exits in order, and is no such child; it may not have used CUDA. Also at hook_end
  void (*stop)(void);         // at hook_end, after all parts' end: forgets the recording; at the next one `start` is called again
};

// Lists a part, once in a file: HOOK_PART(.start = ..., .forget = ...). The linker collects the
// pointers in a section, so all parts are listed before any code runs, even the constructors of
// libraries that the program is linked with: they run before ours and may use CUDA.
#define HOOK_PART(...)                                  \
  static const struct hook_part hook_part = {__VA_ARGS__}; \
  static const struct hook_part *const hook_listed __attribute__((used, section("hook_parts"))) = &hook_part

#endif
