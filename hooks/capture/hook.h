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

// What an allocation of this thread belongs to, as a string id: the thread's context, and
// the stack it is made from.
uint32_t hook_context(void);

// The stack of this thread's allocations from now on: a node's number, 0 for none.
void hook_set_stack(uint32_t node);

// Of marks.c: writes the phases that were open before there was a spool; in a forked child
// makes its lock anew.
void marks_start(void);
void marks_forget(void);

#endif
