// interpose.h - the CUDA runtime behind the symbols that interpose.c puts before it.
#ifndef MEMPROF_INTERPOSE_H
#define MEMPROF_INTERPOSE_H

#include <stdbool.h>
#include <stddef.h>

// dlsym as it would be without us, for our own lookups; not for RTLD_NEXT of somebody else.
void *real_dlsym(void *library, const char *name);

// Memory of the runtime for a device that has no virtual memory management: what the job
// would have had without us. Recorded as external. NULL: none to be had.
void *interpose_malloc(size_t bytes, int device);

// Gives it back. False when nothing was ever handed out by interpose_malloc.
bool interpose_free(void *ptr);

// Whether a stream is being captured into a graph, as far as the runtime's symbols tell.
// Meanwhile nothing may be waited for, queried or unmapped.
bool interpose_capturing(void);

// For what is done beside the job, which may begin a capture at any time: between the two none
// begins. False: one is under way. Whoever holds them looks at interpose_capturing now and then,
// since the job waits. In a forked child nobody holds any.
bool interpose_hold_captures(void);
void interpose_let_captures(void);
void interpose_forget_holds(void);

// Between the two, calls of this thread are the hook's own: neither noted nor served, and not
// retried with a reclaim, which would wait for the device lock that the caller holds. They
// nest.
void interpose_enter(void);
void interpose_leave(void);
bool interpose_own(void);  // the calling thread is between them

#endif
