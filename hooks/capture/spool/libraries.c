// libraries.c - see libraries.h.
#define _GNU_SOURCE
#include "spool/libraries.h"

#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "spool/record.h"

static const struct {
  const char *prefix;  // of the file's name
  uint32_t library;
} known[] = {
    {"libnccl.so", MEMPROF_NCCL},
    {"xla_cuda_plugin.so", MEMPROF_XLA},  // JAX since its plugins
    {"xla_extension.so", MEMPROF_XLA},
};

// Threads that walk the loader's list, and threads that fork. The walk takes a lock of the loader
// that fork does not reset: a child made meanwhile would wait for it for good in its first dlopen
// or C++ exception. So neither begins while the other is under way.
static _Atomic(int) walking, forking;

static int look(struct dl_phdr_info *info, size_t size, void *self) {
  (void)size;
  uint32_t *found = self;
  const char *slash = strrchr(info->dlpi_name, '/'), *name = slash != NULL ? slash + 1 : info->dlpi_name;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) == 0) *found |= known[i].library;
  }
  return 0;
}

uint32_t libraries_loaded(void) {
  uint32_t found = 0;
  atomic_fetch_add(&walking, 1);
  if (atomic_load(&forking) == 0) dl_iterate_phdr(look, &found);
  atomic_fetch_sub(&walking, 1);
  return found;
}

// Not for ever: a signal handler that forks may have interrupted the walk.
static void libraries_before_fork(void) {
  enum { TRIES = 1000, PAUSE_US = 100 };
  atomic_fetch_add(&forking, 1);
  for (int i = 0; i < TRIES && atomic_load(&walking) > 0; i++) usleep(PAUSE_US);
}

static void libraries_after_fork(void) { atomic_fetch_sub(&forking, 1); }

static void forget(void) {
  atomic_store(&walking, 0);
  atomic_store(&forking, 0);
}

HOOK_PART(.before_fork = libraries_before_fork, .after_fork = libraries_after_fork, .forget = forget);
