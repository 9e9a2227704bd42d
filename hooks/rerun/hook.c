// hook.c - see hook.h.
#define _GNU_SOURCE
#include "hook.h"

#include <dlfcn.h>
#include <string.h>

// dlsym's result goes through memory: ISO C has no conversion from void * to a function.
static int find(const char *name, void *function) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

int rerun_hook_open(struct rerun_hook *hook) {
  int whole = 1;
#define FIND(name) whole &= find("memprof_" #name, &hook->name)
  FIND(active), FIND(context), FIND(context_cell), FIND(malloc_in_pool), FIND(free), FIND(owns), FIND(oom_message), FIND(stack_node);
  FIND(label_many), FIND(iteration), FIND(phase_begin), FIND(phase_end), FIND(record_stream), FIND(empty_cache), FIND(call_as);
  FIND(region_begin), FIND(region_end), FIND(pause), FIND(resume), FIND(pause_message);
  FIND(pool_begin), FIND(pool_end), FIND(pool_uses), FIND(release_pool), FIND(checkpoint), FIND(restore), FIND(capture_name);
  FIND(graph_memory_open), FIND(graph_memory_close), FIND(graph_shape), FIND(graph_message);
  FIND(kv_cache), FIND(kv_reserve), FIND(kv_share), FIND(kv_append), FIND(kv_free), FIND(kv_swap_out), FIND(kv_swap_in);
  FIND(kv_drop), FIND(kv_end);
#undef FIND
  if (!whole || !hook->active()) return 0;
  hook->cell = hook->context_cell();
  hook->stack_node(0, "");  // of no frame: nothing is recorded, but recording begins, so that no mark is lost
  return 1;
}

static void freed(void *self, void *address) { (void)self, (void)address; }

int rerun_hook_restore(const struct rerun_hook *hook, int device, uint64_t pool0, uint64_t pool1, const struct rerun_restored *blocks, size_t count) {
  return hook->restore(device, pool0, pool1, blocks, count, NULL, freed);
}
