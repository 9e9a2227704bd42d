// library.c - see library.h. dladdr would search all symbols of the library for the nearest one,
// which takes milliseconds in large libraries. This compares the segments of each library.
#define _GNU_SOURCE
#include "base/library.h"

#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

// The path of the program, which dl_iterate_phdr gives no name.
static char program[512];

static void read_program(void) {
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
}

void library_last_part(const char *path, char name[LIBRARY_NAME]) {
  const char *slash = strrchr(path, '/');
  const char *last = slash != NULL ? slash + 1 : path;
  text_copy(name, LIBRARY_NAME, last, strlen(last));
  for (char *c = name; *c != '\0'; c++) {
    if (*c == '\t' || *c == '\n') *c = ' ';
  }
}

struct search {
  uintptr_t address;
  char *name;
};

static int look(struct dl_phdr_info *info, size_t size, void *self) {
  (void)size;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const struct search *search = self;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || search->address - info->dlpi_addr - segment->p_vaddr >= segment->p_memsz) continue;
    if (info->dlpi_name[0] == '\0') pthread_once(&once, read_program);
    library_last_part(info->dlpi_name[0] != '\0' ? info->dlpi_name : program, search->name);
    return 1;
  }
  return 0;
}

bool library_name(const void *address, char name[LIBRARY_NAME]) {
  struct search search = {(uintptr_t)address, name};
  return dl_iterate_phdr(look, &search) == 1;
}
