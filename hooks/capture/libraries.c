// libraries.c - see libraries.h.
#define _GNU_SOURCE
#include "libraries.h"

#include <link.h>
#include <string.h>

#include "record.h"

static const struct {
  const char *prefix;  // of the file's name
  uint32_t library;
} known[] = {
    {"libnccl.so", MEMPROF_NCCL},
    {"xla_cuda_plugin.so", MEMPROF_XLA},  // JAX since its plugins
    {"xla_extension.so", MEMPROF_XLA},
};

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
  dl_iterate_phdr(look, &found);
  return found;
}
