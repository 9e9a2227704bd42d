// interpose.h - the CUDA runtime behind the symbols that interpose.c puts before it.
#ifndef MEMPROF_INTERPOSE_H
#define MEMPROF_INTERPOSE_H

#include <stdbool.h>
#include <stddef.h>

// Memory of the runtime for a device that has no virtual memory management: what the job
// would have had without us. Recorded as external. NULL: none to be had.
void *interpose_malloc(size_t bytes, int device);

// Gives it back. False when nothing was ever handed out by interpose_malloc.
bool interpose_free(void *ptr);

#endif
