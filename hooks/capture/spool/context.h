// context.h - what the allocations of a thread belong to: a context and a call stack.
//
// A context is the text of fields that an event carries, such as "module=layer1". Python stores its
// number into the cell of the thread (memprof_context_cell), so a change costs no call.
#ifndef MEMPROF_CONTEXT_H
#define MEMPROF_CONTEXT_H

#include <stdint.h>

struct context_current {
  uint32_t context;  // string id, 0 for none
  uint32_t stack;    // a node's number (watch/stacks.c), 0 for none
};
extern __thread struct context_current context_current;

// The string id of a context with the field stack= added.
uint32_t context_joined(uint32_t context, uint32_t stack);

// What an allocation of the calling thread belongs to, as a string id, 0 for none. The two halves are read one by one: a processor
// delays a read of both right after a write of one.
static inline uint32_t context_get(void) {
  const uint32_t context = context_current.context, stack = context_current.stack;
  return stack == 0 ? context : context_joined(context, stack);
}

// The stack of the calling thread's allocations from now on: a node's number, 0 for none.
void context_set_stack(uint32_t node);

#endif
