// hook.h - the hook's calls that `memprof rerun` makes, found at run time.
//
// Each function of the table is that of capture/memprof.h with its name; there is one line
// below it for each because Go cannot call a C function by its pointer. All need a hook that
// rerun_hook_open has found.
#ifndef MEMPROF_RERUN_HOOK_H
#define MEMPROF_RERUN_HOOK_H

#include <stddef.h>
#include <stdint.h>

// A block of a checkpoint: struct memprof_restored.
struct rerun_restored {
  uintptr_t stream;
  uint64_t address, bytes, requested;
};

struct rerun_hook {
  uint32_t *cell;  // the context of the thread that opened the hook
  int (*active)(void);
  uint32_t (*context)(const char *text);
  uint32_t *(*context_cell)(void);
  void *(*malloc_in_pool)(size_t bytes, int device, void *stream, uint64_t pool0, uint64_t pool1);
  void (*free)(void *address, size_t bytes, int device, void *stream);
  int (*owns)(void *address, size_t *provided);
  const char *(*oom_message)(void);
  uint32_t (*stack_node)(uint32_t parent, const char *frame);
  void (*label_many)(size_t count, const uint64_t *addresses, const uint32_t *contexts);
  void (*iteration)(const char *label);
  void (*phase_begin)(const char *name);
  void (*phase_end)(const char *name);
  void (*record_stream)(void *address, void *stream);
  size_t (*empty_cache)(int device);
  void (*call_as)(const char *context);

  int (*region_begin)(const char *tag, int restore);
  void (*region_end)(void);
  int (*pause)(const char *const *tags, size_t count, int unchanged);
  int (*resume)(const char *const *tags, size_t count, int keep);
  const char *(*pause_message)(void);

  void (*pool_begin)(int device, uint64_t pool0, uint64_t pool1);
  void (*pool_end)(int device, uint64_t pool0, uint64_t pool1);
  int64_t (*pool_uses)(int device, uint64_t pool0, uint64_t pool1);
  void (*release_pool)(int device, uint64_t pool0, uint64_t pool1);
  void (*checkpoint)(int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes);
  int (*restore)(int device, uint64_t pool0, uint64_t pool1, const struct rerun_restored *blocks, size_t count, void *self,
                 void (*freed)(void *self, void *address));
  void (*capture_name)(const char *name, uint64_t pool0, uint64_t pool1, uint64_t inputs);
  uint32_t (*graph_memory_open)(int device, uint64_t reservation);
  void (*graph_memory_close)(int device, uint32_t number);
  int (*graph_shape)(int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1, int segments);
  const char *(*graph_message)(void);

  uint64_t (*kv_cache)(int device, uint64_t slots, uint64_t token_bytes, const char *fields);
  void (*kv_reserve)(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, uint64_t prompt);
  void (*kv_share)(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, int64_t position);
  void (*kv_append)(uint64_t cache, int64_t sequence, uint64_t tokens);
  void (*kv_free)(uint64_t cache, int64_t sequence, uint64_t kept);
  void (*kv_swap_out)(uint64_t cache, int64_t sequence);
  void (*kv_swap_in)(uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots);
  void (*kv_drop)(uint64_t cache, uint64_t first, uint64_t slots);
  void (*kv_end)(uint64_t cache);
};

// Finds the functions among those that are loaded, and begins the recording. 0: there is no
// hook, or it does not serve this process.
int rerun_hook_open(struct rerun_hook *hook);

// Frees no block: what a restore frees was freed before it.
int rerun_hook_restore(const struct rerun_hook *hook, int device, uint64_t pool0, uint64_t pool1, const struct rerun_restored *blocks, size_t count);

typedef const struct rerun_hook *rerun_hook;

// A request of a context by number. 0: refused.
static inline uint64_t rerun_hook_malloc(rerun_hook hook, size_t bytes, int device, uintptr_t stream, uint64_t pool0, uint64_t pool1, uint32_t context) {
  *hook->cell = context;
  return (uintptr_t)hook->malloc_in_pool(bytes, device, (void *)stream, pool0, pool1);
}
static inline void rerun_hook_free(rerun_hook hook, uint64_t address) { hook->free((void *)(uintptr_t)address, 0, 0, NULL); }
static inline uint64_t rerun_hook_provided(rerun_hook hook, uint64_t address) {
  size_t provided = 0;
  return hook->owns((void *)(uintptr_t)address, &provided) ? provided : 0;
}
static inline const char *rerun_hook_oom_message(rerun_hook hook) { return hook->oom_message(); }
static inline uint32_t rerun_hook_context(rerun_hook hook, const char *text) { return hook->context(text); }
static inline uint32_t rerun_hook_stack_node(rerun_hook hook, uint32_t parent, const char *frame) { return hook->stack_node(parent, frame); }
static inline void rerun_hook_label(rerun_hook hook, uint64_t address, uint32_t context) { hook->label_many(1, &address, &context); }
static inline void rerun_hook_iteration(rerun_hook hook, const char *label) { hook->iteration(label); }
static inline void rerun_hook_phase_begin(rerun_hook hook, const char *name) { hook->phase_begin(name); }
static inline void rerun_hook_phase_end(rerun_hook hook, const char *name) { hook->phase_end(name); }
static inline void rerun_hook_record_stream(rerun_hook hook, uint64_t address, uintptr_t stream) {
  hook->record_stream((void *)(uintptr_t)address, (void *)stream);
}
static inline void rerun_hook_empty_cache(rerun_hook hook, int device) { hook->empty_cache(device); }
static inline void rerun_hook_call_as(rerun_hook hook, const char *context) { hook->call_as(context); }

static inline void rerun_hook_region_begin(rerun_hook hook, const char *tag, int restore) { hook->region_begin(tag, restore); }
static inline void rerun_hook_region_end(rerun_hook hook) { hook->region_end(); }
static inline int rerun_hook_pause(rerun_hook hook, const char *tag) { return hook->pause(&tag, 1, 0); }
static inline int rerun_hook_resume(rerun_hook hook, const char *tag) { return hook->resume(&tag, 1, 0); }
static inline const char *rerun_hook_pause_message(rerun_hook hook) { return hook->pause_message(); }

static inline void rerun_hook_pool_begin(rerun_hook hook, int device, uint64_t pool0, uint64_t pool1) { hook->pool_begin(device, pool0, pool1); }
static inline void rerun_hook_pool_end(rerun_hook hook, int device, uint64_t pool0, uint64_t pool1) { hook->pool_end(device, pool0, pool1); }
// Until nobody holds it.
static inline void rerun_hook_release_pool(rerun_hook hook, int device, uint64_t pool0, uint64_t pool1) {
  while (hook->pool_uses(device, pool0, pool1) > 0) hook->release_pool(device, pool0, pool1);
}
static inline void rerun_hook_checkpoint(rerun_hook hook, int device, uint64_t pool0, uint64_t pool1, uint64_t blocks, uint64_t bytes) {
  hook->checkpoint(device, pool0, pool1, blocks, bytes);
}
static inline void rerun_hook_capture_name(rerun_hook hook, const char *name, uint64_t pool0, uint64_t pool1, uint64_t inputs) {
  hook->capture_name(name, pool0, pool1, inputs);
}
static inline uint32_t rerun_hook_graph_memory_open(rerun_hook hook, int device, uint64_t reservation) {
  return hook->graph_memory_open(device, reservation);
}
static inline void rerun_hook_graph_memory_close(rerun_hook hook, int device, uint32_t number) { hook->graph_memory_close(device, number); }
static inline int rerun_hook_graph_shape(rerun_hook hook, int device, uint32_t number, const char *name, uint64_t pool0, uint64_t pool1) {
  return hook->graph_shape(device, number, name, pool0, pool1, 0);
}
static inline const char *rerun_hook_graph_message(rerun_hook hook) { return hook->graph_message(); }

static inline uint64_t rerun_hook_kv_cache(rerun_hook hook, int device, uint64_t slots, uint64_t token_bytes, const char *fields) {
  return hook->kv_cache(device, slots, token_bytes, fields);
}
static inline void rerun_hook_kv_reserve(rerun_hook hook, uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, uint64_t prompt) {
  hook->kv_reserve(cache, sequence, first, slots, prompt);
}
static inline void rerun_hook_kv_share(rerun_hook hook, uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots, int64_t position) {
  hook->kv_share(cache, sequence, first, slots, position);
}
static inline void rerun_hook_kv_append(rerun_hook hook, uint64_t cache, int64_t sequence, uint64_t tokens) { hook->kv_append(cache, sequence, tokens); }
static inline void rerun_hook_kv_free(rerun_hook hook, uint64_t cache, int64_t sequence, uint64_t kept) { hook->kv_free(cache, sequence, kept); }
static inline void rerun_hook_kv_swap_out(rerun_hook hook, uint64_t cache, int64_t sequence) { hook->kv_swap_out(cache, sequence); }
static inline void rerun_hook_kv_swap_in(rerun_hook hook, uint64_t cache, int64_t sequence, uint64_t first, uint64_t slots) {
  hook->kv_swap_in(cache, sequence, first, slots);
}
static inline void rerun_hook_kv_drop(rerun_hook hook, uint64_t cache, uint64_t first, uint64_t slots) { hook->kv_drop(cache, first, slots); }
static inline void rerun_hook_kv_end(rerun_hook hook, uint64_t cache) { hook->kv_end(cache); }

#endif
