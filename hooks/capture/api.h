// api.h - what api.c, which serves memory, needs of folders above it.
#ifndef MEMPROF_API_H
#define MEMPROF_API_H

#include <stdbool.h>
#include <stddef.h>

// Memory of a device that has no virtual memory management: what the job would have had without
// the hook. It is recorded, but no arena has it.
struct api_fallback {
  void *(*malloc)(size_t bytes, int device);  // NULL: there is none
  bool (*free)(void *ptr);                    // false: `malloc` never returned anything
};

// Until it is called such devices have no memory.
void api_set_fallback(const struct api_fallback *fallback);

#endif
