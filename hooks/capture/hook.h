// hook.h - whether this process is ours to serve.
#ifndef MEMPROF_HOOK_H
#define MEMPROF_HOOK_H

#include <stdbool.h>
#include <stdint.h>

// True from the start of a process that `memprof record` began, until it forks: a child
// shares the parent's spool, locks and CUDA state, none of which it may touch. A child of
// a process that had not used CUDA yet starts afresh.
bool hook_on(void);

// The first use of CUDA: registers the fork handlers and starts the spool.
void hook_start(void);

// What the allocations of this thread belong to; see context.c.
struct hook_belonging {
  uint32_t context;  // string id
  uint32_t stack;    // a node's number, 0 for none
};
extern __thread struct hook_belonging hook_belonging;

// Both as one string id.
uint32_t hook_joined(uint32_t context, uint32_t stack);

// What an allocation of this thread belongs to, as a string id: the thread's context, and
// the stack it is made from.
static inline uint32_t hook_context(void) {
  const struct hook_belonging now = hook_belonging;
  return now.stack == 0 ? now.context : hook_joined(now.context, now.stack);
}

// The stack of this thread's allocations from now on: a node's number, 0 for none.
void hook_set_stack(uint32_t node);

// Of marks.c: writes the phases that were open before there was a spool; in a forked child
// makes its lock anew.
void marks_start(void);
void marks_forget(void);

// Of share.c, in a forked child: the socket is the parent's.
void share_forget(void);

#endif
