// stacks.h - the tree of call stacks; memprof_stack_node is its way in.
#ifndef MEMPROF_STACKS_H
#define MEMPROF_STACKS_H

// In a forked child: the tree's lock may have been another thread's.
void stacks_forget(void);

#endif
