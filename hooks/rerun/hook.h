// hook.h - the hook's calls that `memprof lab rerun` makes, found at run time.
//
// Each function is that of capture/memprof.h with its name. Go cannot call a C function by its pointer, so each has a
// function here, rerun_hook_NAME, which calls it through the table. All need a hook that rerun_hook_open has found.
#ifndef MEMPROF_RERUN_HOOK_H
#define MEMPROF_RERUN_HOOK_H

#include <stddef.h>
#include <stdint.h>

// A block of a checkpoint: struct memprof_restored.
struct rerun_restored {
  uintptr_t stream;
  uint64_t address, bytes, requested;
};

// Result, name, parameters and arguments of those that Go calls as they are.
#define RERUN_CALLS(CALL)                                                                                                        \
  CALL(uint32_t, context, (const char *text), (text))                                                                            \
  CALL(uint32_t, stack_node, (uint32_t parent, const char *frame), (parent, frame))                                              \
  CALL(void, iteration, (const char *label), (label))                                                                            \
  CALL(void, phase_begin, (const char *name), (name))                                                                            \
  CALL(void, phase_end, (const char *name), (name))                                                                              \
  CALL(size_t, empty_cache, (int device), (device))                                                                              \
  CALL(void, call_as, (const char *context), (context))                                                                          \
  CALL(const char *, oom_message, (void), ())                                                                                    \
  CALL(int, region_begin, (const char *tag, int restore), (tag, restore))                                                        \
  CALL(const char *, pause_message, (void), ())                                                                                  \
  CALL(void, pool_begin, (int device, uint64_t pool0, uint64_t pool1), (device, pool0, pool1))                                   \
  CALL(void, pool_end, (int device, uint64_t pool0, uint64_t pool1), (device, pool0, pool1))                                     \
  CALL(void, checkpoint, (int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes), (device, pool0, pool1, blocks, bytes)) \
  CALL(void, capture_name, (const char *name, uint64_t pool0, uint64_t pool1, uint64_t inputs), (name, pool0, pool1, inputs))    \
  CALL(uint32_t, graph_memory_open, (int device, uint64_t reservation), (device, reservation))                                   \
  CALL(void, graph_memory_close, (int device, uint32_t number), (device, number))                                                \
  CALL(int, graph_shape, (int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1), (device, number, name, pool0, pool1)) \
  CALL(const char *, graph_message, (void), ())

#define RERUN_MEMBER(result, name, PARAMETERS, ARGUMENTS) result(*name) PARAMETERS;
struct rerun_hook {
  RERUN_CALLS(RERUN_MEMBER)
  uint32_t *cell;  // the context of the thread that opened the hook
  int (*active)(void);
  uint32_t *(*context_cell)(void);
  void *(*malloc_in_pool)(size_t bytes, int device, void *stream, uint64_t pool0, uint64_t pool1);
  void (*free)(void *address, size_t bytes, int device, void *stream);
  int (*owns)(void *address, size_t *provided);
  void (*label_many)(size_t count, const uint64_t *addresses, const uint32_t *contexts);
  void (*record_stream)(void *address, void *stream);
  void (*region_end)(void);
  int (*pause)(const char *const *tags, size_t count, int unchanged);
  int (*resume)(const char *const *tags, size_t count, int keep);
  int64_t (*pool_uses)(int device, uint64_t pool0, uint64_t pool1);
  void (*release_pool)(int device, uint64_t pool0, uint64_t pool1);
  int (*restore)(int device, uint64_t pool0, uint64_t pool1, const struct rerun_restored *blocks, size_t count, void *self,
                 void (*freed)(void *self, void *address));
};

// The hook of this process, which rerun_hook_open has found.
extern struct rerun_hook rerun_hook;

// Finds the functions among those that are loaded, and begins the recording. 0: there is no hook, or it does not
// serve this process.
int rerun_hook_open(void);

// Frees no block: what a restore frees was freed before it.
int rerun_hook_restore(int device, uint64_t pool0, uint64_t pool1, const struct rerun_restored *blocks, size_t count);

#define RERUN_CALL(result, name, PARAMETERS, ARGUMENTS) \
  static inline result rerun_hook_##name PARAMETERS { return rerun_hook.name ARGUMENTS; }
RERUN_CALLS(RERUN_CALL)

// A request of a context by number. 0: refused.
static inline uint64_t rerun_hook_malloc(size_t bytes, int device, uintptr_t stream, uint64_t pool0, uint64_t pool1, uint32_t context) {
  *rerun_hook.cell = context;
  return (uintptr_t)rerun_hook.malloc_in_pool(bytes, device, (void *)stream, pool0, pool1);
}
static inline void rerun_hook_free(uint64_t address) { rerun_hook.free((void *)(uintptr_t)address, 0, 0, NULL); }
static inline uint64_t rerun_hook_provided(uint64_t address) {
  size_t provided = 0;
  return rerun_hook.owns((void *)(uintptr_t)address, &provided) ? provided : 0;
}
static inline void rerun_hook_label(uint64_t address, uint32_t context) { rerun_hook.label_many(1, &address, &context); }
static inline void rerun_hook_record_stream(uint64_t address, uintptr_t stream) { rerun_hook.record_stream((void *)(uintptr_t)address, (void *)stream); }
// A result, since cgo warns of a function that has neither that nor a parameter.
static inline int rerun_hook_region_end(void) {
  rerun_hook.region_end();
  return 0;
}
static inline int rerun_hook_pause(const char *tag) { return rerun_hook.pause(&tag, 1, 0); }
static inline int rerun_hook_resume(const char *tag) { return rerun_hook.resume(&tag, 1, 0); }
// Until nobody holds it.
static inline void rerun_hook_release_pool(int device, uint64_t pool0, uint64_t pool1) {
  while (rerun_hook.pool_uses(device, pool0, pool1) > 0) rerun_hook.release_pool(device, pool0, pool1);
}

#endif
