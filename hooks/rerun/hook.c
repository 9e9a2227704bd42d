// hook.c - see hook.h.
#define _GNU_SOURCE
#include "hook.h"

#include <dlfcn.h>
#include <string.h>

struct rerun_hook rerun_hook;

// dlsym's result goes through memory: ISO C has no conversion from void * to a function.
static int find(const char *name, void *function) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

int rerun_hook_open(void) {
  int whole = 1;
#define FIND(name) whole &= find("memprof_" #name, &rerun_hook.name)
#define FIND_CALL(result, name, PARAMETERS, ARGUMENTS) FIND(name);
  RERUN_CALLS(FIND_CALL)
  FIND(active), FIND(context_cell), FIND(malloc_in_pool), FIND(free), FIND(owns), FIND(label_many), FIND(record_stream);
  FIND(region_end), FIND(pause), FIND(resume), FIND(pool_uses), FIND(release_pool), FIND(restore);
  if (!whole || !rerun_hook.active()) return 0;
  rerun_hook.cell = rerun_hook.context_cell();
  rerun_hook.stack_node(0, "");  // of no frame: nothing is recorded, but recording begins, so that no mark is lost
  return 1;
}

static void freed(void *self, void *address) { (void)self, (void)address; }

int rerun_hook_restore(int device, uint64_t pool0, uint64_t pool1, const struct rerun_restored *blocks, size_t count) {
  return rerun_hook.restore(device, pool0, pool1, blocks, count, NULL, freed);
}
