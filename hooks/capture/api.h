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

// Sets the text that memprof_oom_message returns on this thread: of a request of `size` bytes that an arena
// cannot serve, whose device's lock is held; or of any other reason.
void oom_explain(const struct arena *arena, uint64_t size);
void oom_text(int device, const char *why);

#endif
