// api.h - what api.c, which serves memory, needs of folders above it, and the text of its errors.
#ifndef MEMPROF_API_H
#define MEMPROF_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

// Memory of a device that has no virtual memory management: what the job would have had without
// the hook. It is recorded, but no arena has it.
struct api_fallback {
  void *(*malloc)(size_t bytes, int device);  // NULL: there is none
  bool (*free)(void *ptr);                    // false: `malloc` never returned anything
};

// Until it is called such devices have no memory.
void api_set_fallback(const struct api_fallback *fallback);

// Whether torch's plug-in allocator has been given the hook's functions (api_plugin.c).
bool plugin_prepared(void);

struct gpu;

// Sets what memprof_oom_message and memprof_oom_error return on this thread: of a request of `size` bytes that the arena
// cannot serve (NULL: no address space for one), with the device's lock held; or of any other reason. False: memory is not what the request lacks.
bool oom_explain(const struct gpu *gpu, const struct arena *arena, uint64_t size);
void oom_text(int device, const char *why);

#endif
