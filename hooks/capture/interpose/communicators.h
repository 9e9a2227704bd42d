// communicators.h - NCCL's communicators: which of them NCCL allocates memory for.
//
// A communicator gets most of its memory where it is made, and the rest where a collective first connects it
// to its peers. NCCL allocates on the calling thread, on threads of its own, and on those of its proxies, while
// the caller waits. So the wrappers of those calls say whose work is under way, on this thread or else on any.
#ifndef MEMPROF_COMMUNICATORS_H
#define MEMPROF_COMMUNICATORS_H

#include <stddef.h>

// Appends "\tcommunicator=N\tranks=R" of the communicator that the calling thread's allocations are for, or nothing.
void communicators_describe(char *text, size_t size);

#endif
